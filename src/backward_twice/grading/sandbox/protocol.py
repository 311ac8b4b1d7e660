"""Run a submission's steps in a sandbox, and trust nothing that comes back.

Its tasks are sent one by one, the next cell or draw of inputs only after the previous one was
answered, so that no submission can look ahead.  The replies are events (:mod:`.events`) of a
process that the student controls: anything but the expected event ends the current step.

A step that hangs, dies or takes too much memory ends its sandbox.  A fresh sandbox continues
without that step: it runs the cells again, but no question that was answered, and the first result
of each step counts.  When :func:`run_steps` ends, no process of the submission is left.
"""

import contextlib
from collections.abc import Iterator
from itertools import count
from typing import Any, Literal, TypedDict

from backward_twice.grading.sandbox.events import NO_EVENT, Budget, Events, too_much_memory
from backward_twice.grading.sandbox.forks import Fork, Sandbox
from backward_twice.grading.sandbox.limits import SandboxError, SubmissionLimits

_TEXT = 12_000  # characters of an error
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


class StepResult(TypedDict):
    """The outcome and output of a step; all texts come from the student's process, untrusted.

    A step is ``done`` if it ended by itself, also with an exception (MemoryError is ``memory``),
    and ``slow`` if it exceeded its wall-clock time but not its processor time.  One that was not
    reached is ``skipped`` if the submission's processor time was used up, else ``slow``.
    """

    outcome: Literal["done", "timeout", "slow", "memory", "crashed", "skipped"]
    output: str
    error: str | None  # describes the exception, or another outcome
    ename: str | None  # the type of the exception
    observed: list[str] | None  # the results of a question's draws, as texts of plain data
    seconds: float  # known processor time of all processes


def run_steps(
    steps: list[dict[str, Any]], limits: SubmissionLimits, sandbox: Sandbox
) -> list[StepResult]:
    """Run a submission's steps in order; return a result for each.

    A step is ``{"kind": "cell", "source": ...}`` or ``{"kind": "question", "question": ...,
    "draws": [text, ...]}``.  Raises SandboxError if the sandbox failed, and not the student's code.
    """
    results: list[StepResult | None] = [None] * len(steps)
    failed: set[int] = set()
    budget = Budget(limits)
    exercises = sorted({s["question"].partition(".")[0] for s in steps if "question" in s})
    while None in results and budget.left:
        last = max(k for k, result in enumerate(results) if result is None)
        run, stream = _started(limits, sandbox, budget, exercises)
        part_numbers = count()
        with contextlib.closing(run):
            for k, step in enumerate(steps[: last + 1]):
                if k in failed or (results[k] is not None and step["kind"] != "cell"):
                    continue
                stream.begin()
                result = _step(step, stream, part_numbers, limits)
                result["seconds"] = stream.end()
                results[k] = results[k] or result
                if result["outcome"] != "done":
                    failed.add(k)  # the data that filled the memory may still be there
                    break
    outcome = "skipped" if budget.processor <= 0 else "slow"
    unreached = f"not run: the submission's {limits.total:g} s were used up"
    return [unfinished(outcome, unreached) if result is None else result for result in results]


def unfinished(outcome: str, why: str | None) -> StepResult:
    """Return the result of a step that returned nothing."""
    return StepResult(outcome=outcome, output="", error=why, ename=None, observed=None, seconds=0.0)


def _started(
    limits: SubmissionLimits, sandbox: Sandbox, budget: Budget, exercises: list[str]
) -> tuple[Fork, Events]:
    """Return a run that is ready for its first step, and its events; repeat a failed start once."""
    for _ in range(2):
        with contextlib.ExitStack() as stack:
            run = stack.enter_context(contextlib.closing(sandbox.start(limits, exercises)))
            stream = Events(run, limits, budget)
            reason = stream.why_not_ready()
            if not reason:
                stack.pop_all()
                return run, stream
    raise SandboxError(f"the sandbox did not start: {reason}")


def _step(
    step: dict[str, Any], stream: Events, part_numbers: Iterator[int], limits: SubmissionLimits
) -> StepResult:
    """Run a step: a cell at once, a question draw by draw, up to one that fails."""
    common = {"kind": step["kind"], "output": limits.output}
    if step["kind"] == "cell":
        parts = [common | {"source": step["source"]}]
    else:
        parts = [
            common | {"question": step["question"], "inputs": inputs} for inputs in step["draws"]
        ]
    output, observed = "", []
    for part, number in zip(parts, part_numbers, strict=False):
        event = stream.ask(part)
        if isinstance(event, dict) and not _is_end(event, number, step["kind"]):
            event = NO_EVENT
        if isinstance(event, tuple):
            return unfinished(*event)
        output += event["output"]
        observed.append(event["observed"])
        if event["error"] is not None:
            break
    result = unfinished("done", None)
    result["output"] = _clean(output, limits.output + 100)
    if event["error"] is None:
        result["observed"] = observed if step["kind"] == "question" else None
    elif event["ename"] == "MemoryError":
        result |= {"outcome": "memory", "error": too_much_memory(limits), "ename": "MemoryError"}
    else:
        error = _clean(event["error"], _TEXT).strip() or "an error without a name"
        result |= {"error": error, "ename": _clean(event["ename"], 100)}
    return result


def _is_end(event: dict[str, Any], number: int, kind: str) -> bool:
    """Whether the event has the form of the end of the part ``number``.

    >>> end = {"done": 3, "output": "", "error": None, "ename": None, "observed": "{}"}
    >>> _is_end(end, 3, "question"), _is_end(end, 2, "question"), _is_end(end, 3, "cell")
    (True, False, False)
    """
    if event.keys() != {"done", "output", "error", "ename", "observed"}:
        return False
    if type(event["done"]) is not int or event["done"] != number:
        return False
    failed = event["error"] is not None
    texts = [event["output"], *([event["error"], event["ename"]] if failed else [])]
    answers = kind == "question" and not failed
    return (
        all(isinstance(text, str) for text in texts)
        and (failed or event["ename"] is None)
        and (isinstance(event["observed"], str) if answers else event["observed"] is None)
    )


def _clean(text: str, length: int) -> str:
    """Cut a student's text to ``length``, and replace lone surrogates and control characters.

    >>> _clean("a\\0b\\ud800\\r\\nc", 100)
    'a�b?\\nc'
    """
    text = text[:length].encode("utf-8", "replace").decode()
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)


_NO_SANDBOX = (
    "students' work cannot run in a sandbox here: {}\nOn Linux install bubblewrap and libseccomp "
    "(apt install bubblewrap libseccomp2, dnf install bubblewrap libseccomp) and allow user "
    "namespaces; elsewhere grade in a Linux virtual machine, which on Windows may be WSL 2."
)


def check_sandbox(sandbox: Sandbox | None = None) -> None:
    """Run an empty step in the sandbox, or start only bubblewrap; raise SandboxError on failure."""
    try:
        if sandbox is None:
            with Sandbox() as trial:
                trial.namespaces(SubmissionLimits()).close()
        else:
            run_steps([{"kind": "cell", "source": ""}], SubmissionLimits(), sandbox)
    except (SandboxError, OSError) as error:
        raise SandboxError(_NO_SANDBOX.format(error)) from error
