"""From a failed backward to its cause, the line where it began, and the fix to prefer.

The error's text gives the family.  For each family there is a class of evidence: its properties
have the names of :data:`gradtrace.causes.EVIDENCE` and look for it only when a rule asks, in the
graph as it stands when backward has just failed, in what the watch recorded, and in the variables
of the program.  The first of the :data:`gradtrace.causes.RULES` whose evidence holds is the cause.
Where nothing decides, the cause is ``"unknown"``.
"""

from __future__ import annotations

import gc
import linecache
import math
import re
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from operator import itemgetter
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any

import torch

from gradtrace import _torch, source
from gradtrace._torch import LiveNode
from gradtrace.causes import CAUSES, CERTAIN, LIKELY, RULES, SCHEMA, SEEN, UNKNOWN, family_of
from gradtrace.frames import Found, Location, is_users, namespace, reach, user_frame, user_frames
from gradtrace.graph import (
    FREED,
    MODIFIED,
    describe,
    leading_to,
    roots_of,
    storage_of,
    users_of,
    walk,
)
from gradtrace.record import BackwardCall, Record, freed_by


@dataclass(frozen=True)
class Diagnosis:
    """An error explained; :mod:`gradtrace.causes` lists the families and causes.

    ``raised_at`` is the line of the user's code that raised, ``began_at`` the line where it began
    (the backward that freed, the write, the cut), ``made_at`` the line that made what both need,
    ``carried_by`` the variable or attribute that carried it there.  None is what is not known.
    """

    family: str
    cause: str
    confidence: str
    raised_at: Location | None
    began_at: Location | None = None
    made_at: Location | None = None
    carried_by: str | None = None
    error: str | None = None
    detail: str | None = None

    @property
    def explanation(self) -> str:
        """What went wrong, in a sentence."""
        text = CAUSES[self.cause].meaning
        return text if self.detail is None else f"{text}; {self.detail}"

    @property
    def fix(self) -> str:
        """What to do about it."""
        return CAUSES[self.cause].fix_for(self.carried_by)

    def text(self) -> str:
        """For a person: a few lines that begin with ``gradtrace:``."""
        hedge = "" if self.confidence == CERTAIN else f" ({self.confidence})"
        lines = [f"gradtrace: {self.explanation}.{hedge if self.cause != 'unknown' else ''}"]
        for name, place in (("began", self.began_at), ("made", self.made_at)):
            if place is not None:
                text = linecache.getline(*place).strip()
                lines.append(f"  {name + ':':<9}{place}  {text}".rstrip())
        if self.carried_by is not None:
            lines.append(f"  carried: {self.carried_by}")
        lines.append(f"  fix:     {self.fix}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """What ``python -m gradtrace --json`` writes: see :data:`gradtrace.causes.KEYS`."""
        data = asdict(self)
        del data["detail"]  # it is part of the explanation
        for key in ("raised_at", "began_at", "made_at"):
            place = data[key]
            data[key] = None if place is None else {"file": place[0], "line": place[1]}
        return {
            "schema": SCHEMA,
            "torch": torch.__version__,
            **data,
            "explanation": self.explanation,
            "fix": self.fix,
        }


def failure(
    record: Record, error: BaseException, outputs: Any, call: BackwardCall | None
) -> Diagnosis | None:
    """Explain ``error``; None when it is not one of autograd's.

    ``outputs`` are what backward was called on and ``call`` is that call; both are None for an
    error that came from elsewhere.
    """
    if not isinstance(error, RuntimeError):  # PyTorch's are; others may quote their texts
        return None
    family, cause = family_of(str(error))
    if family is None:
        return None
    raised_at, frame = _where_raised(error)
    if frame is None or call is not None:
        frame = user_frame(sys._getframe(1))
        raised_at = Location.of(frame) if frame else raised_at
    text = f"{type(error).__name__}: {error}"
    if cause is not None:
        return Diagnosis(family, cause, CERTAIN, raised_at, error=text)
    unknown = Diagnosis(family, "unknown", UNKNOWN, raised_at, error=text)
    kind = _EVIDENCE.get(family)
    if outputs is None or kind is None:
        return unknown
    outputs = (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)
    try:
        evidence = kind(record, outputs, call, raised_at, frame, text)
    except NoEvidence:
        return unknown
    return evidence.diagnosis(family) or unknown


def _where_raised(error: BaseException) -> tuple[Location | None, FrameType | None]:
    """The innermost line of the user's code in the traceback."""
    found: tuple[Location | None, FrameType | None] = (None, None)
    for frame, line in walk_tb(error.__traceback__):
        if is_users(frame.f_code):
            found = Location(frame.f_code.co_filename, line), frame
    return found


class NoEvidence(Exception):
    """Too little is known for any rule of the family to tell."""


class Evidence:
    """What is known around one error.  Properties are computed when a rule asks for them.

    Raises:
        NoEvidence: from the constructor.
    """

    began_at: Location | None = None
    made_at: Location | None = None

    def __init__(
        self,
        record: Record,
        outputs: tuple[Any, ...],
        call: BackwardCall | None,
        raised_at: Location | None,
        frame: FrameType | None,
        error: str,
    ):
        self.record = record
        self.timeline = record.timeline
        self.outputs = outputs
        self.call = call
        self.raised_at = raised_at
        self.frame = frame
        self.error = error

    def diagnosis(self, family: str) -> Diagnosis | None:
        """By the first rule of the family whose evidence holds, if there is one."""
        rules = RULES[family]
        rule = next((rule for rule in rules if all(map(self.holds, rule.evidence))), None)
        if rule is None:
            return None
        confidence = rule.confidence
        if confidence == SEEN:
            confidence = CERTAIN if self.seen else LIKELY
        if self.record.threads > 1:  # each thread counts its own operations: their order may differ
            confidence = LIKELY
        return Diagnosis(
            CAUSES[rule.cause].family or family,
            rule.cause,
            confidence,
            self.raised_at,
            began_at=self.began_at,
            made_at=self.made_at,
            carried_by=self.name_of(getattr(self, rule.carrier)),
            error=self.error,
        )

    def holds(self, evidence: str) -> bool:
        name = evidence.removeprefix("not ")
        return bool(getattr(self, name)) == (name == evidence)

    @property
    def seen(self) -> bool:
        """Whether it was seen, rather than inferred."""
        return True

    @property
    def holder(self) -> Found | None:
        """The variable that carried it to where it raised."""
        return None

    def name_of(self, found: Found | None) -> str | None:
        return None if found is None else found.name

    @cached_property
    def variables(self) -> list[Found]:
        """What the variables reach, from the innermost frame of the user's outward."""
        return [found for frame in user_frames(self.frame) for found in reach(namespace(frame))]


class FreedEvidence(Evidence):
    """A backward failed because an earlier one had freed a part of its graph.

    ``earlier`` are the nodes that were in that backward, each with its call; ``first`` is where the
    new part enters them, and ``freeing`` the call that freed it.  A node *made again* is a new one
    of the same origin: made by the same line, in the same calls, or, where lines are not known, by
    an operation of the same name on the same parameters.
    """

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        roots = roots_of(self.outputs)
        self.live, self.links = walk(roots)
        self.users = users_of(self.links)
        self.nodes = describe(self.live, self.links).nodes
        self.earlier: dict[int, BackwardCall] = {}
        for i, (live, node) in enumerate(zip(self.live, self.nodes, strict=True)):
            call = freed_by(live)
            if call is not None and (node.state == FREED or not node.saved):
                self.earlier[i] = call
        entries = (
            i
            for i in self.earlier
            if i < len(roots) or any(j not in self.earlier for j in self.users[i])
        )
        first = next((i for i in entries if self._leads_to_freed(i)), None)
        if first is None:
            raise NoEvidence
        self.first = first
        self.freeing = self.earlier[first]
        self.began_at = self.freeing.location
        self.made_at = self._line_of(first)

    @property
    def seen(self) -> bool:
        """Whether a strict watch saw it made; without shapes (2.4) a sum of losses is not known."""
        shown = _torch.result_shapes(self.live[self.first]) is not None
        return shown and self.made_at is not None

    def name_of(self, found: Found | None) -> str | None:
        """The variable; better, where that is not one that holds it, the name in the source."""
        name = self._assigned_and_used
        if found is None or (name is not None and not self._holds(found)):
            return name
        return found.name

    def _holds(self, found: Found) -> bool:
        return _is_buffer(found) or any(found is holder for holder in self.holders)

    # What is new in this graph.

    @cached_property
    def new(self) -> list[int]:
        return [
            i for i, node in enumerate(self.nodes) if i not in self.earlier and node.leaf is None
        ]

    @property
    def loss_was_run(self) -> bool:
        return not self.new

    @cached_property
    def built_after(self) -> list[int]:
        since = self.freeing.sequence_nr
        return [i for i in self.new if self._number(i) >= since]

    @cached_property
    def trains(self) -> bool:
        return any(self.nodes[j].leaf is not None for i in self.new for j in self.links[i])

    @property
    def same_operations(self) -> bool:
        return {type(self.live[i]).__name__ for i in self.new} <= set(self.freeing.operations)

    @cached_property
    def made_again(self) -> list[int]:
        origin = self._origin(self.first)
        return [i for i in self.built_after if self._origin(i) == origin]

    @cached_property
    def passed_on(self) -> list[int]:
        return [i for i in self.made_again if i in self._above]

    @property
    def a_loss_is_added(self) -> bool:
        began_there = self._number(self.first) in self.freeing.roots
        return began_there or (bool(self.made_again) and self._is_a_summand())

    # When it was made.

    @cached_property
    def repeated(self) -> bool:
        made = self._number(self.first)
        return any(
            earlier.location == self.raised_at and earlier.sequence_nr > made
            for earlier in tuple(self.timeline.calls)
            if earlier is not self.call
        )

    @cached_property
    def made_before_the_loop(self) -> bool:
        """Without the lines of a strict watch: whether the loop does not assign what holds it."""
        loops = source.loops_around(self.frame)
        made = self._lines(self.first)
        if not made:
            loop = next((loop for *_, loop in loops), None)
            if loop is None or self.holder is None:
                return self.trains
            return not source.assigns(loop, self.holder.name)
        for code, line, loop in loops:
            lines = [where for what, where in made if what is code]
            if not lines or not source.covers(loop, lines[-1]):
                return True
            if lines[-1] != line:  # has the line of the loop that made it run again?
                return any((code, lines[-1]) in self._lines(i) for i in self.built_after)
        return False

    # Who holds it.

    @cached_property
    def holders(self) -> list[Found]:
        """The variables that hold what was freed, or what was made of it before it was freed."""
        exact, before = self.live[self.first], self._before
        held = [f for f in self.variables if f.value.grad_fn in before]
        held.sort(key=lambda f: f.value.grad_fn is not exact)
        if held:
            return held
        # Or what was freed, looked at anew: nodes made after the freeing that save nothing.
        views = {self.live[i] for i in self._above if not self.nodes[i].saved}
        return [f for f in self.variables if f.owners and f.value.grad_fn in views]

    @property
    def holder(self) -> Found | None:
        return self.holders[0] if self.holders else None

    @cached_property
    def successor(self) -> Found | None:
        """The variable that held the freed part and now holds what took its place."""
        later = {self.live[i] for i in self.passed_on}
        return _first(self.variables, lambda f: f.value.grad_fn in later)

    @property
    def holder_or_successor(self) -> Found | None:
        return self.holder or self.successor

    @cached_property
    def in_a_dataset(self) -> Found | None:
        if not self.holders:
            return None
        datasets = _dataset_tensors()
        return _first(self.holders, lambda f: f.inside(_DATASETS) or id(f.value) in datasets)

    @cached_property
    def in_a_buffer(self) -> Found | None:
        candidates = [*self.holders, *([self.successor] if self.successor else [])]
        return _first(candidates, _is_buffer)

    @cached_property
    def in_a_container(self) -> Found | None:
        return _first(self.holders, lambda f: f.inside(_CONTAINERS))

    @property
    def refilled(self) -> bool:
        """Whether its container also holds what was made after the first backward of this line."""
        if self.in_a_container is None:
            return False
        container = next(o for o in self.in_a_container.owners if isinstance(o, _CONTAINERS))
        calls = self.timeline.calls
        began = next(call.sequence_nr for call in calls if call.location == self.raised_at)
        return any(
            any(owner is container for owner in found.owners)
            and found.value.grad_fn is not None
            and not isinstance(found.value.grad_fn, _torch.LEAF)
            and _torch.sequence_nr(found.value.grad_fn) >= began
            for found in self.variables
        )

    @property
    def looped_over(self) -> bool:
        frame = user_frame(self.frame)
        loop = None if frame is None else source.loop_around(frame)
        stored = self.in_a_container
        return loop is not None and stored is not None and source.runs_over(loop, stored.name)

    # The graph.

    def _leads_to_freed(self, start: int) -> bool:
        pending, seen = [start], {start}
        for i in pending:
            if self.nodes[i].state == FREED:
                return True
            for j in self.links[i]:
                if j in self.earlier and j not in seen:
                    seen.add(j)
                    pending.append(j)
        return False

    @cached_property
    def _above(self) -> set[int]:
        """The nodes from which a path leads to the first freed one."""
        return leading_to([self.first], self.users)

    @cached_property
    def _before(self) -> set[LiveNode]:
        """The nodes made before the freeing, with the freed part behind them."""
        since = self.freeing.sequence_nr
        return {self.live[i] for i in (self.first, *self._above) if self._number(i) < since}

    def _number(self, i: int) -> int:
        """When the operation of this node was recorded."""
        return _torch.sequence_nr(self.live[i])

    def _line_of(self, i: int) -> Location | None:
        return self.timeline.line_of(self._number(i))

    def _lines(self, i: int) -> list[tuple[CodeType, int]]:
        """The lines that made it, from the innermost outward; none where they are not known."""
        chain = self.timeline.lines.find(self._number(i))
        return [] if chain is None else chain.lines

    def _origin(self, i: int) -> Any:
        """What it has in common with the node of another iteration that is its like."""
        chain = self.timeline.lines.find(self._number(i))
        if chain is not None:
            return chain
        leaves: set[int] = set()
        pending = [(i, 0)]
        for j, depth in pending:
            if self.nodes[j].leaf is not None:
                leaves.add(j)
            elif depth < _NEAR:
                pending.extend((k, depth + 1) for k in self.links[j])
        return self.nodes[i].name, frozenset(leaves)

    def _is_a_summand(self) -> bool:
        """Whether what was freed is a scalar that entered this loss by additions alone."""
        made = _torch.result_shapes(self.live[self.first])
        if made is None or len(made) != 1 or math.prod(made[0]) != 1:
            return False
        new = set(self.new)
        return all(_SUMS.match(self.nodes[i].name) for i in self._above if i in new)

    @cached_property
    def _assigned_and_used(self) -> str | None:
        """The one name that the line of the freed part assigns and the line of its user reads."""
        users = self.users[self.first]
        used_at = self._line_of(users[0]) if users else None
        if self.made_at is None or used_at is None:
            return None
        return source.assigned_and_used(self.made_at, used_at)


_NEAR = 4  # links between an operation and the parameters that tell it from others of its name
_SUMS = re.compile(r"(Add|Sum|Mean|Stack|Cat|Select|Unsqueeze|View|Div|Mul|ToCopy)Backward")
_CONTAINERS = (list, tuple, deque, dict, set)
_DATASETS = (torch.utils.data.Dataset, torch.utils.data.DataLoader)


def _first(found: list[Found], condition: Callable[[Found], bool]) -> Found | None:
    return next((one for one in found if condition(one)), None)


def _is_buffer(found: Found) -> bool:
    owner = found.owners[-1] if found.owners else None
    return isinstance(owner, torch.nn.Module) and any(
        found.value is buffer for buffer in owner._buffers.values()
    )


def _dataset_tensors() -> set[int]:
    """The tensors in the datasets of all loaders that exist: a loop may hold the only reference."""
    loaders = (x for x in gc.get_objects() if issubclass(type(x), torch.utils.data.DataLoader))
    return {id(found.value) for x in loaders for found in reach({"": vars(x).get("dataset")})}


class ModifiedEvidence(Evidence):
    """A backward failed because a tensor that it needs was changed in place."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        live, links = walk(roots_of(self.outputs))
        wanted = re.search(r"is at version (\d+)", self.error)
        changed = [
            (_torch.sequence_nr(live[i]), saved.storage, saved.role == "leaf")
            for i, node in enumerate(describe(live, links).nodes)
            for saved in node.saved
            if saved.state == MODIFIED
            and saved.storage is not None  # PyTorch 2.4 does not show it once it has changed
            and (wanted is None or saved.version in (None, int(wanted[1])))
        ]
        if not changed:
            raise NoEvidence
        self.saved_by, self.storage, self.a_leaf = max(changed, key=itemgetter(0))
        self.made_at = self.timeline.line_of(self.saved_by)
        # The changes since then, the first one first.
        self.edits = list(self.timeline.edits_since(self.saved_by, self.storage))
        self.began_at = self.edits[0].location if self.edits else None

    @property
    def seen(self) -> bool:
        """A plain watch sees that an optimizer stepped, but no other changes before that."""
        return self.timeline.observed and bool(self.edits)

    @property
    def optimizer_wrote(self) -> bool:
        return any(edit.by_optimizer and edit.location == self.began_at for edit in self.edits)

    @cached_property
    def holder(self) -> Found | None:
        return _first(self.variables, lambda found: storage_of(found.value)[0] == self.storage)

    @property
    def a_buffer(self) -> bool:
        return self.holder is not None and _is_buffer(self.holder)

    @property
    def backward_between(self) -> bool:
        edit = self.edits[0] if self.edits else None
        return any(
            call.sequence_nr > self.saved_by and (edit is None or call.number <= edit.last_call)
            for call in tuple(self.timeline.calls)
            if call is not self.call
        )


class NoGraphEvidence(Evidence):
    """A backward was called on a tensor without a graph; a strict watch saw where it was cut."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        outputs = (o for o in self.outputs if isinstance(o, torch.Tensor) and not o.requires_grad)
        output = next(outputs, None)
        self.cut = None if output is None else self.timeline.cuts.get(output)
        self.began_at = None if self.cut is None else self.cut.location

    @property
    def seen(self) -> bool:
        return self.cut is not None and self.cut.shape is None

    def _was(self, how: str) -> bool:
        return self.cut is not None and self.cut.how == how

    cut_by_detach = property(lambda self: self._was("detach"))
    cut_by_region = property(lambda self: self._was("region"))
    cut_by_first_order = property(lambda self: self._was("first_order"))
    cut_by_operation = property(lambda self: self._was("operation"))
    cut_by_once_differentiable = property(lambda self: self._was("once_differentiable"))
    cut_by_checkpoint = property(lambda self: self._was("checkpoint"))


_EVIDENCE = {
    "freed": FreedEvidence,
    "modified": ModifiedEvidence,
    "no_graph": NoGraphEvidence,
}
