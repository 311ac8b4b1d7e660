"""A question of an exercise: what is asked, of which inputs, and how the answer is judged.

The learner's notebook and the grader ask the same :class:`Question`.  Inputs are drawn from a
seed, the answer is asked of them (:attr:`Question.run`), what comes out is plain data, and that is
compared with the truth (:attr:`Question.expect`), which a learner's code never touches.  In the
notebook all of it happens in one process (:func:`check`); the grader draws other inputs, asks in a
sandbox and judges outside it.
"""

from __future__ import annotations

import importlib
import math
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from backward_twice.checks.plain import Plain, dumps, loads
from backward_twice.rehearsal import why_not_graded

RTOL = 1e-4
"""Relative tolerance of a comparison: float32, whatever the order of a sum."""
ATOL = 1e-6
"""Absolute tolerance of a comparison."""

_PUBLIC_SEEDS = (0, 1)
_NAME = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Finding:
    """One property of an answer: what was looked at, whether it is right, and how it came out.

    ``of`` is the name of what came out, where ``what`` is a part of it, such as a list's number.
    """

    what: str
    passed: bool
    text: str
    of: str = ""

    def __str__(self) -> str:
        return f"{'✓ right' if self.passed else '✗ wrong'}: {self.what}: {self.text}"


def _ask(answer: Callable[..., Plain], **inputs: Plain) -> dict[str, Plain]:
    """Call the answer with the inputs; a dict is taken as it is, anything else as ``result``."""
    result = answer(**inputs)
    return result if isinstance(result, dict) else {"result": result}


@dataclass(frozen=True)
class Question:
    """What is asked of one answer.

    Attributes:
        answer: the name that the learner's answer cell defines.
        draw: takes a seeded :class:`torch.Generator`, gives the inputs: plain data by name.
        expect: takes the inputs by name, gives what a right answer gives: plain data by name.
            It runs only where the learner's code does not.
        run: takes the answer and the inputs by name, gives what came out: plain data by name.
            It may build from the inputs what the answer works on, such as modules and optimizers.
            It runs beside the learner's code, so nothing may rest on it but the question's wording.
        judge: takes what came out and the inputs by name, gives the findings; for what a comparison
            with :attr:`expect` cannot say.
        program: takes a property's name, what came out for it (None if nothing did) and the inputs
            by name, gives the property's case as a program of a few lines, or "".
    """

    answer: str
    draw: Callable[[torch.Generator], dict[str, Plain]]
    expect: Callable[..., dict[str, Plain]] | None = None
    run: Callable[..., dict[str, Plain]] = _ask
    judge: Callable[..., list[Finding]] | None = None
    program: Callable[..., str] | None = None

    def __post_init__(self) -> None:
        if (self.expect is None) == (self.judge is None):
            raise TypeError(f"the question of {self.answer!r} needs either expect or judge")

    def inputs(self, seed: int) -> str:
        """The inputs that ``seed`` (0 to 2**63 - 1) draws, as the text of plain data."""
        with _as_torch_begins():
            return dumps(self.draw(torch.Generator().manual_seed(seed)))

    def observe(self, answer: Any, inputs: str) -> str:
        """Ask ``answer`` of ``inputs``; what came out, as the text of plain data."""
        with _as_torch_begins():
            return dumps(self.run(answer, **loads(inputs)))

    def findings(self, observed: str, inputs: str) -> list[Finding]:
        """Judge what came out, in one finding at least.

        ``observed`` may come from anybody; ``inputs`` must be ours.
        """
        try:
            came_out = loads(observed)
        except ValueError as error:
            return [Finding("what came out", False, str(error))]
        if not isinstance(came_out, dict):
            return [Finding("what came out", False, f"{_kind(came_out)}, not values by name")]
        with _as_torch_begins():
            if self.judge is not None:
                found = self.judge(came_out, **loads(inputs))
            else:
                found = compare(self.expect(**loads(inputs)), came_out)
        nothing = Finding("what came out", False, "the question has nothing to compare it with")
        return found or [nothing]

    def smallest_case(self, findings: list[Finding], observed: str, inputs: str) -> str:
        """The shortest program among those of the properties that are wrong; "" if there is none.

        The findings are those of the same ``observed`` and ``inputs``.
        """
        if self.program is None:
            return ""
        try:
            came_out = loads(observed)
        except ValueError:
            return ""
        if not isinstance(came_out, dict):
            return ""
        wrong = dict.fromkeys(found.of or found.what for found in findings if not found.passed)
        programs = [self.program(name, came_out.get(name), **loads(inputs)) for name in wrong]
        return min(filter(None, programs), key=lambda text: text.count("\n"), default="")


