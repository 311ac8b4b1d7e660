"""The input of a detector, a pending backward pass, and its output, findings."""

from collections.abc import Collection
from typing import Any

from gradtrace.autograd.frames import Location
from gradtrace.autograd.traversal import NodeGraph
from gradtrace.explaining.causes import CAUSES
from gradtrace.explaining.causes.table import LIKELY
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.watching.record import BackwardCall, Timeline


def finding(
    cause: str,
    raised_at: Location | None,
    began_at: Location | None,
    carried_by: str | None = None,
    made_at: Location | None = None,
    facts: Collection[str] = (),
    own: str | None = None,
) -> Diagnosis:
    """Return a diagnosis of the family ``silent``, with the first fix whose facts hold."""
    fix = next(fix for fix in CAUSES[cause].fixes if set(fix.needs) <= {*facts})
    return Diagnosis(
        "silent",
        cause,
        LIKELY,
        raised_at,
        proven=False,
        began_at=began_at,
        made_at=made_at,
        advice=fix,
        names={"it": carried_by, "own": own},
    )


class PendingBackward(NodeGraph):
    """A backward pass that is about to run: its graph and its call."""

    def __init__(self, timeline: Timeline, call: BackwardCall, outputs: Any):
        super().__init__(outputs)
        self.timeline = timeline
        self.call = call
        self.outputs = outputs

    @property
    def oldest(self) -> int:
        return min(self.numbers, default=0)

    def finding(self, cause: str, began_at: Location | None, **details: Any) -> Diagnosis:
        return finding(cause, self.call.location, began_at, **details)
