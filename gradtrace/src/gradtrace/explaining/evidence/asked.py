"""A gradient was asked for something that has none: ``autograd.grad`` or ``inputs=``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch

from gradtrace.autograd.tensors import storage_of
from gradtrace.autograd.traversal import roots_of, walk
from gradtrace.explaining.evidence import carriers
from gradtrace.explaining.evidence.base import Evidence


class AskedEvidence(Evidence):
    """``missing`` are those of the inputs that do not require grad, or that no path leads to."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        inputs = [one for one in self.inputs if isinstance(one, torch.Tensor)]
        off = [one for one in inputs if not one.requires_grad]
        self.asked_of_what_is_off = bool(off)
        if off:
            self.missing = off
        else:
            reached = set(walk(roots_of(self.outputs))[0])
            self.missing = [one for one in inputs if roots_of([one])[0] not in reached]
        cuts = (self.timeline.cuts.get(one) for one in self.missing)
        self.cut = next((cut for cut in cuts if cut is not None), None)
        if self.cut is None and not off:  # or was it cut off after it had been made?
            of = {storage_of(one)[0] for one in self.missing}
            self.cut = self.timeline.cuts.of(of)
        self.began_at = None if self.cut is None else self.cut.location

    @property
    def others_take_part(self) -> bool:
        """Whether the gradient reaches some of the inputs that it was requested for."""
        return 0 < len(self.missing) < len(self.inputs)

    @property
    def cut_by_freezing(self) -> bool:
        return self.cut is not None and self.cut.how == "frozen"

    @cached_property
    def names(self) -> Mapping[str, str]:
        ids = {id(one) for one in self.missing}
        name = carriers.name_of(one for one in self.variables if id(one.value) in ids)
        return {} if name is None else {"it": name}
