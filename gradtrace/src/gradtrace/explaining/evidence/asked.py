"""Evidence about a gradient requested for a tensor that has none (``grad`` or ``inputs=``)."""

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
    """``missing`` are the inputs that do not require grad, or that the outputs do not depend on."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        inputs = [tensor for tensor in self.inputs if isinstance(tensor, torch.Tensor)]
        off = [tensor for tensor in inputs if not tensor.requires_grad]
        self.asked_of_what_is_off = bool(off)
        if off:
            self.missing = off
        else:
            nodes = set(walk(roots_of(self.outputs))[0])
            self.missing = [tensor for tensor in inputs if roots_of([tensor])[0] not in nodes]
        cuts = (self.timeline.cuts.get(tensor) for tensor in self.missing)
        self.cut = next((cut for cut in cuts if cut is not None), None)
        if self.cut is None and not off:  # it may have been cut after it was created
            self.cut = self.timeline.cuts.of({storage_of(t)[0] for t in self.missing})
        self.began_at = None if self.cut is None else self.cut.location

    @property
    def others_take_part(self) -> bool:
        """Whether the gradient reaches some of the inputs that it was requested for."""
        return 0 < len(self.missing) < len(self.inputs)

    @property
    def frozen(self) -> bool:
        return self.cut is not None and self.cut.how == "frozen"

    @cached_property
    def names(self) -> Mapping[str, str]:
        ids = {id(tensor) for tensor in self.missing}
        name = carriers.name_of(v for v in self.variables if id(v.value) in ids)
        return {} if name is None else {"it": name}
