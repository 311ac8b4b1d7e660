"""Run a submission's steps where they can reach nothing, and believe nothing of what comes back.

Each submission has a sandbox of its own.  Where bubblewrap works it is bubblewrap's, entered by a
fork of a warm process (:mod:`.warm`), so that it costs milliseconds; elsewhere a locked-down
container, or, inside a platform's own container, a user of its own.  What goes in is a job as JSON,
what comes out are lines of JSON from a process that the student controls: they are bytes of bounded
number, and all that is not exactly the event expected next ends the step that was under way.

A step that hangs, dies or takes too much memory ends its sandbox, and a fresh one goes on with that
step left out: cells run again, questions that were answered do not.  So such a step costs itself
and whatever needed it.  When :func:`run_steps` returns, on whichever path, no process of the
submission's is left.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypedDict

from backward_twice.grading.bubblewrap import Bubblewrap, ColdBubblewrap
from backward_twice.grading.elsewhere import Account, Container, Unprotected
from backward_twice.grading.place import Kind, Limits, Run, Sandbox, SandboxError

__all__ = [
    "Kind",
    "Limits",
    "Sandbox",
    "SandboxError",
    "StepResult",
    "available",
    "run_steps",
    "sandbox",
    "shared",
]

_WATCH = 0.2  # s, between looks at the memory of a submission of several processes
_LINE = 8 << 20  # bytes that one step may hand back
_ALL = 32 << 20  # bytes that all of them together may
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
        _result(step, "skipped", unreached) if result is None else result
        for step, result in zip(steps, results, strict=True)
    ]


def _result(step: dict[str, Any], outcome: str, error: str | None, **more: Any) -> StepResult:
    return {
        **{"id": step["id"], "kind": step["kind"], "outcome": outcome, "output": ""},
        **{"error": error, "ename": None, "observed": None},
        **more,
    }


_Failure = tuple[Literal["timeout", "memory", "crashed"], str]


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
        for place, k in enumerate(todo):
            event: dict[str, Any] | _Failure = {"began": 0}
            if place:
                event = stream.next(limits.seconds)
            if event == {"began": place}:
                event = stream.next(limits.seconds)
                if isinstance(event, dict):
                    event = _done(event, place, steps[k], limits)
            elif isinstance(event, dict):
                event = _NO_EVENT
            if isinstance(event, tuple):
                results[k] = _result(steps[k], *event)
                return k
            results[k] = event
            if event["outcome"] == "memory":
                return k  # what it filled the memory with may still be there
        return None
    finally:
        run.close()


def _started(job: bytes, limits: Limits, sandbox: Sandbox, end: float) -> tuple[Run, _Events]:
    """A run that has begun its first step.  A start that fails is tried once more."""
    for tried_before in (False, True):
        run = sandbox.start(job, limits)
        try:
            stream = _Events(run, limits, end)
            if stream.next(run.patience, start=True) == {"began": 0}:
                return run, stream
            why = f"the sandbox did not start: {run.how_ended()} {stream.rest()}"
        except BaseException:
            run.close()
            raise
        run.close()
        if tried_before:
            raise SandboxError(why)


_NO_EVENT: _Failure = ("crashed", "handed back what is no event of this step")


def _done(
    event: dict[str, Any], place: int, step: dict[str, Any], limits: Limits
) -> StepResult | _Failure:
    """The step's result, if the event is what a step's end looks like."""
    output, error, ename, observed = (
        event.get(name) for name in ("output", "error", "ename", "observed")
    )
    draws = len(step["draws"]) if step["kind"] == "question" and error is None else None
    fits = (
        event.keys() == {"done", "output", "error", "ename", "observed"}
        and type(event["done"]) is int
        and event["done"] == place
        and isinstance(output, str)
        and (error is ename is None or (isinstance(error, str) and isinstance(ename, str)))
        and (
            observed is None
            if draws is None
            else isinstance(observed, list)
            and len(observed) == draws
            and all(isinstance(text, str) for text in observed)
        )
    )
    if not fits:
        return _NO_EVENT
    return _result(
        step,
        "memory" if ename == "MemoryError" else "done",
        None if error is None else _clean(error, _TEXT),
        ename=None if ename is None else _clean(ename, 100),
        output=_clean(output, limits.output + 100),
        observed=observed,
    )


def _clean(text: str, length: int) -> str:
    """A student's text, fit to be stored: no lone surrogates, no control characters.

    >>> _clean("a\\0b\\ud800\\r\\nc", 100)
    'a�b?\\nc'
    """
    text = text[:length].encode("utf-8", "replace").decode()
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)


class _Events:
    """The events of a run, one at a time: a dict, or how the step under way failed."""

    def __init__(self, run: Run, limits: Limits, end: float) -> None:
        self._run = run
        self._limits = limits
        self._end = end
        self._read = bytearray()
        self._room = _ALL
        self._poll = select.poll()
        self._poll.register(run.events, select.POLLIN)
        if run.status is not None:
            self._poll.register(run.status, select.POLLIN)

    def next(self, seconds: float, *, start: bool = False) -> dict[str, Any] | _Failure:
        deadline = time.monotonic() + seconds
        if not start:
            deadline = min(deadline, self._end)
        looked = time.monotonic()
        searched = 0
        while (newline := self._read.find(b"\n", searched)) < 0:
            searched = len(self._read)
            if searched > _LINE or self._room <= 0:
                return "crashed", f"handed back more than {_LINE >> 20} MB"
            now = time.monotonic()
            if now >= deadline:
                if deadline == self._end:
                    return "timeout", f"the submission took longer than {self._limits.total:g} s"
                return "timeout", f"took longer than {seconds:g} s"
            if now - looked > _WATCH:
                looked = now
                if self._run.memory() > self._limits.memory:
                    return "memory", f"took more than {self._limits.memory >> 20} MB of memory"
            ready = dict(self._poll.poll(max(1, 1000 * min(_WATCH, deadline - now))))
            if not ready or self._take():
                continue
            # Nothing more will come, or nothing is there though the process has ended.
            return "crashed", self._run.how_ended()
        line = bytes(self._read[:newline])
        del self._read[: newline + 1]
        return _parsed(line)

    def _take(self) -> bool:
        """Read what is there; ``False`` if that was nothing."""
        try:
            read = os.read(self._run.events, 1 << 16)
        except BlockingIOError:
            return False
        self._room -= len(read)
        self._read += read
        return bool(read)

    def rest(self) -> str:
        """What came instead of an event, before anything of the student's ran."""
        return self._read[-2000:].decode("utf-8", "replace")


