"""The parameters that the program trains, and the optimizer of each."""

import gc
import math
from collections.abc import Collection, Iterable, Set
from functools import cached_property

import torch

from gradtrace._torch import version_of
from gradtrace.autograd.tensors import storage_of, storages_in
from gradtrace.watching.record import BackwardCall, Timeline, parameters_of


class Training:
    """The optimizers that hold any of the given leaves, which are compared by their storages.

    Other optimizers may be left over from an earlier cell or test. If no optimizer holds any of
    them, the program makes the updates itself, so every leaf that was changed counts as trained.
    """

    def __init__(self, timeline: Timeline, leaves: Set[int]):
        self._timeline = timeline
        self._leaves = leaves

    @cached_property
    def optimizers(self) -> list[tuple[torch.optim.Optimizer, frozenset[int]]]:
        """Each optimizer with the storages of its parameters."""
        kind = torch.optim.Optimizer
        optimizers = (o for o in gc.get_objects() if issubclass(type(o), kind))
        pairs = ((o, storages_of(o)) for o in optimizers if "param_groups" in vars(o))
        return [(o, storages) for o, storages in pairs if not storages.isdisjoint(self._leaves)]

    def held(self, leaves: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """Return the leaves that an optimizer holds."""
        held = frozenset().union(*(storages for _, storages in self.optimizers))
        return [leaf for leaf in leaves if storage_of(leaf)[0] in held]

    def trained(self, leaves: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """Return the leaves that an optimizer holds, or, without one, those changed in place."""
        return self.held(leaves) if self.optimizers else [*filter(version_of, leaves)]

    @property
    def one_holds_all(self) -> bool:
        return any(self._leaves <= storages for _, storages in self.optimizers)

    def owners(self, storages: Collection[int]) -> list[torch.optim.Optimizer]:
        return [o for o, owned in self.optimizers if not owned.isdisjoint(storages)]

    def has_another(self, optimizers: Iterable[torch.optim.Optimizer], reached: Set[int]) -> bool:
        """Whether an optimizer that shares no parameter with these holds any of ``reached``."""
        shared = frozenset().union(*map(storages_of, optimizers))
        return any(own & reached and not own & shared for _, own in self.optimizers)

    def stepped_since(
        self, call: BackwardCall, until: float = math.inf
    ) -> list[torch.optim.Optimizer]:
        """Return the optimizers of a call's leaves that stepped after it, up to call ``until``."""
        steps = (s for s in self._timeline.steps if call.number <= s.last_call <= until)
        optimizers = (o for o in dict.fromkeys(step.optimizer() for step in steps) if o is not None)
        return [o for o in optimizers if not call.leaves or call.leaves & storages_of(o)]

    def changed_by_steps(self, call: int, storages: Collection[int]) -> bool:
        """Whether a step after this call has changed one of these storages."""
        later = [step for step in self._timeline.steps if step.last_call >= call]
        # A plain watch does not record what a step changed.
        is_deleted = any(step.storages is None and step.optimizer() is None for step in later)
        return is_deleted or any(step.storages and step.storages & {*storages} for step in later)

    def changed_since(self, call: BackwardCall, leaves: Iterable[torch.Tensor]) -> bool:
        """Whether a recorded change of any of these leaves is later than that backward call."""
        return any(
            edit.last_call >= call.number
            for leaf in leaves
            for edit in self._timeline.edits_since(-1, storage_of(leaf)[0])
        )


def storages_of(optimizer: torch.optim.Optimizer) -> frozenset[int]:
    return storages_in(parameters_of(optimizer))


def is_cleared(leaf: torch.Tensor) -> bool:
    return leaf.grad is None or not leaf.grad.detach().any()
