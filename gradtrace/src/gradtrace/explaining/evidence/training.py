"""Which parameters the program trains, and which optimizer trains which."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable
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


def _storages(optimizer: torch.optim.Optimizer) -> frozenset[int]:
    return frozenset(
        storage_of(parameter)[0]
        for group in optimizer.param_groups
        for parameter in group["params"]
    )
