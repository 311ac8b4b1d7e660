"""Saved tensors that were changed while their version counter stayed the same."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gradtrace import _torch
from gradtrace._torch import LiveNode
from gradtrace.autograd import source
from gradtrace.autograd.frames import Location, namespace, user_frames
from gradtrace.autograd.nodes import ALIVE, PACKED, Node
from gradtrace.autograd.saved import describe
from gradtrace.autograd.tensors import storage_of
from gradtrace.explaining.causes import CRITERIA
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.silent.finding import finding
from gradtrace.watching.operations import checksum
from gradtrace.watching.record import BackwardCall, Edit, Export, Memory, Timeline


def changed_unnoticed(
    timeline: Timeline, call: BackwardCall, live: Sequence[LiveNode], links: Sequence[Sequence[int]]
) -> Iterator[Diagnosis]:
    """Yield the saved tensors of this graph that were changed past their version counter."""
    for i, node in enumerate(describe(live, links).nodes):
        yield from _recomputed_with_others(timeline, call, live, i, links[i], node)
        for saved in node.saved:
            if saved.state != ALIVE or saved.storage is None:
                continue
            saved_by = _saved_by(timeline, live[i])
            tensor = _saved_tensor(live[i], saved.name)
            edit = _edit_of(timeline, saved_by, saved.storage, tensor)
            facts = {
                "on_ctx": saved.name.startswith("ctx."),
                "optimizer_wrote": edit is not None and edit.by_optimizer,
                "a_leaf": saved.role == "leaf",
            }
            if edit is not None:
                began_at = edit.location
            elif (export := _changed_export(timeline, saved_by, saved.storage, tensor)) is None:
                continue
            else:
                began_at = _write_to(timeline, export, saved_by) or export.location
            criterion = next(c for c in CRITERIA["silent"] if all(facts[name] for name in c.facts))
            made_at = timeline.line_of(saved_by)
            holding = {name for name, holds in facts.items() if holds}
            yield finding(criterion.cause, call.location, began_at, made_at=made_at, facts=holding)


def _recomputed_with_others(
    timeline: Timeline,
    call: BackwardCall,
    live: Sequence[LiveNode],
    i: int,
    links: Sequence[int],
    node: Node,
) -> Iterator[Diagnosis]:
    """Yield a finding if a checkpoint will recompute this node's inputs with changed weights."""
    if not any(
        saved.state == PACKED and _torch.packed_by_checkpoint(_saved_tensor(live[i], saved.name))
        for saved in node.saved
    ):
        return
    saved_by = _saved_by(timeline, live[i])
    for j in links:
        if isinstance(live[j], _torch.LEAF):
            storage = storage_of(live[j].variable)[0]
            for edit in itertools.islice(timeline.edits_since(saved_by, storage), 1):
                made_at = timeline.line_of(saved_by)
                cause = "checkpoint_recomputes_anew"
                yield finding(cause, call.location, edit.location, made_at=made_at)


def _saved_by(timeline: Timeline, node: LiveNode) -> int:
    """Return the sequence number from which a change counts as later than the node's saving.

    A node that another thread recorded has a number of that thread, which cannot be compared. For
    such a node the last backward call of another thread is the bound, because earlier changes were
    examined when that call began.
    """
    return max(_torch.sequence_nr(node), timeline.graph_elsewhere)


def _saved_tensor(node: LiveNode, name: str) -> torch.Tensor | None:
    """Return the saved tensor in a node's slot; None if PyTorch does not show it."""
    if name.startswith("ctx."):
        return None
    slot, _, index = name.partition("[")
    handle: Any = getattr(node, _torch.RAW_SAVED + slot, None)
    if index:
        handle = handle[int(index.rstrip("]"))]
    return getattr(handle, "data", None)


def _edit_of(
    timeline: Timeline, sequence_nr: int, storage: int, tensor: torch.Tensor | None
) -> Edit | None:
    """Return the first change of the saved memory after the operation had saved it."""
    memory = None if tensor is None else Memory.of(tensor)
    for edit in timeline.edits_since(sequence_nr, storage):
        if memory is None or edit.memory is None or memory.overlaps(edit.memory):
            return edit
    return None


def _changed_export(
    timeline: Timeline, sequence_nr: int, storage: int, tensor: torch.Tensor | None
) -> Export | None:
    """Return memory shared with NumPy whose contents differ from those that were saved."""
    exports = timeline.exports_of(storage)
    earlier = [export for export in exports if export.sequence_nr <= sequence_nr]
    export = earlier[-1] if earlier else next(iter(exports), None)
    if export is None or tensor is None:
        return None
    memory = Memory.of(tensor)
    if memory is None or not memory.overlaps(export.memory):
        return None
    return None if checksum(export.memory.span) == export.checksum else export


def _write_to(timeline: Timeline, export: Export, sequence_nr: int) -> Location | None:
    """Return the line that wrote to this memory through another tensor or a NumPy array."""
    address = export.memory.address
    edit = next(timeline.edits_of(address, sequence_nr), None)
    if edit is not None:
        return edit.location
    for frame in user_frames(sys._getframe(1)):
        for name, value in namespace(frame, forget=True).items():
            if _address_of(value) == address and (lines := source.writes_into(frame, name)):
                return Location(frame.f_code.co_filename, lines[-1])
    return None


def _address_of(value: Any) -> int | None:
    """Return the address of a NumPy array's first element; None for other values."""
    if not hasattr(type(value), "__array_interface__"):
        return None
    return value.__array_interface__["data"][0]
