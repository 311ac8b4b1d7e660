"""A task that asks its answer about several cases, such as programs, and judges each by itself."""

from collections.abc import Callable
from functools import partial
from typing import Any

from backward_twice.checks.generator import InputGenerator
from backward_twice.checks.plain import Plain
from backward_twice.checks.task import Task

Case = Any
"""Plain data: a dict, which functions take by name, or anything else, which they take as it is."""


def task_of_cases(
    answer: str,
    kind: str,
    draw: Callable[[InputGenerator], list[Case]],
    expect: Callable[..., Plain] | None = None,
    *,
    ask: Callable[..., Plain] | None = None,
    program: Callable[..., str] | None = None,
    name: Callable[..., str] | None = None,
) -> Task:
    """Return a task that asks its answer about each drawn case, and judges each case separately.

    Args:
        kind: names the cases: "program 1", "program 2", …
        expect: takes a case, returns the right result; by default the stored solution's.
        ask: takes the answer and a case, returns the result; by default the answer's.
        program: takes a result and a case, returns the case as a program of a few lines, or "".
        name: takes a case, returns its name in place of kind and number.
    """
    key = f"{kind}s"

    def named(cases: list[Case]) -> dict[str, Case]:
        if name is None:
            return {f"{kind} {number}": case for number, case in enumerate(cases, 1)}
        return {_applied(name, case): case for case in cases}

    def results(function: Callable[..., Plain], **inputs: list[Case]) -> dict[str, Plain]:
        return _by_property({n: _applied(function, c) for n, c in named(inputs[key]).items()})

    def run(called: Callable[..., Plain], **inputs: list[Case]) -> dict[str, Plain]:
        return results(partial(ask, called) if ask else called, **inputs)

    def program_of(property_name: str, value: Plain, **inputs: list[Case]) -> str:
        cases = named(inputs[key])
        case = property_name if property_name in cases else property_name.partition(": ")[0]
        return _applied(program, cases[case], value)

    truth = partial(results, expect) if expect else None
    programs = program_of if program else None
    return Task(answer, lambda draws: {key: draw(draws)}, truth, run, programs)


def _applied(function: Callable[..., Any], case: Case, *before: Any) -> Any:
    """Call a function with ``before``, then a case; a dict's items become keyword arguments."""
    return function(*before, **case) if isinstance(case, dict) else function(*before, case)


def _by_property(results: dict[str, Plain]) -> dict[str, Plain]:
    """Flatten the results: each item of a dict becomes a property, such as "program 1: cause"."""
    by_property = {}
    for name, result in results.items():
        if isinstance(result, dict):
            by_property |= {f"{name}: {part}": value for part, value in result.items()}
        else:
            by_property[name] = result
    return by_property
