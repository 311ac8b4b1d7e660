"""Ask a question in the learner's notebook, in its own process and with public inputs."""

import io
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import gradtrace
from backward_twice.checks.comparison import Finding, merged
from backward_twice.checks.plain import loads
from backward_twice.checks.recognition import replies
from backward_twice.checks.task import (
    Task,
    UnknownExercise,
    UnusableResult,
    as_torch_begins,
    is_learners,
    learner_frames,
    question,
)
from backward_twice.rehearsal import why_not_graded
from gradtrace.autograd.frames import Location

_PUBLIC_SEEDS = (0, 1)


def _raised(task: Task, error: Exception) -> str:
    if isinstance(error, UnusableResult):
        return str(error)
    text = f"{task.answer} raised {type(error).__name__}: {error}"
    *_, innermost = learner_frames(error) or [None]
    if innermost is None:
        return text
    return f"{text}\n  at its line: {innermost.line or innermost.lineno}"


def _explanation(task: Task, answer: Any, inputs: str) -> list[str]:
    """Repeat a failed call under a strict watch, which is slow; return gradtrace's explanation."""
    try:
        with (
            redirect_stdout(io.StringIO()),
            warnings.catch_warnings(action="ignore"),
            gradtrace.watch(strict=True),
        ):
            task.observe(answer, inputs)
    except Exception as error:
        diagnosis = gradtrace.explain(error.__cause__ or error)
        return _without_our_lines(diagnosis).text().splitlines() if diagnosis else []
    return []


def _without_our_lines(diagnosis: gradtrace.Diagnosis) -> gradtrace.Diagnosis:
    """Return the diagnosis with only those of its locations that are in the learner's code."""

    def learners(place: Location | None) -> Location | None:
        return place if place is not None and is_learners(place.file) else None

    return replace(
        diagnosis,
        began_at=learners(diagnosis.began_at),
        made_at=learners(diagnosis.made_at),
        made_through=tuple(filter(learners, diagnosis.made_through)),
    )


@dataclass(frozen=True, repr=False)
class Call:
    """A recorded call of an answer; call this object with an answer to repeat the call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self, answer: Callable[..., Any]) -> Any:
        return answer(*self.args, **self.kwargs)

    def __repr__(self) -> str:
        lines = [*map(repr, self.args), *(f"{name}={v!r}" for name, v in self.kwargs.items())]
        return "\n".join(lines)


class _Recorder:
    """A stand-in for an answer, which records the arguments of each call and returns nothing."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.calls.append(Call(args, kwargs))

    def apply(self, *args: Any) -> None:
        """Record the call of a ``torch.autograd.Function``, and stop: one call is enough."""
        self(*args)
        raise StopIteration


def calls(name: str, *, seed: int = 0) -> list[Call]:
    """Return new copies of the calls with which :func:`check` asks the question ``name``.

    ``calls("two_losses.one_update")[0]`` shows the first call when printed, has ``args`` and
    ``kwargs``, and makes the call when it is called with an answer.  The calls are recorded with an
    answer that returns None, so those after the first use of a result are missing.

    Args:
        seed: 0 or 1 for the inputs of :func:`check`, another number for other inputs.

    Raises:
        LookupError: there is no such question.

    >>> first, *_ = calls("which_need_saved.refuses")
    >>> first.args
    (['flatten', 'neg'],)
    """
    recorder, task = _Recorder(), question(name)
    with as_torch_begins(), suppress(Exception):  # a use of the recorder's None raises
        task.run(recorder, **loads(task.inputs(seed)))
    return recorder.calls


class _Draw(NamedTuple):
    """The inputs that a seed draws, an answer's result for them, and its findings."""

    seed: int
    inputs: str
    observed: str
    findings: list[Finding]


