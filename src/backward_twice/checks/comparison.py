"""Comparison of a result with the right one, which gives a finding for each property."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from backward_twice.checks.plain import Plain

RTOL = 1e-4
"""Relative tolerance of a comparison: more than the order of a sum changes in float32."""
ATOL = 1e-6
"""Absolute tolerance of a comparison."""


@dataclass(frozen=True)
class Finding:
    """The judgement of one property of an answer: its name, and the difference as a sentence."""

    what: str
    passed: bool
    text: str
    of: str = ""  # the name of the result that contains the property, such as a list

    def __str__(self) -> str:
        return f"{'✓ right' if self.passed else '✗ wrong'}: {self.what}: {self.text}"


def compare(expected: Plain, observed: Plain) -> list[Finding]:
    """Compare each named value with the right one; return a finding for it or each of its items.

    Both are plain data.  Names that are not expected are ignored.  Floating-point numbers and
    tensors must be equal within :data:`RTOL` and :data:`ATOL`; integers, text and booleans exactly.

    >>> print(*compare({"w.grad": torch.tensor([1.0, 2.0])}, {"w.grad": torch.tensor([2.0, 4.0])}))
    ✗ wrong: w.grad: largest difference 2, at [1]; every value is 2 times the right one
    """
    return list(_compared(expected, observed))


def alike(expected: Plain, observed: Plain) -> bool:
    """Whether at least one value is compared, and all of them are right.

    >>> alike({"loss": 1.0}, {"loss": 1.0}), alike({"loss": 1.0}, {}), alike({}, {"loss": 1.0})
    (True, False, False)
    """
    findings = _compared(expected, observed)
    first = next(findings, None)
    return first is not None and first.passed and all(finding.passed for finding in findings)


def _compared(expected: Plain, observed: Plain, what: str = "") -> Iterator[Finding]:
    if isinstance(expected, dict):
        if not isinstance(observed, dict):
            yield Finding(what or "result", False, f"{kind_of(observed)}, not values by name")
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
        for i, (right, value) in enumerate(zip(expected, observed, strict=True)):
            yield from _compared(right, value, f"{what}[{i}]")
    elif isinstance(expected, torch.Tensor):
        yield _compare_tensors(expected, observed, what)
    else:
        yield _compare_values(expected, observed, what)


def _compare_tensors(expected: torch.Tensor, observed: Plain, what: str) -> Finding:
    if not isinstance(observed, torch.Tensor):
        return _of_another_kind(expected, observed, what)
    if observed.shape != expected.shape:
        return Finding(what, False, f"{kind_of(observed)}, not {kind_of(expected)}")
    if observed.dtype == expected.dtype and torch.equal(observed, expected):
        return Finding(what, True, "exact")
    right, values = expected.double(), observed.double()
    if not values.isfinite().all():
        return Finding(what, False, "not finite: it has inf or nan")
    difference = (values - right).abs()
    largest = f"largest difference {difference.max().item():.2g}"
    if torch.allclose(values, right, rtol=RTOL, atol=ATOL):
        return Finding(what, True, f"approximate, {largest}")
    place = [int(i) for i in torch.unravel_index(difference.argmax(), difference.shape)]
    at = f", at {place}" if place else ""
    return Finding(what, False, f"{largest}{at}{_pattern(right, values)}")


def _pattern(right: torch.Tensor, values: torch.Tensor) -> str:
    """Return a simple relation between a wrong tensor and the right one, if there is any."""
    if not right.any():
        return "; every value should be 0"
    if not values.any():
        return "; every value is 0"
    ratio = values[right != 0] / right[right != 0]
    first = ratio[0].item()
    # The ratio of one value to one other says something only if it is -1 or a whole number.
    telling = len(ratio) > 1 or abs(first - round(first)) < RTOL
    if telling and torch.allclose(ratio, ratio[0], rtol=RTOL) and not values[right == 0].any():
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
    return Finding(what, False, f"expected {_shown(expected)}, got {_shown(observed)}")


def _compare_numbers(expected: float, observed: float, what: str) -> Finding:
    if observed == expected:
        return Finding(what, True, "exact")
    if not math.isfinite(observed):
        return Finding(what, False, "not finite: it is inf or nan")
    difference = abs(observed - expected)
    if isinstance(expected, float) and difference <= ATOL + RTOL * abs(expected):
        return Finding(what, True, f"approximate, difference {difference:.2g}")
    times = observed / expected if expected else 0
    is_multiple = times >= 2 and times == int(times)
    pattern = f"; it is {times:.0f} times the right one" if is_multiple else ""
    return Finding(what, False, f"expected {expected:.6g}, got {observed:.6g}{pattern}")


def _of_another_kind(expected: Plain, observed: Plain, what: str) -> Finding:
    text = f"{kind_of(observed)}, not {kind_of(expected)}"
    if isinstance(observed, list) and len(observed) == 1:
        # torch.autograd.grad gives a tuple, even of one gradient.
        right = all(finding.passed for finding in compare(expected, observed[0]))
        text += f"; {'the right value is its only one' if right else 'return its only value'}"
    return Finding(what, False, text)


def _shown(value: Plain) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def kind_of(value: Any) -> str:
    """Describe the kind of a value, such as "a tensor of shape [2]"."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {list(value.shape)}"
    if isinstance(value, list | tuple):
        return f"a tuple or list of length {len(value)}"
    if value is None:
        return "nothing (None)"
    names = {bool: "a truth value", int: "a whole number", float: "a number", str: "text"}
    names[dict] = "values by name"
    return names.get(type(value), f"an object of type {type(value).__name__}")


def merged(draws: list[list[Finding]]) -> list[Finding]:
    """Join the findings of several draws: keep the first failure of each property, if any."""
    by_name: dict[str, Finding] = {}
    for finding in (finding for findings in draws for finding in findings):
        earlier = by_name.get(finding.what)
        if earlier is None or (earlier.passed and not finding.passed):
            by_name[finding.what] = finding
    return list(by_name.values())
