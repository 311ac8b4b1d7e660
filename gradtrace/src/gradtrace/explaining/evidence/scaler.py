"""Evidence about a GradScaler that refused a call."""

import re
from traceback import walk_tb

import torch

from gradtrace.autograd import source
from gradtrace.autograd.tensors import storage_of
from gradtrace.explaining.evidence.base import TextEvidence
from gradtrace.explaining.evidence.carriers import name_of
from gradtrace.explaining.evidence.no_graph import FREEZES
from gradtrace.explaining.evidence.optimizers import Training, storages_of
from gradtrace.watching.record import parameters_of

_MADE_A_LEAF = r".*\brequires_grad(=True|_\((True)?\)).*"


class ScalerEvidence(TextEvidence):
    """Evidence about a GradScaler that was not updated between two uses of an optimizer."""

    def __post_init__(self) -> None:
        """Find the scaler's only ``update()``, if an iteration that cleared gradients left it out.

        Backward calls were made in the same way before, so the refused call is not the first one.
        """
        line = "" if self.raised_at is None else self.raised_at.text
        use = re.search(r"([\w.]*?(\w+))\.(unscale_|step)\(.*?\)", line)
        *earlier, last = [call.path for call in self.timeline.calls] or [{}]
        if use is None or self.frame is None or last not in earlier:
            return
        uses, updates = (
            [place for place in source.calls_of(self.files, [name]) if text in place.text]
            for name, text in ((use[3], use[0]), ("update", f"{use[2]}.update("))
        )
        is_cleared = source.is_run_each_time(self.frame, r"\.zero_grad\(")
        if is_cleared and len(uses) == len(updates) == 1:
            self.update_is_skipped, self.began_at = True, updates[0]
            self.names = {"scaler": use[1], "use": use[0]}


class MissingGradientsEvidence(TextEvidence):
    """Evidence about an optimizer none of whose parameters had a gradient at the scaler's step."""

    def __post_init__(self) -> None:
        """Find the leaves that the backward calls since the optimizer's last step have reached."""
        *_, (frame, _) = walk_tb(self.exception.__traceback__)
        optimizer = frame.f_locals["optimizer"]
        self.is_frozen = not any(p.requires_grad for p in parameters_of(optimizer))
        steps = [s.last_call for s in self.timeline.steps if s.optimizer() is optimizer]
        calls = self.timeline.calls_since(max(steps, default=0) + 1)
        reached = [*map(self._leaves_of, calls)]
        leaves = frozenset[int]().union(*reached)
        known = bool(reached) and all(reached)
        self.misses_parameters = known and leaves.isdisjoint(storages_of(optimizer))
        parameters = (v for v in self.variables if isinstance(v.value, torch.nn.Parameter))
        others = [v for v in parameters if storage_of(v.value)[0] in leaves]
        self.names = {"reached": name_of(others)}
        if self.is_frozen:
            self.began_at = source.only_line(self.files, FREEZES)
        elif self.misses_parameters and not (others or Training(self.timeline, leaves).optimizers):
            self.reaches_no_parameter = True
            cut_at = next(iter(self.timeline.terms.reached.values()), None)
            self.began_at = cut_at or source.only_line(self.files, _MADE_A_LEAF)