@contextmanager
def _as_torch_begins() -> Iterator[None]:
    """Float32, on the CPU and recorded, however a notebook has set PyTorch up."""
    dtype = torch.get_default_dtype()
    with torch.enable_grad(), ExitStack() as stack:
        if dtype != torch.float32:
            torch.set_default_dtype(torch.float32)
            stack.callback(torch.set_default_dtype, dtype)
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


class UnknownExercise(LookupError):
    """There is no exercise of that name here: it is a teacher's own, or the package is older."""


def question(name: str) -> Question:
    """The question ``"<exercise>.<question>"``.

    Raises:
        LookupError: there is none of that name.

    >>> question("two_losses.one_update").answer
    'one_update'
    """
    if not _NAME.fullmatch(name):
        raise LookupError(f"{name!r} is no question: name it '<exercise>.<question>'")
    exercise, _, attribute = name.partition(".")
    try:
        module = importlib.import_module(f"backward_twice.checks.{exercise}")
    except ModuleNotFoundError:
        raise UnknownExercise(f"there is no exercise {exercise!r}") from None
    found = getattr(module, attribute, None)
    if not isinstance(found, Question):
        raise LookupError(f"the exercise {exercise!r} has no question {attribute!r}")
    return found


def compare(expected: Plain, observed: Plain, what: str = "") -> list[Finding]:
    """Compare value by value, by name: exact, approximate, or the largest difference.

    Both are plain data.  Names that are not expected are ignored.  Numbers and tensors are right
    when equal within :data:`RTOL` and :data:`ATOL`; whole numbers, text and truth values when
    equal.

    >>> print(*compare({"w.grad": torch.tensor([1.0, 2.0])}, {"w.grad": torch.tensor([2.0, 4.0])}))
    ✗ wrong: w.grad: largest difference 2, at [1]; every value is 2 times the right one
    """
    return list(_compared(expected, observed, what))


def alike(expected: Plain, observed: Plain) -> bool:
    """Whether there is something to compare, and all of it is right; it ends at what is not.

    >>> alike({"loss": 1.0}, {"loss": 1.0}), alike({"loss": 1.0}, {}), alike({}, {"loss": 1.0})
    (True, False, False)
    """
    one = False
    for finding in _compared(expected, observed):
        if not finding.passed:
            return False
        one = True
    return one


def _compared(expected: Plain, observed: Plain, what: str = "") -> Iterator[Finding]:
    if isinstance(expected, dict):
        if not isinstance(observed, dict):
            yield Finding(what or "result", False, f"{_kind(observed)}, not values by name")
            return
        for name, value in expected.items():
            path = f"{what}[{name!r}]" if what else name
            if name in observed:
                for part in _compared(value, observed[name], path):
                    yield replace(part, of=path)
            else:
                yield Finding(path, False, "missing")
    elif isinstance(expected, list):
        if not isinstance(observed, list) or len(observed) != len(expected):
            yield _of_another_kind(expected, observed, what)
            return
        for i, (right, given) in enumerate(zip(expected, observed, strict=True)):
            yield from _compared(right, given, f"{what}[{i}]")
    elif isinstance(expected, torch.Tensor):
        yield _compare_tensors(expected, observed, what)
    else:
        yield _compare_values(expected, observed, what)


def _compare_tensors(expected: torch.Tensor, observed: Plain, what: str) -> Finding:
    if not isinstance(observed, torch.Tensor):
        return _of_another_kind(expected, observed, what)
    if observed.shape != expected.shape:
        return Finding(what, False, f"{_kind(observed)}, not {_kind(expected)}")
    if observed.dtype == expected.dtype and torch.equal(observed, expected):
        return Finding(what, True, "exact")
    right, given = expected.double(), observed.double()
    if not given.isfinite().all():
        return Finding(what, False, "not finite: it has inf or nan")
    difference = (given - right).abs()
    largest = f"largest difference {difference.max().item():.2g}"
    if torch.allclose(given, right, rtol=RTOL, atol=ATOL):
        return Finding(what, True, f"approximate, {largest}")
    place = [int(i) for i in torch.unravel_index(difference.argmax(), difference.shape)]
    at = f", at {place}" if place else ""
    return Finding(what, False, f"{largest}{at}{_pattern(right, given)}")


def _pattern(right: torch.Tensor, given: torch.Tensor) -> str:
    """What a wrong tensor has in common with the right one, if it is something simple."""
    if not right.any():
        return "; every value should be 0"
    if not given.any():
        return "; every value is 0"
    ratio = given[right != 0] / right[right != 0]
    first = ratio[0].item()
    # The ratio of one value to one other says something only if it is -1 or a whole number.
    telling = len(ratio) > 1 or abs(first - round(first)) < RTOL
    if telling and torch.allclose(ratio, ratio[0], rtol=RTOL) and not given[right == 0].any():
        return f"; every value is {first:.4g} times the right one"
    return ""


