"""Which parameters the program trains, and which optimizer trains which."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

import torch

from gradtrace.autograd.tensors import storage_of
from gradtrace.watching.record import BackwardCall, Timeline


class Training:
    """The optimizers that hold any of some leaves, and what else they hold, by storage.

    Others may be left over from what ran before, in a notebook or a test.  Where there is none, a
    program updates by hand: then every leaf that was changed is trained.
    """

    def __init__(self, timeline: Timeline, leaves: Collection[int]):
        self._timeline = timeline
        self._leaves = leaves

    @cached_property
    def optimizers(self) -> list[tuple[torch.optim.Optimizer, frozenset[int]]]:
        """Each optimizer with the storages of its parameters."""
        kind = torch.optim.Optimizer
        found = (one for one in gc.get_objects() if issubclass(type(one), kind))
        held = ((one, _storages(one)) for one in found if "param_groups" in vars(one))
        return [(one, storages) for one, storages in held if not storages.isdisjoint(self._leaves)]

    @property
    def known(self) -> bool:
        return bool(self.optimizers)

    def trained(self, leaves: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """Those of the leaves that are trained."""
        if self.known:
            held = frozenset().union(*(storages for _, storages in self.optimizers))
            return [leaf for leaf in leaves if storage_of(leaf)[0] in held]
        return [leaf for leaf in leaves if leaf._version > 0]

    def owners(self, storages: Collection[int]) -> list[torch.optim.Optimizer]:
        """The optimizers that hold any of these."""
        return [one for one, held in self.optimizers if not held.isdisjoint(storages)]

    def stepped_since(self, call: BackwardCall) -> list[torch.optim.Optimizer]:
        """The optimizers that have made a step after that backward."""
        since = [step.optimizer() for step in self._timeline.steps if step.last_call >= call.number]
        return [one for one, _ in self.optimizers if any(one is other for other in since)]

    def changed_since(self, call: BackwardCall, leaves: Iterable[torch.Tensor]) -> bool:
        """Whether any of these leaves was changed after that backward, as far as it was seen."""
        return any(
            edit.last_call >= call.number
            for leaf in leaves
            for edit in self._timeline.edits_since(-1, storage_of(leaf)[0])
        )


def upstream(
    owners: Mapping[int, Collection[int]], links: Sequence[Sequence[int]]
) -> set[tuple[int, int]]:
    """Pairs (x, y): an operation on y's parameters takes what x's parameters made.

    ``owners`` are those of each leaf, by its place in the graph.
    """
    reached: list[set[int]] = [set(owners.get(i, ())) for i in range(len(links))]
    for i in leaves_first(links):
        for j in links[i]:
            reached[i] |= reached[j]
    pairs = set()
    for successors in links:
        for j in successors:
            chain = j
            while len(links[chain]) == 1:  # a transposed weight
                chain = links[chain][0]
            others = set().union(*(reached[k] for k in successors if k != j), set())
            pairs |= {(x, y) for x in others for y in owners.get(chain, ()) if x != y}
    return pairs


def leaves_first(links: Sequence[Sequence[int]]) -> list[int]:
    """The nodes in an order in which each comes after its successors."""
    order: list[int] = []
    done = [False] * len(links)
    for start in range(len(links)):
        pending = [(start, False)]
        while pending:
            i, ready = pending.pop()
            if ready:
                order.append(i)
            elif not done[i]:
                done[i] = True
                pending.append((i, True))
                pending.extend((j, False) for j in links[i] if not done[j])
    return order


def _storages(optimizer: torch.optim.Optimizer) -> frozenset[int]:
    return frozenset(
        storage_of(parameter)[0]
        for group in optimizer.param_groups
        for parameter in group["params"]
    )