def _parsed(line: bytes) -> dict[str, Any] | _Failure:
    """A line as an event; whatever it is, no exception.

    >>> _parsed(b'{"began": 0}')
    {'began': 0}
    >>> _parsed(b"[" * 100_000)
    ('crashed', 'handed back what is no event of this step')
    """
    try:
        event = json.loads(line, object_pairs_hook=_distinct, parse_constant=_refuse)
    except (ValueError, RecursionError, MemoryError):
        event = None
    return event if isinstance(event, dict) else _NO_EVENT


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def sandbox(
    kind: Kind, *, image: str | None = None, hide: Iterable[str | os.PathLike[str]] = ()
) -> Sandbox:
    """A sandbox of this kind; a context manager, that ends the process kept warm.

    Args:
        kind: ``bubblewrap``; ``cold``, the same with a new Python for each submission, in seconds,
            for where a process may not enter it later; ``container``, docker or podman;
            ``account``, for root in a container that somebody else locked down: another user, but
            the same files, and only the filter against the network; ``none``, for work that is
            trusted, which is run with little protection.
        image: for ``container``, an image with this package and what it needs.
        hide: folders that a submission must not see; ``account`` refuses those that all can read.

    Raises:
        SandboxError: this machine has not what it takes.
    """
    folders = tuple(Path(path) for path in hide)
    if kind == "bubblewrap":
        return Bubblewrap(folders)
    if kind == "cold":
        return ColdBubblewrap(folders)
    if kind == "container":
        return Container(image)
    if kind == "account":
        return Account(folders)
    if kind == "none":
        return Unprotected()
    raise ValueError(f"no kind of sandbox: {kind!r}")


@functools.cache
def _shared(process: int, kind: Kind, image: str | None, hide: tuple[str, ...]) -> Sandbox:
    found = sandbox(kind, image=image, hide=hide)
    atexit.register(found.close)
    return found


def shared(kind: Kind, image: str | None = None, hide: Iterable[str] = ()) -> Sandbox:
    """This process's one sandbox of this kind, kept warm until the process ends."""
    return _shared(os.getpid(), kind, image, tuple(hide))


def available(image: str | None = None) -> Kind:
    """The kind of sandbox that works on this machine, tried out.

    Args:
        image: a container's image, to fall back on.

    Raises:
        SandboxError: none does; the message says why, and the ways out.
    """
    step = {"kind": "cell", "id": "try", "source": "print(1)"}
    refused = []
    for kind in ("bubblewrap", "cold", "container"):
        try:
            with sandbox(kind, image=image) as found:
                [result] = run_steps([step], Limits(), found)
            if result["output"] == "1\n":
                return kind
            refused.append(f"{kind}: {result['error']}")
        except (SandboxError, OSError) as error:
            refused.append(f"{kind}: {error}")
    raise SandboxError(
        "there is no sandbox to run students' work in.\n  "
        + "\n  ".join(refused)
        + "\nOn Linux install bubblewrap (apt install bubblewrap, dnf install bubblewrap); "
        "elsewhere install docker or podman and name an image that has this package.  "
        "If you trust every submission as you trust your own code, say so, and it runs without."
    )
