"""Run a submission's steps where they can reach nothing, and believe nothing of what comes back.

Each submission has a sandbox of its own.  What goes in is a job as JSON, what comes out are events
(:mod:`.events`) of a process that the student controls: all that is not exactly the event expected
next ends the step that was under way.

A step that hangs, dies or takes too much memory ends its sandbox, and a fresh one goes on with that
step left out: cells run again, questions that were answered do not.  So such a step costs itself
and whatever needed it.  When :func:`run_steps` returns, on whichever path, no process of the
submission's is left.
"""

from __future__ import annotations

import json
import time
from typing import Any, Literal, TypedDict

from backward_twice.grading.sandbox.events import NO_EVENT, Events, Failure
from backward_twice.grading.sandbox.interface import Limits, Run, Sandbox, SandboxError

_TEXT = 12_000  # characters of an error
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


class StepResult(TypedDict):
    """How a step ended, and what it handed back.  All texts come from the student's process.

    ``outcome`` is ``done`` for a step that ended by itself, be it with an exception (``error``,
    ``ename``); ``observed`` are the texts of plain data that a question's draws gave.
    """

    id: str
    kind: Literal["cell", "question"]
    outcome: Literal["done", "timeout", "memory", "crashed", "skipped"]
    output: str
    error: str | None
    ename: str | None
    observed: list[str] | None


def run_steps(steps: list[dict[str, Any]], limits: Limits, sandbox: Sandbox) -> list[StepResult]:
    """Run a submission's steps in order; a result for each.

    Args:
        steps: ``{"kind": "cell", "id": ..., "source": ...}`` or
            ``{"kind": "question", "id": ..., "question": ..., "draws": [text, ...]}``.
        limits: what the submission may use.
        sandbox: from :func:`sandbox`.

    Raises:
        SandboxError: the sandbox failed, whatever the student did.

    >>> from backward_twice.grading.sandbox import Limits, run_steps, sandbox
    >>> with sandbox("none") as trusted:
    ...     [result] = run_steps(
    ...         [{"kind": "cell", "id": "hello", "source": "print(6 * 7)"}], Limits(), trusted
    ...     )
    >>> result["outcome"], result["output"]
    ('done', '42\\n')
    """
    results: list[StepResult | None] = [None] * len(steps)
    failed: set[int] = set()
    end = time.monotonic() + limits.total
    while None in results and time.monotonic() < end:
        todo = [
            k
            for k, step in enumerate(steps)
            if k not in failed and (results[k] is None or step["kind"] == "cell")
        ]
        left_out = _attempt(steps, todo, results, limits, sandbox, end)
        if left_out is not None:
            failed.add(left_out)
    unreached = f"not run: the submission's {limits.total:g} s were used up"
    return [
        _unfinished(step, "skipped", unreached) if result is None else result
        for step, result in zip(steps, results, strict=True)
    ]


def _unfinished(step: dict[str, Any], outcome: str, why: str) -> StepResult:
    """The result of a step that did not come to its end."""
    return {
        "id": step["id"],
        "kind": step["kind"],
        "outcome": outcome,
        "output": "",
        "error": why,
        "ename": None,
        "observed": None,
    }


def _attempt(
    steps: list[dict[str, Any]],
    todo: list[int],
    results: list[StepResult | None],
    limits: Limits,
    sandbox: Sandbox,
    end: float,
) -> int | None:
    """Run the steps ``todo`` in one sandbox, up to the last that has no result yet.

    Returns:
        the step that ended the sandbox and has to be left out of the next.
    """
    while results[todo[-1]] is not None:
        todo = todo[:-1]
    job = json.dumps({"steps": [steps[k] for k in todo], "output": limits.output}).encode()
    run, stream = _started(job, limits, sandbox, end)
    try:
        for position, k in enumerate(todo):
            event: dict[str, Any] | Failure = {"began": 0}
            if position:
                event = stream.next(limits.seconds)
            if event == {"began": position}:
                event = stream.next(limits.seconds)
                if isinstance(event, dict):
                    event = _finished(event, position, steps[k], limits)
            elif isinstance(event, dict):
                event = NO_EVENT
            if isinstance(event, tuple):
                results[k] = _unfinished(steps[k], *event)
                return k
            results[k] = event
            if event["outcome"] == "memory":
                return k  # what it filled the memory with may still be there
        return None
    finally:
        run.close()


def _started(job: bytes, limits: Limits, sandbox: Sandbox, end: float) -> tuple[Run, Events]:
    """A run that has begun its first step.  A start that fails is tried once more."""
    for tried_before in (False, True):
        run = sandbox.start(job, limits)
        try:
            stream = Events(run, limits, end)
            if stream.next(run.patience, start=True) == {"began": 0}:
                return run, stream
            why = f"the sandbox did not start: {run.how_ended()} {stream.rest()}"
        except BaseException:
            run.close()
            raise
        run.close()
        if tried_before:
            raise SandboxError(why)


def _finished(
    event: dict[str, Any], position: int, step: dict[str, Any], limits: Limits
) -> StepResult | Failure:
    """The step's result, if the event is what the end of the step at ``position`` looks like."""
    if event.keys() != {"done", "output", "error", "ename", "observed"}:
        return NO_EVENT
    if type(event["done"]) is not int or event["done"] != position:
        return NO_EVENT
    output, error, ename = event["output"], event["error"], event["ename"]
    if not isinstance(output, str):
        return NO_EVENT
    if (error is None) != (ename is None):
        return NO_EVENT
    if error is not None and not (isinstance(error, str) and isinstance(ename, str)):
        return NO_EVENT
    if not _fits(event["observed"], step, failed=error is not None):
        return NO_EVENT
    return {
        "id": step["id"],
        "kind": step["kind"],
        "outcome": "memory" if ename == "MemoryError" else "done",
        "output": _clean(output, limits.output + 100),
        "error": None if error is None else _clean(error, _TEXT),
        "ename": None if ename is None else _clean(ename, 100),
        "observed": event["observed"],
    }


def _fits(observed: Any, step: dict[str, Any], *, failed: bool) -> bool:
    """Whether a step that ended so observes this: a question that did not fail, a text a draw.

    >>> asked = {"kind": "question", "draws": ["{}", "{}"]}
    >>> _fits(["1", "2"], asked, failed=False), _fits(["1"], asked, failed=False)
    (True, False)
    >>> _fits(["1", "2"], asked, failed=True), _fits(None, {"kind": "cell"}, failed=False)
    (False, True)
    """
    if step["kind"] != "question" or failed:
        return observed is None
    if not isinstance(observed, list) or len(observed) != len(step["draws"]):
        return False
    return all(isinstance(text, str) for text in observed)


def _clean(text: str, length: int) -> str:
    """A student's text, fit to be stored: no lone surrogates, no control characters.

    >>> _clean("a\\0b\\ud800\\r\\nc", 100)
    'a�b?\\nc'
    """
    text = text[:length].encode("utf-8", "replace").decode()
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)
