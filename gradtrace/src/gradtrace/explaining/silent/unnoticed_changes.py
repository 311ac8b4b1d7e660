"""Saved tensors that were changed while their version counter stayed the same."""

import ast
import sys
from collections.abc import Iterator

import torch

from gradtrace import _torch
from gradtrace._torch import LiveNode
from gradtrace.autograd import source, syntax
from gradtrace.autograd.frames import Location, namespace, user_frames, user_variables
from gradtrace.autograd.nodes import ALIVE, PACKED
from gradtrace.autograd.saved import describe
from gradtrace.autograd.tensors import storage_of
from gradtrace.explaining.causes import CRITERIA
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.silent.pending import PendingBackward
from gradtrace.watching.operations import checksum
from gradtrace.watching.record import Export, Memory, Modification, Timeline


def changed_unnoticed(graph: PendingBackward) -> Iterator[Diagnosis]:
    """Yield findings about saved tensors, or weights of checkpoints, that changed unnoticed."""
    timeline = graph.timeline
    if not timeline.exports and timeline.last_write <= graph.oldest:
        return
    for i, node in enumerate(describe(graph.live, graph.links)):
        # A node that another thread recorded has a number of that thread, which cannot be compared.
        # The last backward call of that thread is the bound then: earlier changes were examined
        # when that call began.
        saved_by = max(_torch.sequence_nr(graph.live[i]), timeline.graph_elsewhere)
        for saved in node.saved:
            if saved.state not in (ALIVE, PACKED):
                continue
            tensor = _saved_tensor(graph.live[i], saved.name)
            if saved.state == PACKED and _torch.packed_by_checkpoint(tensor):
                weights = (graph.leaves[j] for j in graph.links[i] if j in graph.leaves)
                for weight in weights:
                    edit = next(timeline.edits_since(saved_by, storage_of(weight)[0]), None)
                    if edit is not None:
                        made_at = timeline.line_of(saved_by)
                        cause = "checkpoint_recomputes_anew"
                        yield graph.finding(cause, edit.location, made_at=made_at)
            of_statistics = saved.name in ("running_mean", "running_var")
            is_unused = of_statistics and getattr(graph.live[i], "_saved_training", True)
            if saved.state == PACKED or saved.storage is None or is_unused:
                continue
            memory = None if tensor is None else Memory.of(tensor)
            custom = isinstance(graph.live[i], _torch.CUSTOM)
            edits = timeline.edits_since(saved_by, saved.storage, custom)
            edit = _first_change(tensor, memory, edits)
            if edit is not None:
                began_at = edit.location
            elif (export := _changed_export(timeline, saved_by, saved.storage, tensor)) is None:
                continue
            else:
                began_at = _write_to(timeline, export, saved_by) or export.location
            facts = {
                "on_ctx": saved.name.startswith("ctx."),
                "of_statistics": of_statistics,
                "optimizer_wrote": edit is not None and edit.by_optimizer,
                "a_leaf": saved.role == "leaf",
                "shares_memory": edit is None,
                "updated_and_used": edit is not None
                and edit.sequence_nr <= _last_use(graph, i, saved.name)
                and edit.location is not None
                and any(map(_is_update, source.writes_at(edit.location))),
            }
            holding = {name for name, holds in facts.items() if holds}
            cause = next(c.cause for c in CRITERIA["silent"] if holding.issuperset(c.facts))
            variables = user_variables(sys._getframe(1))
            without_graph = (v for v in variables if _torch.grad_fn_of(v.value) is None)
            names = (v.name for v in without_graph if storage_of(v.value)[0] == saved.storage)
            details = {"made_at": timeline.line_of(saved_by), "carried_by": next(names, None)}
            yield graph.finding(cause, began_at, facts=holding, **details)
            if of_statistics:  # the other layers have changed, too
                return


def _last_use(graph: PendingBackward, i: int, slot: str) -> int:
    """Return the number of the last operation that used what a node's slot saved, or -1."""
    producers = [i] if slot == "result" else graph.links[i]
    users = (graph.live[user] for j in producers for user in graph.users[j])
    return max(map(_torch.sequence_nr, users), default=-1)


def _is_update(write: source.Write) -> bool:
    """Whether the new values depend on the old ones, as those of ``x.data *= s`` do."""
    if isinstance(write.node, ast.Assign):
        return write.name in syntax.reads(write.node.value)
    return syntax.operation_of(write.node) not in ("zero", "fill", "copy")


def _saved_tensor(node: LiveNode, name: str) -> torch.Tensor | None:
    """Return the saved tensor in a node's slot; None for one on ``ctx``, or if it is not shown."""
    if name.startswith("ctx."):
        return None
    slot, _, index = name.partition("[")
    handle = _torch.slot_getters(slot, isinstance(node, _torch.CUSTOM))[0](node)
    return (handle[int(index.rstrip("]"))] if index else handle).data


def _first_change(
    tensor: torch.Tensor | None, memory: Memory | None, edits: Iterator[Modification]
) -> Modification | None:
    """Return the first change of the saved memory, if that is known, among those of a storage.

    What was written through ``.data`` and has its old values again is no change.
    """
    restored = set()
    for edit in edits:
        if edit.memory in restored or (memory and edit.memory and not memory.overlaps(edit.memory)):
            continue
        if edit.memory is None or tensor is None or edit.old_checksum is None:
            return edit
        if checksum(edit.memory.view_of(tensor)) != edit.old_checksum:
            return edit
        restored.add(edit.memory)
    return None


def _changed_export(
    timeline: Timeline, sequence_nr: int, storage: int, tensor: torch.Tensor | None
) -> Export | None:
    """Return memory shared with NumPy whose contents differ from those that were saved."""
    exports = timeline.exports_of(storage)
    earlier = [export for export in exports if export.sequence_nr <= sequence_nr]
    export = earlier[-1] if earlier else next(iter(exports), None)
    memory = None if tensor is None else Memory.of(tensor)
    if export is None or tensor is None or not memory or not memory.overlaps(export.memory):
        return None
    return None if checksum(export.memory.view_of(tensor)) == export.checksum else export


def _write_to(timeline: Timeline, export: Export, sequence_nr: int) -> Location | None:
    """Return the line that wrote to this memory, or else the last one that writes to its array."""
    address = export.memory.address
    edit = next(timeline.edits_of(address, sequence_nr), None)
    if edit is not None:
        return edit.location
    for frame in user_frames(sys._getframe(1)):
        file = frame.f_code.co_filename
        values = namespace(frame, forget=True).items()
        arrays = ((n, v) for n, v in values if hasattr(type(v), "__array_interface__"))
        names = {n for n, array in arrays if array.__array_interface__["data"][0] == address}
        writes = [write.place.line for write in source.in_place_writes(file) if write.name in names]
        if earlier := [line for line in writes if line <= frame.f_lineno]:
            return Location(file, max(earlier))
    return None
