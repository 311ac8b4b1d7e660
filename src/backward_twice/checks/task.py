"""A question of an exercise: its task, its inputs, and how an answer is judged.

Inputs are drawn from a seed, and the result of an answer is compared with the right one.  In the
notebook all of this happens in one process (:func:`check`); the grader draws other inputs, calls
the answer in a sandbox and judges outside it.
"""

import importlib
import os
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

import backward_twice
import gradtrace
from backward_twice.checks.comparison import Finding, compare, kind_of
from backward_twice.checks.generator import InputGenerator
from backward_twice.checks.plain import Plain, dumps, loads
from backward_twice.misconceptions import with_change

_RESULT = "what came out"
_NAME = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")


def _ask(answer: Callable[..., Plain], **inputs: Plain) -> dict[str, Plain]:
    """Return the answer's results by name; a result that is no dict is named ``result``."""
    result = answer(**inputs)
    return result if isinstance(result, dict) else {"result": result}


@dataclass(frozen=True)
class Task:
    """The task of one answer; inputs and results are plain data by name."""

    answer: str  # the name that the learner's answer cell defines
    draw: Callable[[InputGenerator], dict[str, Plain]]  # returns the inputs
    # Takes the inputs, returns the right results; by default those of the stored solution.
    expect: Callable[..., dict[str, Plain]] | None = None
    # Takes the answer and the inputs, returns the results.  It may build the objects that the
    # answer works on, such as modules.  The learner's code beside it can read and change it.
    run: Callable[..., dict[str, Plain]] = _ask
    # Takes a property's name, its result (None if there is none) and the inputs, returns the
    # property's case as a program of a few lines, or "".
    program: Callable[..., str] | None = None
    clues: Sequence[str] = ()  # names of results that tell misconceptions apart; not judged
    name: str = ""  # "<exercise>.<question>", set by question()

    def inputs(self, seed: int) -> str:
        """Return the inputs that ``seed`` (0 to 2**63 - 1) draws, as the text of plain data."""
        with as_torch_begins():
            return dumps(self.draw(InputGenerator().manual_seed(seed)))

    def observe(self, answer: Any, inputs: str) -> str:
        """Call ``answer`` with ``inputs``; return the results as the text of plain data.

        Raises:
            UnusableResult: the answer raised nothing, but its result could not be used.
            Exception: any error that the answer raised.
        """
        called = answer if isinstance(answer, type) else _Called(answer)
        with as_torch_begins():
            try:
                return dumps(self.run(called, **loads(inputs)))
            except Exception as error:
                if learner_frames(error):
                    raise
                raise UnusableResult(_unusable(self.answer, called, error)) from error

    def right(self, inputs: str) -> dict[str, Plain]:
        """Return the right results; the grader calls this outside the sandbox."""
        if self.expect is None:
            with torch.random.fork_rng(devices=[]):  # the learner's random numbers stay
                results = loads(self.observe(_solution(self.name, self.answer), inputs))
            return {name: value for name, value in results.items() if name not in self.clues}
        with as_torch_begins():
            return self.expect(**loads(inputs))

    def findings(self, observed: str, inputs: str) -> list[Finding]:
        """Return at least one finding; ``observed`` is not trusted, but ``inputs`` must be."""
        try:
            results = _results(observed)
        except ValueError as error:
            return [Finding(_RESULT, False, str(error))]
        findings = compare(self.right(inputs), results)
        return findings or [Finding(_RESULT, False, "the question compares nothing with it")]

    def smallest_case(self, observed: str, inputs: str) -> str:
        """Return the shortest case of a wrong property, as a program; "" if there is none."""
        if self.program is None:
            return ""
        try:
            results = _results(observed)
        except ValueError:
            return ""
        findings = self.findings(observed, inputs)
        wrong = dict.fromkeys(f.of or f.what for f in findings if not f.passed)
        programs = [self.program(name, results.get(name), **loads(inputs)) for name in wrong]
        return min(filter(None, programs), key=lambda text: text.count("\n"), default="")


@cache
def _solution(question: str, name: str) -> Any:
    """Return what the answer cell of the stored solution defines as ``name``."""
    return with_change(question, "solution", ()).answer(name)


def _results(observed: str) -> dict[str, Plain]:
    """Return the results by name; raise ValueError if the text contains anything else."""
    results = loads(observed)
    if not isinstance(results, dict):
        raise ValueError(f"{kind_of(results)}, not values by name")
    return results


class UnusableResult(Exception):
    """An answer raised nothing, but its result lacks the form that the question requires."""


class _Called:
    """An answer, with a description of its last result; the result itself is not kept alive."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self.answer = answer
        self.returned = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self.answer(*args, **kwargs)
        self.returned = kind_of(result)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.answer, name)


def _unusable(name: str, answer: Any, error: Exception) -> str:
    returned = getattr(answer, "returned", "")
    if returned == kind_of(None):
        return f"{name} returned nothing (None), but its result is needed: is a return missing?"
    subject = f"{name} returned {returned}, which" if returned else name
    return f"{subject} cannot be used as the task says: {type(error).__name__}: {error}"


_LIBRARIES = tuple(
    f"{Path(file).parent}{os.sep}"
    for file in (torch.__file__, gradtrace.__file__, os.__file__, backward_twice.__file__)
)


def is_learners(file: str) -> bool:
    """Whether a file belongs to neither the course, PyTorch, gradtrace nor Python's library."""
    # Outside a virtual environment, Python's library contains the installed packages, too.
    return not file.startswith((*_LIBRARIES, "<frozen"))


def learner_frames(error: Exception) -> list[traceback.FrameSummary]:
    """Return an error's frames in the learner's code, outermost first; none for a check's error."""
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if is_learners(frame.filename)]


@contextmanager
def as_torch_begins() -> Iterator[None]:
    """Run the context with PyTorch's defaults: float32, on the CPU, and gradients recorded."""
    dtype = torch.get_default_dtype()
    with torch.enable_grad(), ExitStack() as stack:
        if dtype != torch.float32:
            torch.set_default_dtype(torch.float32)
            stack.callback(torch.set_default_dtype, dtype)
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


class UnknownExercise(LookupError):
    """No exercise has this name: it is a teacher's own, or newer than the installed package."""


def question(name: str) -> Task:
    """Return the question ``"<exercise>.<question>"``.

    Raises:
        LookupError: there is no question of this name.

    >>> question("two_losses.one_update").answer
    'one_update'
    """
    if not _NAME.fullmatch(name):
        raise LookupError(f"{name!r} is not a question: name it '<exercise>.<question>'")
    exercise, _, attribute = name.partition(".")
    try:
        module = importlib.import_module(f"backward_twice.checks.{exercise}")
    except ModuleNotFoundError:
        raise UnknownExercise(f"there is no exercise {exercise!r}") from None
    entry = getattr(module, attribute, None)
    if not isinstance(entry, Task):
        raise LookupError(f"the exercise {exercise!r} has no question {attribute!r}")
    return replace(entry, name=name)