def _compare_values(expected: Plain, observed: Plain, what: str) -> Finding:
    number = isinstance(expected, int | float) and not isinstance(expected, bool)
    if number and isinstance(observed, torch.Tensor) and observed.numel() == 1:
        observed = observed.item()
    if number and isinstance(observed, int | float) and not isinstance(observed, bool):
        try:
            return _compare_numbers(expected, observed, what)
        except OverflowError:
            return Finding(what, False, "too large a number")
    if type(observed) is not type(expected):
        return _of_another_kind(expected, observed, what)
    if observed == expected:
        return Finding(what, True, "exact")
    return Finding(what, False, f"{_shown(observed)} is not right")


def _compare_numbers(expected: float, observed: float, what: str) -> Finding:
    if observed == expected:
        return Finding(what, True, "exact")
    if not math.isfinite(observed):
        return Finding(what, False, "not finite: it is inf or nan")
    difference = abs(observed - expected)
    if isinstance(expected, float) and difference <= ATOL + RTOL * abs(expected):
        return Finding(what, True, f"approximate, difference {difference:.2g}")
    times = observed / expected if expected else 0
    whole = times >= 2 and times == int(times)
    pattern = f"; it is {times:.0f} times the right one" if whole else ""
    return Finding(what, False, f"off by {difference:.6g}{pattern}")


def _of_another_kind(expected: Plain, observed: Plain, what: str) -> Finding:
    text = f"{_kind(observed)}, not {_kind(expected)}"
    if isinstance(observed, list) and len(observed) == 1:
        # torch.autograd.grad gives a tuple, even of one gradient.
        right = all(finding.passed for finding in compare(expected, observed[0]))
        text += f"; {'the right one is its only value' if right else 'take the value out of it'}"
    return Finding(what, False, text)


def _shown(value: Plain) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _kind(value: Plain) -> str:
    """In words, what sort of value this is."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {list(value.shape)}"
    if isinstance(value, list):
        return f"a tuple or list with {len(value)} in it"
    if value is None:
        return "nothing (None)"
    names = {bool: "a truth value", int: "a whole number", float: "a number", str: "text"}
    return names.get(type(value), "values by name")


def merged(draws: list[list[Finding]]) -> list[Finding]:
    """The findings of several draws as one list: of each property its first failure, if any."""
    by_name: dict[str, Finding] = {}
    for finding in (finding for findings in draws for finding in findings):
        known = by_name.get(finding.what)
        if known is None or (known.passed and not finding.passed):
            by_name[finding.what] = finding
    return list(by_name.values())


def _raised(error: Exception, answer: Any) -> str:
    """What was raised and, where the answer is a function, in which of its lines."""
    said = f"raised {type(error).__name__}: {error}"
    file = getattr(getattr(answer, "__code__", None), "co_filename", None)
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{said}\n  at its line: {own[-1].line}" if own else said


@dataclass(frozen=True, repr=False)
class Call:
    """A call of an answer, as a question makes it: call it with the answer to make it again."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self, answer: Callable[..., Any]) -> Any:
        return answer(*self.args, **self.kwargs)

    def __repr__(self) -> str:
        lines = [*map(repr, self.args), *(f"{name}={v!r}" for name, v in self.kwargs.items())]
        return "\n".join(lines)


