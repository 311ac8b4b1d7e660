"""What is known of one run of a program: plain data, which goes from process to process.

No torch is needed to read it, so the command that edits and judges starts at once.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A line of the user's program that was running, and the function it is in."""

    file: str
    line: int
    function: str


class Sample(NamedTuple):
    """Some elements of a tensor, evenly spread, and the Euclidean norm of all of them."""

    norm: float
    values: tuple[float, ...]

    def minus(self, other: Sample | None) -> Sample:
        """The difference; its norm is that of the elements that were kept."""
        if other is None or len(other.values) != len(self.values):
            return self
        values = tuple(a - b for a, b in zip(self.values, other.values, strict=True))
        return Sample(math.hypot(*values), values)

    def distance(self, other: Sample) -> float:
        """How far apart, as a share of the larger one: 0 for equal, at most 2."""
        if len(self.values) != len(other.values):
            return 2.0
        if not (self.is_finite and other.is_finite):
            return 0.0 if str(self) == str(other) else 2.0
        apart = math.hypot(*self.minus(other).values)
        size = max(math.hypot(*self.values), math.hypot(*other.values))
        whole = abs(self.norm - other.norm) / max(self.norm, other.norm, 1e-30)
        return max(apart / size if size else 0.0, whole)

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.norm) and all(map(math.isfinite, self.values))


@dataclass
class Call:
    """One backward.  Parameters are named by their keys (:attr:`Run.names`).

    ``number`` counts from 1.  ``operations`` counts the types of the nodes that were made since the
    call before from the same ``site`` and lead to a leaf without passing older ones; ``size``
    counts all nodes, ``oldest`` is the number of the oldest one, ``held`` the bytes of saved
    tensors.  ``reached`` are the leaves of the graph, ``contributed`` what the call added to their
    ``.grad``.  ``stale`` are those that were written after this graph had used them and another
    backward had run.  ``upstream`` are pairs of optimizers (x, y): an operation of y's parameters
    takes what x's parameters made.  ``accumulates`` is False for ``autograd.grad``, which adds
    nothing to ``.grad``.  ``contains`` are the calls whose losses are a part of this one's.
    """

    number: int
    site: tuple[Place, ...]
    text: str
    losses: tuple[Sample, ...]
    size: int
    oldest: int
    held: int
    operations: Counter[str]
    reached: frozenset[str]
    stale: frozenset[str]
    upstream: frozenset[tuple[int, int]]
    accumulates: bool = True
    contains: frozenset[int] = frozenset()
    contributed: dict[str, Sample] = field(default_factory=dict)
    failed: bool = False


@dataclass
class Cleared:
    """``zero_grad`` of these optimizers."""

    optimizers: frozenset[int]


@dataclass
class Stepped:
    """A step: of each parameter the gradient it used, and the calls whose gradients are in it."""

    optimizer: int
    gradients: dict[str, Sample]
    held: dict[str, tuple[int, ...]]
    closure: bool  # whether the step itself runs backward


@dataclass
class Optimizer:
    """An optimizer by the order in which they were made, what the program calls it, what it has."""

    name: str
    keys: tuple[str, ...]


class Carrier(NamedTuple):
    """A variable that leads to freed nodes.

    ``name`` is its whole path (``state[0]``), ``root`` the variable, ``frame`` the line that ran;
    ``kind`` is ``"tensor"``, the type of the container that it is in, or ``"nested"``.
    """

    name: str
    root: str
    kind: str
    frame: Place


@dataclass
class Run:
    """What a run did.

    ``status`` is ``"raised"``, ``"ended"``, or ``"enough"`` or ``"time"`` when it was stopped.
    ``names`` are the parameters as the program calls them, by key; ``gradients`` what is in their
    ``.grad`` at the end; ``written`` those that the program itself changed after a backward;
    ``remade`` those that another tensor stood for since the backward of that number.
    """

    status: str = "ended"
    error: str | None = None
    raised: tuple[Place, ...] = ()
    torch: str = ""
    events: list[Call | Cleared | Stepped] = field(default_factory=list)
    optimizers: list[Optimizer] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    gradients: dict[str, Sample] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    remade: dict[str, int] = field(default_factory=dict)
    carriers: list[Carrier] = field(default_factory=list)
    variables: dict[Place, dict[str, str]] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    diagnosis: dict[str, Any] | None = None
    explanation: str = ""
    files: list[str] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def calls(self) -> list[Call]:
        return [event for event in self.events if isinstance(event, Call)]

    @property
    def steps(self) -> list[Stepped]:
        return [event for event in self.events if isinstance(event, Stepped)]

    @property
    def failing(self) -> int:
        """The number of the backward that failed; of an error elsewhere, of the next one."""
        if self.status != "raised":
            return len(self.calls) + 1
        return len(self.calls) + (0 if self.calls and self.calls[-1].failed else 1)

    def owners(self, key: str) -> set[int]:
        """The optimizers that have this parameter."""
        return {i for i, one in enumerate(self.optimizers) if key in one.keys}


class Limits(NamedTuple):
    """When a run is stopped: after so many backward calls, or seconds; None is never."""

    failing: int | None = None
    beyond: int = 8
    seconds: float = 120.0
