"""A backward failed because a tensor that it needs was changed in place."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cached_property
from operator import itemgetter
from typing import Any

from gradtrace import _torch
from gradtrace.autograd import source
from gradtrace.autograd.frames import Location, user_frames
from gradtrace.autograd.nodes import MODIFIED
from gradtrace.autograd.saved import describe
from gradtrace.autograd.tensors import storage_of
from gradtrace.autograd.traversal import roots_of, users_of, walk
from gradtrace.explaining.evidence import carriers
from gradtrace.explaining.evidence.base import Evidence, NoEvidence
from gradtrace.explaining.evidence.carriers import Held
from gradtrace.explaining.evidence.reuse import Reuse
from gradtrace.explaining.evidence.training import Training
from gradtrace.watching.record import BackwardCall


class ModifiedEvidence(Evidence):
    """``saved_by`` is the number of the operation that saved it, ``edits`` the changes since."""

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
        self._was_made(self.saved_by)
        # The changes since then, the first one first.
        self.edits = list(self.timeline.edits_since(self.saved_by, self.storage))
        self.began_at = self.edits[0].location if self.edits else None
        if self.began_at is None and self._candidates:
            self.began_at = Location(*self._candidates[0][:2])
        self._arguments = arguments

    @cached_property
    def _candidates(self) -> list[tuple[str, int, str]]:
        """The lines of the program that may have made the change, with what they write into.

        Where nothing saw them: those that write into the result of the operation that the error
        names; else all that write in place, but into a new tensor, a number or a container.
        """
        if self.timeline.observed or self.a_leaf or self.optimizers_stepped:
            return []
        files = dict.fromkeys(frame.f_code.co_filename for frame in user_frames(self.frame))
        writes = [(file, one) for file in files for one in source.in_place_writes(file)]
        made_by = re.search(r"output \d+ of (\w+)", self.error)
        name = re.sub(r"Backward\d*$", "", made_by[1]).lower() if made_by else " "
        matching = [
            (file, one)
            for file, one in writes
            if any(f"{name}(" in ast.unparse(value).lower() for value in one.values)
        ]
        possible = [(file, one) for file, one in writes if not any(map(_is_new, one.values))]
        found = [(file, one.line, one.name) for file, one in matching or possible]
        return found if len({name for *_, name in found}) <= _MAX_CANDIDATES else []

    @property
    def optimizers_stepped(self) -> bool:
        return any(step.sequence_nr > self.saved_by for step in self.timeline.steps)

    @property
    def seen(self) -> bool:
        """A plain watch sees that an optimizer stepped, but no other changes before that."""
        return self.timeline.observed and bool(self.edits)

    @property
    def optimizer_wrote(self) -> bool:
        return any(edit.by_optimizer and edit.location == self.began_at for edit in self.edits)

    @cached_property
    def holder(self) -> Held | None:
        holds = (one for one in self.variables if storage_of(one.value)[0] == self.storage)
        return next(holds, None)

    @property
    def a_buffer(self) -> bool:
        return self.holder is not None and self.holder.is_buffer

    @property
    def keeps_what_is_written(self) -> bool:
        """Whether the variable goes round a loop, and has a graph now."""
        held = self.holder
        if held is None or held.value.is_leaf or source.loop_around(held.frame) is None:
            return False
        return held.carries

    @property
    def by_a_layer(self) -> bool:
        """Whether PyTorch's code made the change, as ``inplace=True`` and ``max_norm`` ask."""
        return bool(self.edits) and self.edits[0].by_library

    @property
    def through_a_view(self) -> bool:
        """Whether a view of the tensor was changed, under a name of its own."""
        return bool(self.edits) and self.edits[0].of_a_view

    @property
    def written_once(self) -> bool:
        return len(self.edits) == 1

    @property
    def backward_between(self) -> bool:
        edit = self.edits[0] if self.edits else None
        return any(
            call.sequence_nr > self.saved_by and (edit is None or call.number <= edit.last_call)
            for call in tuple(self.timeline.calls)
            if call is not self.call
        )

    @cached_property
    def one_optimizer(self) -> bool:
        """Whether one optimizer holds all leaves that this loss reaches."""
        live, _ = walk(roots_of(self.outputs))
        leaves = {storage_of(node.variable)[0] for node in live if type(node) is _torch.LEAF}
        return any(leaves <= held for _, held in Training(self.timeline, leaves).optimizers)

    @property
    def owned_twice(self) -> bool:
        """Whether two optimizers hold the leaf that was changed."""
        return self.a_leaf and len(Training(self.timeline, {self.storage}).optimizers) > 1

    @property
    def differentiable_step(self) -> bool:
        """Whether the optimizer's step was to be differentiated: its gradient has a graph."""
        if not self.optimizer_wrote:
            return False
        last = self.edits[0].last_call
        return any(call.creates_graph for call in self.timeline.calls if call.number == last)

    @cached_property
    def retained(self) -> Retained | None:
        try:
            return Retained(self.saved_by, *self._arguments)
        except NoEvidence:
            return None

    @property
    def carried_over(self) -> bool:
        return self.retained is not None and bool(self.retained.passed_on)

    @cached_property
    def _older_part(self) -> list[Held]:
        """The variables that hold what was computed before the change and is used after it."""
        made = [call for call in self.timeline.calls if call.location == self.raised_at]
        made_before = any(
            call.sequence_nr > self.saved_by for call in made if call is not self.call
        )
        if not self.optimizer_wrote or not made_before or self.carried_over:
            return []
        live, links = walk(roots_of(self.outputs))
        since, users = self.edits[0].sequence_nr, users_of(links)
        numbers = {
            i: _torch.sequence_nr(node)
            for i, node in enumerate(live)
            if type(node) is not _torch.LEAF
        }
        later = {i for i, number in numbers.items() if number >= since}
        old = {live[i] for i in numbers.keys() - later if not later.isdisjoint(users[i])}
        return [one for one in self.variables if _torch.grad_fn_of(one.value) in old]

    @property
    def partly_new(self) -> bool:
        return bool(self._older_part)

    @property
    def trained_only_there(self) -> bool:
        return self.retained is not None and self.retained.trained_only_there

    @property
    def every_entry_is_named(self) -> bool:
        return self.retained is not None and self.retained.every_entry_is_named

    @property
    def names(self) -> Mapping[str, str]:
        if self.carried_over and self.retained is not None:
            return self.retained.names
        held = self._older_part or ([] if self.holder is None else [self.holder])
        named = carriers.name_of(held) or self._written_names
        return {} if named is None else {"it": named}

    @property
    def _written_names(self) -> str | None:
        """The names at the lines that made the change, or may have made it."""
        places = {(edit.location.file, edit.location.line) for edit in self.edits if edit.location}
        names = [
            one.name
            for file in dict.fromkeys(file for file, _ in places)
            for one in source.in_place_writes(file)
            if (file, one.line) in places
        ] or [name for *_, name in self._candidates]
        return ", ".join(dict.fromkeys(names)) or None


_MAX_CANDIDATES = 3  # names


def _is_new(value: ast.expr) -> bool:
    """Whether it is a number, a container or a new tensor: nothing has saved that."""
    if isinstance(value, ast.Constant | ast.List | ast.Dict | ast.ListComp | ast.DictComp):
        return True
    return re.search(r"\b(zeros|ones|empty|full|new_\w+)(_like)?\(", ast.unparse(value)) is not None


class Retained(Reuse):
    """The last backward that kept its graph, and what it ran through."""

    def __init__(self, saved_by: int, *arguments: Any):
        self._saved_by = saved_by
        super().__init__(*arguments)

    def _earlier(self) -> dict[int, BackwardCall]:
        call = self._kept_since(self._saved_by)
        if call is None:
            return {}
        return {
            i: call
            for i, node in enumerate(self.live)
            if self.nodes[i].leaf is None and _torch.sequence_nr(node) < call.sequence_nr
        }

    def _stopped(self) -> set[int]:
        return {i for i in self.earlier if _torch.sequence_nr(self.live[i]) == self._saved_by}