class _Recorder:
    """An answer that gives nothing and notes with what it is called."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.calls.append(Call(args, kwargs))

    def apply(self, *args: Any) -> None:
        """A ``torch.autograd.Function`` is called so, and by what it gave: once is enough."""
        self(*args)
        raise StopIteration


def calls(name: str, *, seed: int = 0) -> list[Call]:
    """With what :func:`check` calls an answer to the question ``name``; all is made anew.

    ``calls("two_losses.one_update")[0]`` shows the first call when printed, has ``args`` and
    ``kwargs``, and makes the call when it is called with an answer.  Where a later call needs what
    an earlier one gives back, only the first is there.

    Args:
        seed: 0 or 1 for what :func:`check` asks, another number for other inputs.

    Raises:
        LookupError: there is no such question.

    >>> first, *_ = calls("which_need_saved.refuses")
    >>> first.args
    (['flatten', 'neg'],)
    """
    recorder, asked = _Recorder(), question(name)
    # It gives nothing: sooner or later that ends in an error.
    with _as_torch_begins(), suppress(Exception):
        asked.run(recorder, **loads(asked.inputs(seed)))
    return recorder.calls


def check(name: str, answer: Any, *, seed: int | None = None) -> None:
    """Ask the question ``name`` of ``answer``, here and now, and print what was found.

    Of an exercise that the installed package does not have, such as a teacher's own for an exam,
    only that is said.  Where an answer is right, it is asked once more as the grader will: of what
    the answer cell defines, with nothing but what that needs.  If that is not right, it is said.

    Args:
        name: ``"<exercise>.<question>"``.
        answer: what the answer cell defines.
        seed: draws other inputs than the public ones.

    Raises:
        AssertionError: a property is wrong; the message has a line for each.
        LookupError: there is no such question, though there is the exercise.
    """
    try:
        asked = question(name)
    except UnknownExercise:
        print(f"{name}: asked when it is graded; the package that is installed here cannot")
        return
    if _rehearsing:  # the answer cell itself checks an answer
        return
    draws, told = [], []
    for number in _PUBLIC_SEEDS if seed is None else (seed,):
        try:
            inputs = asked.inputs(number)
        except LookupError:
            print(f"{name}: not asked here, where the answer is only run")
            return
        try:
            observed = asked.observe(answer, inputs)
        except NotImplementedError:
            raise AssertionError(f"{name}: {asked.answer} is not written yet") from None
        except Exception as error:
            said = f"{name}: {asked.answer} {_raised(error, answer)}\n  {_route(name, number)}"
            raise AssertionError(said) from error
        draws.append(asked.findings(observed, inputs))
        told.append((observed, inputs))
    findings = merged(draws)
    wrong = sum(not finding.passed for finding in findings)
    lines = "\n".join(f"  {line}" for line in _listed(findings))
    if wrong:
        more = _explained(name, asked, draws, told, seed)
        raise AssertionError(
            f"{name}: {wrong} of {len(findings)} properties wrong\n{lines}\n{more}"
        )
    print(f"{name}: all {len(findings)} properties right\n{lines}")
    if why := _not_graded(name, asked, answer, inputs):
        print(f"But it would not be graded so: {why}")


MOST_LISTED = 12
"""Of more findings than these only what is wrong is listed one by one."""
_MOST_WRONG = 6


def _listed(findings: list[Finding]) -> list[str]:
    """A line for each finding; of many only those that are wrong, and not all of them."""
    if len(findings) <= MOST_LISTED:
        return [str(finding) for finding in findings]
    wrong = [str(finding) for finding in findings if not finding.passed]
    right, more = len(findings) - len(wrong), len(wrong) - _MOST_WRONG
    lines = wrong[:_MOST_WRONG] + ([f"✗ wrong: {more} more"] if more > 0 else [])
    return lines + ([f"✓ right: {right}"] if right else [])


def _route(name: str, seed: int) -> str:
    """The one way to the inputs, told wherever something is wrong."""
    return f"What it was called with: calls({name!r}{f', seed={seed}' if seed else ''})"


def _explained(
    name: str,
    asked: Question,
    draws: list[list[Finding]],
    told: list[tuple[str, str]],
    seed: int | None,
) -> str:
    """What a wrong answer looks like, its smallest case as a program, and the way to its inputs."""
    from backward_twice.misconceptions import recognised  # it asks questions, too

    observed, inputs = zip(*told, strict=True)
    lines = [f"  {LOOKS_LIKE} {belief}" for belief in recognised(name, asked, observed, inputs)]
    failed = next(i for i, findings in enumerate(draws) if not all(f.passed for f in findings))
    case = asked.smallest_case(draws[failed], *told[failed])
    if case:
        lines += [f"  {SMALLEST_CASE}", *(f"    {line}" for line in case.splitlines())]
    number = seed if seed is not None else _PUBLIC_SEEDS[failed]
    return "\n".join([*lines, f"  {_route(name, number)}"])


LOOKS_LIKE = "It comes out as from this belief:"
SMALLEST_CASE = "The smallest case that is wrong, as a program:"
"""How what is found beside the findings is introduced, in the notebook and by the grader."""

_rehearsing: list[str] = []


def _not_graded(name: str, asked: Question, answer: Any, inputs: str) -> str:
    """Why the grader would find something else than was found here; "" if it would not."""

    def asks(again: Any) -> str:
        findings = asked.findings(asked.observe(again, inputs), inputs)
        return next((str(finding) for finding in findings if not finding.passed), "")

    _rehearsing.append(name)
    try:
        test_cell = name.partition(".")[2].replace("_", "-")
        return why_not_graded(asked.answer, answer, test_cell, asks)
    finally:
        _rehearsing.pop()