def check(name: str, answer: Any, *, seed: int | None = None) -> None:
    """Judge ``answer`` by the question ``name`` in this process, and print the findings.

    If the installed package lacks the exercise, such as a teacher's own for an exam, or its inputs,
    as in the grader's sandbox, only that is printed.  A right answer is checked again as the grader
    will check it, with only the definitions that it needs; if it is then wrong, that is printed.

    Args:
        name: ``"<exercise>.<question>"``.
        answer: the object that the answer cell defines.
        seed: draws other inputs than the public ones.

    Raises:
        AssertionError: the answer raised, is not written yet, or has a wrong property.
        LookupError: there is no such question, though there is the exercise.
    """
    try:
        task = question(name)
    except UnknownExercise:
        print(f"{name}: checked only during grading; this package lacks it")
        return
    if _rehearsing:  # the answer cell itself checks an answer
        return
    draws = []
    for number in _PUBLIC_SEEDS if seed is None else (seed,):
        try:
            inputs = task.inputs(number)
        except LookupError:
            print(f"{name}: not checked here, because the answer is only run")
            return
        try:
            observed = task.observe(answer, inputs)
        except NotImplementedError:
            raise AssertionError(f"{name}: {task.answer} is not written yet") from None
        except Exception as error:
            lines = [_raised(task, error), *_explanation(task, answer, inputs)]
            lines.append(_route(name, number))
            raise AssertionError(f"{name}: " + "\n  ".join(lines)) from error
        draws.append(_Draw(number, inputs, observed, task.findings(observed, inputs)))
    findings = merged([draw.findings for draw in draws])
    lines = _listed(findings)
    if wrong := sum(not finding.passed for finding in findings):
        lines = [f"{wrong} of {len(findings)} properties wrong", *lines]
        raise AssertionError(f"{name}: " + "\n  ".join(lines + _explained(name, task, draws)))
    print(f"{name}: " + "\n  ".join([f"all {len(findings)} properties right", *lines]))
    if reason := _not_graded(name, task, answer, inputs):
        print(f"However, the grader could not use this answer: {reason}")


MOST_LISTED = 12
"""If there are more findings than this, only wrong ones are listed one by one."""
_MOST_WRONG = 6


def _listed(findings: list[Finding]) -> list[str]:
    """Format a line for each finding; if there are many, for the first wrong ones, with counts."""
    if len(findings) <= MOST_LISTED:
        return [str(finding) for finding in findings]
    wrong = [str(finding) for finding in findings if not finding.passed]
    right, surplus = len(findings) - len(wrong), len(wrong) - _MOST_WRONG
    lines = wrong[:_MOST_WRONG] + ([f"✗ wrong: {surplus} more"] if surplus > 0 else [])
    return lines + ([f"✓ right: {right}"] if right else [])


def _route(name: str, seed: int) -> str:
    """Describe how the learner gets the inputs of a wrong answer."""
    return f"The arguments of that call: calls({name!r}{f', seed={seed}' if seed else ''})"


def _explained(name: str, task: Task, draws: list[_Draw]) -> list[str]:
    """Explain a wrong answer: its misconception, its smallest case as a program, and its inputs."""
    _, inputs, observed, _ = zip(*draws, strict=True)
    lines = [f"{LOOKS_LIKE} {reply}" for reply in replies(name, task, observed, inputs)]
    failed = next(draw for draw in draws if not all(f.passed for f in draw.findings))
    if case := task.smallest_case(failed.observed, failed.inputs):
        lines += [SMALLEST_CASE, *(f"  {line}" for line in case.splitlines())]
    return [*lines, _route(name, failed.seed)]


LOOKS_LIKE = "It looks like this misconception:"
SMALLEST_CASE = "The smallest case that is wrong, as a program:"
"""Headings of a reply and of a smallest case, in the notebook and in the grader's feedback."""

_rehearsing: list[str] = []


def _not_graded(name: str, task: Task, answer: Any, inputs: str) -> str:
    def asks(again: Any) -> str:
        findings = task.findings(task.observe(again, inputs), inputs)
        return next((str(finding) for finding in findings if not finding.passed), "")

    _rehearsing.append(name)
    try:
        test_cell = name.partition(".")[2].replace("_", "-")
        return why_not_graded(task.answer, answer, test_cell, asks)
    finally:
        _rehearsing.pop()
