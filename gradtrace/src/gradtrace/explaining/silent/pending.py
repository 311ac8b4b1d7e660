"""The input of a detector, a pending backward pass, and its output, findings."""

import sys
from collections.abc import Collection
from typing import Any

from gradtrace.autograd import lost_graph, source
from gradtrace.autograd.frames import Location, user_frames
from gradtrace.autograd.traversal import NodeGraph
from gradtrace.explaining.causes import CAUSES
from gradtrace.explaining.causes.table import LIKELY
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.watching.record import BackwardCall, OptimizerStep, Timeline


def finding(
    cause: str,
    raised_at: Location | None,
    began_at: Location | None,
    carried_by: str | None = None,
    made_at: Location | None = None,
    facts: Collection[str] = (),
    **names: str | None,
) -> Diagnosis:
    """Return a diagnosis of the family ``silent``, with the first fix whose facts hold.

    ``carried_by`` and the other ``names`` are for the texts.
    """
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
        names={"it": carried_by, **names},
    )


def optimizer_at(step: OptimizerStep) -> str | None:
    """Return the variable on whose optimizer the running line calls ``step()``, or None."""
    name = source.receiver_at(step.location, "step")
    frame = next(user_frames(sys._getframe(1)), None)
    return name if name and lost_graph.value_of(frame, name) is step.optimizer() else None


def call_at(call: BackwardCall) -> str | None:
    """Return the text ``loss.backward()`` of a call, if its line shows it."""
    loss = source.receiver_at(call.location, "backward")
    return f"{loss}.backward()" if loss else None


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
