"""The input of a detector, a pending backward pass, and its output, findings."""

from collections.abc import Collection
from functools import cached_property
from typing import Any

import torch

from gradtrace import _torch
from gradtrace.autograd.frames import Location
from gradtrace.autograd.traversal import roots_of, users_of, walk
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


class PendingBackward:
    """A backward pass that is about to run: its call, its nodes, and their links."""

    def __init__(self, timeline: Timeline, call: BackwardCall, outputs: Any):
        self.timeline = timeline
        self.call = call
        self.outputs = outputs
        self.live, self.links = walk(roots_of(outputs))

    @cached_property
    def users(self) -> list[list[int]]:
        return users_of(self.links)

    @cached_property
    def leaves(self) -> dict[int, torch.Tensor]:
        """The leaves, by their indices among the nodes."""
        nodes = enumerate(self.live)
        return {i: node.variable for i, node in nodes if isinstance(node, _torch.LEAF)}

    @cached_property
    def numbers(self) -> dict[int, int]:
        """The indices of the operations among the nodes, by their sequence numbers."""
        nodes = enumerate(self.live)
        return {_torch.sequence_nr(node): i for i, node in nodes if i not in self.leaves}

    @property
    def oldest(self) -> int:
        return min(self.numbers, default=0)

    def finding(self, cause: str, began_at: Location | None, **details: Any) -> Diagnosis:
        return finding(cause, self.call.location, began_at, **details)
