"""What the evidence of all families has in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import FrameType
from typing import Any

from gradtrace import _torch
from gradtrace.autograd.frames import Location, belongs_to_user, namespace, reach, user_frames
from gradtrace.explaining.evidence.carriers import Held
from gradtrace.watching.record import BackwardCall, Record


class NoEvidence(Exception):
    """Too little is known for any rule of the family to tell."""


class Evidence:
    """What is known around one error.

    ``outputs`` are what backward was called on, ``inputs`` what it was asked for, if anything, and
    ``call`` is that call; ``frame`` is the innermost of the user's, ``error`` the text.

    Raises:
        NoEvidence: from the constructor.
    """

    began_at: Location | None = None
    made_at: Location | None = None
    exception: BaseException | None = None  # where the error's text alone decides the cause
    made_through: tuple[Location, ...] = ()  # the calls that led to that line, innermost first

    def __init__(
        self,
        record: Record,
        outputs: tuple[Any, ...],
        inputs: Sequence[Any],
        call: BackwardCall | None,
        raised_at: Location | None,
        frame: FrameType | None,
        error: str,
    ):
        self.timeline = record.timeline
        self.outputs = outputs
        self.inputs = inputs
        self.call = call
        self.raised_at = raised_at
        self.frame = frame
        self.error = error

    def holds(self, evidence: str) -> bool:
        """Whether this evidence of the table holds; ``not name``: whether it does not.

        What is not looked for in this family does not hold.
        """
        name = evidence.removeprefix("not ")
        return bool(getattr(self, name, False)) == (name == evidence)

    @property
    def seen(self) -> bool:
        """Whether it was seen, rather than inferred."""
        return True

    @property
    def nested(self) -> bool:
        """Whether the failed call runs inside the backward of a custom function of the program."""
        return self.function_around is not None

    @cached_property
    def function_around(self) -> type | None:
        """The custom function of the program whose backward made the call that failed."""
        node = _torch.current_node()
        function = None if node is None else _torch.function_of(node)
        return function if function is not None and belongs_to_user(function) else None

    @property
    def asks_for_a_graph(self) -> bool:
        """Whether the failed call was to record the gradient's own graph."""
        return self.call is not None and self.call.creates_graph

    @property
    def names(self) -> Mapping[str, str]:
        """What the texts of the causes leave open: ``it`` is the variable that carried it."""
        return {}

    def _was_made(self, sequence_nr: int) -> None:
        """Where the operation of this number ran is where it was made, if that is known."""
        chain = self.timeline.lines.find(sequence_nr)
        if chain is not None:
            self.made_at, *through = chain.locations
            self.made_through = tuple(through)

    def _kept_since(self, sequence_nr: int) -> BackwardCall | None:
        """The last backward before this one that kept its graph, after that number."""
        kept = (
            call
            for call in reversed(tuple(self.timeline.calls))
            if call.keeps_graph and call.sequence_nr > sequence_nr and call is not self.call
        )
        return next(kept, None)

    @cached_property
    def variables(self) -> list[Held]:
        """What the variables reach, from the innermost frame of the user's outward."""
        return [
            Held(*found, frame)
            for frame in user_frames(self.frame)
            for found in reach(namespace(frame))
        ]
