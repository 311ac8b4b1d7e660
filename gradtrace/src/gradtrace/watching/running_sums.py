"""Totals that one line adds to in every iteration."""

import weakref
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from gradtrace import _torch, _torch_hooks
from gradtrace.autograd.frames import Location

SUM_TAG = "gradtrace.sum"  # a key of node.metadata: the Sum that the node adds to
LONG = 10  # additions that make a sum worth following
_SCALING = ("MulBackward0", "DivBackward0", "NegBackward0")


@dataclass(eq=False)
class Sum:
    """A total that one line adds to, stored in the metadata of the additions' nodes."""

    location: Location | None
    first_call: int  # the number of the last backward call before the first addition
    count: int = 0  # of the iterations that added to it
    sequence_nr: int = -1  # of the last addition
    last_call: int = 0  # the same before the last addition
    is_reported: bool = False  # or will be, if it is freed unused


class Sums:
    """The long sums that are alive, and the lines of sums that were freed before any use."""

    def __init__(self) -> None:
        self._alive: dict[int, weakref.ref[Sum]] = {}
        self.died: list[Location | None] = []  # where sums were made that no backward ran through

    def add(self, total: Sum, reports_death: bool) -> None:
        """Follow a sum until it is used, or freed, which ``died`` shows if ``reports_death``."""
        locations, alive = self.died, self._alive
        location, key = total.location, id(total)

        def died(_: weakref.ref[Sum]) -> None:
            if alive.pop(key, None) is not None and reports_death:
                locations.append(location)

        alive[key] = weakref.ref(total, _torch_hooks.never_compiled(died))

    def alive(self) -> dict[int, Sum]:
        """Return the sums that are alive, by the number of their last addition."""
        totals = [reference() for reference in list(self._alive.values())]
        return {total.sequence_nr: total for total in totals if total is not None}

    def used(self, numbers: Container[int]) -> None:
        """Stop following the sums whose last additions have these numbers: a loss used them."""
        for number, total in self.alive().items():
            if number in numbers:
                self._alive.pop(id(total), None)


def with_scaled(node: _torch.LiveNode, *kinds: str) -> list[_torch.LiveNode]:
    """Return the node and the nodes that it only scales; ``kinds`` with one input count, too."""
    scaled = [node]
    for scaling in scaled:
        if type(scaling).__name__ in (*_SCALING, *kinds):
            inputs = [inner for inner, _ in _torch.edges_of(scaling) if inner is not None]
            scaled += inputs if len(inputs) == 1 else []
    return scaled


def adds_the_same_parameters(node: Any, total: Sum) -> bool:
    """Whether the terms of a total share leaves, as the losses of iterations do."""
    leaves, additions = set(), 0
    pending = [node]
    for adding in pending:
        for successor, _ in _torch.edges_of(adding):
            successor = with_scaled(successor)[-1]
            if successor is None:
                continue
            if not isinstance(successor, _torch.LEAF) and successor.metadata.get(SUM_TAG) is total:
                pending.append(successor)
                continue
            additions += 1
            while following := next((n for n, _ in _torch.edges_of(successor) if n), None):
                successor = following
            leaves.add(successor)
    return len(leaves) <= additions // 2
