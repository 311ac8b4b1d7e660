"""The base class of the evidence of all families."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from traceback import walk_tb
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from gradtrace import _torch
from gradtrace.autograd import frames, source
from gradtrace.autograd.frames import Chain, Location, is_users, user_frames
from gradtrace.autograd.tensors import storages_in
from gradtrace.autograd.traversal import leaves_of, walk
from gradtrace.explaining.evidence.carriers import Holder, filled_at, name_of
from gradtrace.watching.call_sites import FAR, caller_of_apply, outward
from gradtrace.watching.record import BackwardCall, Timeline, freed_by


class NoEvidence(Exception):
    """Too little is recorded for any criterion of the family."""


@dataclass(eq=False, repr=False)
class Evidence:
    """The evidence about one error; a constructor may raise :class:`NoEvidence`."""

    timeline: Timeline
    outputs: tuple[Any, ...]  # the roots of the failed backward call
    inputs: Sequence[Any]  # the tensors whose gradient was requested, if any
    call: BackwardCall | None  # the one that failed, if a watch runs
    raised_at: Location | None
    frame: FrameType | None  # the innermost frame of the user's code
    exception: BaseException
    began_at: Location | None = None
    began_through: tuple[Location, ...] = ()  # the calls that led to that line, innermost first
    parted_in: CodeType | None = None
    made_at: Location | None = None
    made_through: tuple[Location, ...] = ()  # the calls that led to that line, innermost first
    stored_at: Location | None = None

    def __post_init__(self) -> None:
        """Collect the evidence that every criterion needs."""

    def holds(self, fact: str) -> bool:
        """Whether a fact of the table holds; ``not name`` holds if the fact does not."""
        name = fact.removeprefix("not ")
        # A fact for which this family has no property does not hold.
        return bool(getattr(self, name, False)) == (name == fact)

    @property
    def error(self) -> str:
        return f"{type(self.exception).__name__}: {self.exception}"

    @property
    def observed(self) -> bool:
        """Whether the watch recorded the cause, so that it is not inferred."""
        return True

    @cached_property
    def nested(self) -> type | None:
        """The custom function of the program that made the failed call in its backward()."""
        node = _torch.current_node()
        function = None if node is None else _torch.function_of(node)
        return function if function is not None and frames.belongs_to_user(function) else None

    @property
    def in_a_functions_forward(self) -> bool:
        """Whether forward() of a custom function runs, in which PyTorch disables gradients."""
        caller = caller_of_apply(self.frame, FAR)
        return caller is not None and caller.f_code.co_filename != _torch.CHECKPOINT_FILE

    @cached_property
    def closure(self) -> list[FrameType]:
        """The running functions of a closure that an optimizer's step called, as L-BFGS does."""
        running = [*outward(self.frame)]
        files = [frame.f_code.co_filename for frame in running]
        steps = (i for i, file in enumerate(files) if file.startswith(_torch.OPTIMIZERS))
        return [frame for frame in running[: next(steps, 0)] if is_users(frame.f_code)]

    @property
    def names(self) -> Mapping[str, str | None]:
        """The names for the texts of the causes: ``it`` is the variable that holds the tensor."""
        return {}

    def names_of(self, tensors: Iterable[Any]) -> str | None:
        """Return the names of the variables that hold these tensors."""
        ids = {id(tensor) for tensor in tensors}
        return name_of(variable for variable in self.variables if id(variable.value) in ids)

    def _begin_at(self, event: Any) -> None:
        """Set ``began_at``, and the callers of that line if the failed call has others."""
        failed = {} if self.call is None else self.call.path
        self.began_at, (self.parted_in, lines) = event.location, frames.parting(event.path, failed)
        self.began_through = tuple(lines[1:])

    def read_at(
        self, variables: Iterable[Holder], later: bool, others: Collection[Chain | None] = ()
    ) -> str | None:
        """Return the lines that read a variable before or after ``began_at``, as text.

        They are lines of the function in which the ways to that line and to the failed call part.
        Those before ``began_at`` are not in ``others``; None if one of these is not known.
        """
        frame = next((f for f in user_frames(self.frame) if f.f_code is self.parted_in), None)
        names = {v.name for v in variables if v.frame is frame}
        place = [self.began_at, *self.began_through][-1]
        if frame is None or place is None or len(names) != 1 or frame.f_lineno <= place.line:
            return None
        if not later and None in others:
            return None
        first, last = (place.line + 1, frame.f_lineno) if later else (1, place.line)
        reading = source.lines_that_read(frame, names.pop(), range(first, last + 1))
        calls = {call for chain in others if chain for call in chain.lines}
        lines = [line for line in reading if later or (frame.f_code, line) not in calls]
        return f" (line {' and '.join(map(str, lines))})" if lines else None

    def _locate(self, sequence_nr: int) -> None:
        """Set ``made_at`` to the line that ran the operation of this number, if it is known."""
        chain = self.timeline.lines.find(sequence_nr)
        if chain is not None:
            self.made_at, *through = chain.locations
            self.made_through = tuple(through)

    def _filled_at(self, variables: Iterable[Holder]) -> Location | None:
        """Return a line that filled one of the variables, as the source shows."""
        named = (None, self.began_at, self.raised_at, self.made_at, *self.made_through)
        lasting_first = sorted(variables, key=lambda variable: not variable.carries)
        return next((place for place in map(filled_at, lasting_first) if place not in named), None)

    @property
    def earlier_calls(self) -> list[BackwardCall]:
        """The recorded backward calls before the one that failed."""
        return [call for call in tuple(self.timeline.calls) if call is not self.call]

    def _is_made_here(self, call: BackwardCall) -> bool:
        """Whether the same lines and functions led to an earlier call as to the one that failed."""
        path = {} if self.call is None else self.call.path
        same = all(call.path.get(code, i) == i for code, i in path.items())
        return same and call.location == self.raised_at

    def _kept_since(self, sequence_nr: int) -> BackwardCall | None:
        """Return the last earlier call that retained its graph and ran after this operation."""
        retaining = (c for c in reversed(self.earlier_calls) if c.keeps_graph)
        return next((call for call in retaining if call.sequence_nr > sequence_nr), None)

    def _roots_of(self, call: BackwardCall) -> set[_torch.LiveNode]:
        """Return the nodes of the variables on which an earlier backward call was made."""
        nodes = {variable.node for variable in self.variables} - {None}
        freed = (node for node in nodes if freed_by(node) is call)
        return {node for node in freed if _torch.sequence_nr(node) in call.roots}

    def _leaves_of(self, call: BackwardCall) -> frozenset[int]:
        """Return the storages of the leaves that a call reached; empty if they are not known."""
        return call.leaves or storages_in(leaves_of(walk(self._roots_of(call))[0]))

    @cached_property
    def variables(self) -> list[Holder]:
        """The variables that reach tensors, from the user's innermost frame outward."""
        return [
            Holder(*reachable, frame)
            for frame in user_frames(self.frame)
            for reachable in frames.reach(frames.namespace(frame))
        ]

    @cached_property
    def modules(self) -> list[torch.nn.Module]:
        """The modules that hold these tensors, with all their parts."""
        owners = {id(owner): owner for v in self.variables for owner in v.owners}.values()
        return [m for o in owners if isinstance(o, torch.nn.Module) for m in o.modules()]

    @cached_property
    def files(self) -> list[str]:
        """The files of the running functions, and then those of all that these functions use."""
        running = [*user_frames(self.frame)]
        owners = {type(owner): None for v in self.variables for owner in v.owners}
        used = [value for frame in running for value in frame.f_globals.values()]
        codes = [v.__code__ for v in used if isinstance(v, FunctionType) and is_users(v.__code__)]
        files = [frame.f_code.co_filename for frame in running]
        files += [file for owner in owners for file in frames.files_of(owner)]
        files += [code.co_filename for code in codes]
        return [*dict.fromkeys(files)]


class TextEvidence(Evidence):
    """Names and lines for an error whose text alone decides the cause."""

    names: Mapping[str, str | None] = {}


def where_raised(error: BaseException) -> tuple[Location | None, FrameType | None]:
    """Return the innermost line of the user's code in the traceback, and its frame."""
    place: tuple[Location | None, FrameType | None] = (None, None)
    for frame, line in walk_tb(error.__traceback__):
        if is_users(frame.f_code):
            place = Location(frame.f_code.co_filename, line), frame
    return place
