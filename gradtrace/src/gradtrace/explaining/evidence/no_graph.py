"""A backward was called on a tensor without a graph; a strict watch saw where it was cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import torch

from gradtrace.explaining.evidence import carriers
from gradtrace.explaining.evidence.base import Evidence
from gradtrace.watching.record import Cut


class NoGraphEvidence(Evidence):
    """``cut`` is where the first output that has no gradient lost it."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        outputs = (o for o in self.outputs if isinstance(o, torch.Tensor) and not o.requires_grad)
        output = next(outputs, None)
        self.cut = None if output is None else self._cut_of(output)
        self.began_at = None if self.cut is None else self.cut.location

    def _cut_of(self, output: torch.Tensor) -> Cut | None:
        """What is known of this tensor; else where numbers last left, in this iteration."""
        known = self.timeline.cuts.get(output)
        before = [call.number for call in self.timeline.calls if call is not self.call]
        recent = self.timeline.left_after == max(before, default=0)
        return known or (self.timeline.left if recent else None)

    @property
    def seen(self) -> bool:
        return self.cut is not None and self.cut.shape is None

    @property
    def names(self) -> Mapping[str, str]:
        name = None if self.cut is None else self.cut.function
        if self.cut_by_freezing:
            off = (one for one in self.variables if self._is_frozen(one.value))
            name = carriers.name_of(off)
        return {} if name is None else {"it": name}

    def _is_frozen(self, tensor: torch.Tensor) -> bool:
        cut = self.timeline.cuts.get(tensor)
        frozen = cut is not None and cut.how == "frozen"
        return frozen and isinstance(tensor, torch.nn.Parameter)

    def _was(self, how: str) -> bool:
        return self.cut is not None and self.cut.how == how

    cut_by_detach = property(lambda self: self._was("detach") or self._was("data"))
    cut_by_copy = property(lambda self: self._was("copy"))
    cut_by_update = property(lambda self: self._was("update"))
    cut_by_region = property(lambda self: self._was("region"))
    cut_by_first_order = property(lambda self: self._was("first_order"))
    cut_by_operation = property(lambda self: self._was("operation"))
    cut_by_function = property(lambda self: self._was("function"))
    cut_by_checkpoint = property(lambda self: self._was("checkpoint"))
    cut_by_freezing = property(lambda self: self._was("frozen"))

    @cached_property
    def all_frozen(self) -> bool:
        """Whether no parameter that the variables reach requires grad, and there are some."""
        parameters = [*self._parameters()]
        return bool(parameters) and not any(one.requires_grad for one in parameters)

    @cached_property
    def gradients_are_off(self) -> bool:
        """Whether gradients are switched off where backward was called."""
        return not torch.is_grad_enabled()

    def _parameters(self) -> Iterator[torch.Tensor]:
        return (one.value for one in self.variables if isinstance(one.value, torch.nn.Parameter))
