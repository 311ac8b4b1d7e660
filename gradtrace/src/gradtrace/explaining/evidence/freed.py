"""Evidence about a backward call that failed because an earlier one freed its graph."""

from __future__ import annotations

from gradtrace.autograd.nodes import FREED, HIDDEN
from gradtrace.explaining.evidence.reuse import Reuse
from gradtrace.watching.record import BackwardCall, freed_by


class FreedEvidence(Reuse):
    """The earlier backward calls freed the nodes that they used."""

    def _earlier(self) -> dict[int, BackwardCall]:
        calls = ((i, freed_by(live)) for i, live in enumerate(self.live))
        return {i: call for i, call in calls if call is not None}

    def _blocking(self) -> set[int]:
        return {i for i in self.earlier if self.nodes[i].state in (FREED, HIDDEN)}
