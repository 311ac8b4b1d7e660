"""A backward was called on a tensor without a graph; a strict watch saw where it was cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import torch

from gradtrace import _torch
from gradtrace.autograd import lost_graph, source
from gradtrace.autograd.frames import place_of
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
        self._was_seen = self.cut is not None and self.cut.shape is None
        if self.cut is None and not self.timeline.observed and self.frame is not None:
            loss = lost_graph.find(self.frame)
            self.cut = None if loss is None else Cut(loss.how, loss.location)
        self.began_at = None if self.cut is None else self.cut.location
        if self.in_inference_mode or (self.began_at is None and self.gradients_are_off):
            self.began_at = source.region_without_gradients(self.frame)

    def _cut_of(self, output: torch.Tensor) -> Cut | None:
        """What is known of this tensor; else where numbers last left, in this iteration."""
        known = self.timeline.cuts.get(output)
        before = [call.number for call in self.timeline.calls if call is not self.call]
        recent = self.timeline.left_after == max(before, default=0)
        return known or (self.timeline.left if recent else None)

    @property
    def names(self) -> Mapping[str, str]:
        name = None if self.cut is None else self.cut.function
        if name is None and (function := self._derived_function) is not None:
            name = place_of(function, "backward")
        if self.cut_by_freezing:
            off = (one for one in self.variables if self._is_frozen(one.value))
            name = carriers.name_of(off)
        return {} if name is None else {"it": name}

    @property
    def seen(self) -> bool:
        return self._was_seen

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

    @property
    def gradients_are_off(self) -> bool:
        """Whether nothing was recorded where backward was called."""
        return self.call is not None and (not self.call.recorded or self.call.inference)

    @property
    def in_inference_mode(self) -> bool:
        return self.call is not None and self.call.inference

    @property
    def a_checkpoint_warned(self) -> bool:
        """Whether PyTorch warned that no input of a reentrant checkpoint requires grad."""
        return _torch.has_warned("None of the inputs have requires_grad=True")

    @property
    def computed_in_forward(self) -> bool:
        """Whether a gradient through a custom function was used that uses what forward computed."""
        if self.cut is not None and not self.cut_by_function:
            return False
        return self._derived_function is not None

    @cached_property
    def _derived_function(self) -> type | None:
        calls = (call for call in reversed(self.timeline.calls) if call is not self.call)
        latest = next(calls, None)
        functions = () if latest is None else latest.derived
        return next((one for reference in functions if (one := reference()) is not None), None)

    def _parameters(self) -> Iterator[torch.Tensor]:
        return (one.value for one in self.variables if isinstance(one.value, torch.nn.Parameter))
