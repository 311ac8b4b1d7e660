"""Failures that raise nothing: a gradient that will be wrong, a graph that grows.

Each detector reads what a strict watch recorded, and the graph of the backward that is about to
run; it yields findings and remembers nothing of its own.
"""

from __future__ import annotations

import bisect
import itertools
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from gradtrace import _torch, source
from gradtrace._torch import LiveNode
from gradtrace.causes import LIKELY, RULES
from gradtrace.diagnosis import Diagnosis
from gradtrace.frames import Found, Location, namespace, reach, user_frames
from gradtrace.graph import ALIVE, describe, undisturbed, walk
from gradtrace.operations import LONG, checksum
from gradtrace.record import GROWING, BackwardCall, Edit, Export, Memory, Timeline, freed_by

_MANY = 30  # graphs that nothing ever used, for a list of them to be called growing
_NEAR = 4  # links from a variable's node to the sum behind it


def finding(
    cause: str,
    raised_at: Location | None,
    began_at: Location | None,
    carried_by: str | None = None,
    made_at: Location | None = None,
) -> Diagnosis:
    """A diagnosis of the family ``silent``."""
    names = {} if carried_by is None else {"it": carried_by}
    return Diagnosis(
        "silent", cause, LIKELY, raised_at, began_at=began_at, made_at=made_at, names=names
    )


def in_backward(
    timeline: Timeline, call: BackwardCall, live: Sequence[LiveNode], links: Sequence[Sequence[int]]
) -> Iterator[Diagnosis]:
    """What the backward that is about to run over the nodes ``live`` will get wrong."""
    numbers = [_torch.sequence_nr(node) for node in live if not isinstance(node, _torch.LEAF)]
    oldest = min(numbers, default=0)
    if timeline.has_exports or timeline.last_write > oldest:
        with undisturbed():
            found = list(_changed_unnoticed(timeline, call, live, links))
        yield from found
    yield from _used_without_graph(timeline, call, numbers)
    yield from _growing(timeline, call, len(live), oldest)
    if len(timeline.sums):
        alive = timeline.sums.alive()
        for sequence_nr in alive.keys() & set(numbers):
            timeline.sums.used(alive[sequence_nr])
    yield from unused_sums(timeline)


# Saved tensors changed without a change of version.


def _changed_unnoticed(
    timeline: Timeline, call: BackwardCall, live: Sequence[LiveNode], links: Sequence[Sequence[int]]
) -> Iterator[Diagnosis]:
    for i, node in enumerate(describe(live, links).nodes):
        for saved in node.saved:
            if saved.state != ALIVE or saved.storage is None:
                continue
            saved_by = _torch.sequence_nr(live[i])
            tensor = _saved_tensor(live[i], saved.name)
            edit = _edit_of(timeline, saved_by, saved.storage, tensor)
            evidence = {
                "on_ctx": saved.name.startswith("ctx."),
                "optimizer_wrote": edit is not None and edit.by_optimizer,
            }
            if edit is not None:
                began_at = edit.location
            elif (export := _changed_export(timeline, saved_by, saved.storage, tensor)) is None:
                continue
            else:
                began_at = _write_to(timeline, export, saved_by) or export.location
            rule = next(r for r in RULES["silent"] if all(evidence[name] for name in r.evidence))
            made_at = timeline.line_of(saved_by)
            yield finding(rule.cause, call.location, began_at, made_at=made_at)


def _saved_tensor(node: LiveNode, name: str) -> torch.Tensor | None:
    """The tensor in a node's slot; None where PyTorch does not show it."""
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
    """The first change of what was saved after the operation had saved it."""
    memory = None if tensor is None else Memory.of(tensor)
    for edit in timeline.edits_since(sequence_nr, storage):
        if memory is None or edit.memory is None or memory.overlaps(edit.memory):
            return edit
    return None


def _changed_export(
    timeline: Timeline, sequence_nr: int, storage: int, tensor: torch.Tensor | None
) -> Export | None:
    """Memory shared with numpy that is not what it was when the operation saved it."""
    exports = timeline.exports_of(storage)
    before = [export for export in exports if export.sequence_nr <= sequence_nr]
    export = before[-1] if before else next(iter(exports), None)
    if export is None or tensor is None:
        return None
    memory = Memory.of(tensor)
    if memory is None or not memory.overlaps(export.memory):
        return None
    return None if checksum(export.memory.span) == export.checksum else export


def _write_to(timeline: Timeline, export: Export, sequence_nr: int) -> Location | None:
    """The line that wrote to this memory: by another tensor, or through an array of that name."""
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
    """Where a numpy array's memory begins."""
    if not hasattr(type(value), "__array_interface__"):
        return None
    return value.__array_interface__["data"][0]


# Gradients that are ignored.


def _used_without_graph(
    timeline: Timeline, call: BackwardCall, numbers: Iterable[int]
) -> Iterator[Diagnosis]:
    """What is made of a gradient without a graph is added to this loss, and trains nothing.

    Where it comes from what this loss trains.  Another network's gradient may be meant as a number.
    """
    if not timeline.first_order:
        return
    for sequence_nr in set(numbers) & timeline.first_order.keys():
        cut = timeline.first_order.pop(sequence_nr)
        if (cut.through - cut.of) & call.leaves:
            yield finding("create_graph_missing", call.location, cut.location)


# Graphs that grow.


def _growing(timeline: Timeline, call: BackwardCall, size: int, oldest: int) -> Iterator[Diagnosis]:
    """Each backward from one line runs over all that the one before ran over, and more.

    With an optimizer's step in between: else it is an inner loop that is unrolled on purpose.
    Where the program has no optimizer, many in a row that create graphs, as such loops do.
    """
    if not call.keeps_graph:
        return
    long = 4 * GROWING if call.creates_graph and not timeline.steps else GROWING
    step = timeline.steps[-1].sequence_nr if timeline.steps else None
    sizes = timeline.sizes.setdefault(call.location, deque(maxlen=4 * GROWING))
    sizes.append((size, oldest, step))
    grows = all(
        before[0] < after[0] and before[1] == after[1] and (step is None or before[2] != after[2])
        for before, after in itertools.pairwise([*sizes][-long:])
    )
    if len(sizes) >= long and grows:
        yield finding("graph_grows", call.location, call.location)


def unused_sums(timeline: Timeline) -> Iterator[Diagnosis]:
    """Long sums of losses that went before any backward ran through them."""
    while timeline.sums.died:
        location = timeline.sums.died.pop()
        yield finding("graph_grows", location, location)


def leaks(
    timeline: Timeline, variables: Mapping[str, Any], in_use: Iterable[Any] | None = None
) -> Iterator[Diagnosis]:
    """Sums and lists among the variables that keep the graphs of many iterations alive.

    ``in_use`` are the nodes that are about to go through a backward: what belongs to them is left
    out.  None when the program has ended.
    """
    yield from unused_sums(timeline)
    with undisturbed():
        found = list(_kept_alive(timeline, variables, in_use))
    yield from found


def _kept_alive(
    timeline: Timeline, variables: Mapping[str, Any], in_use: Iterable[Any] | None
) -> Iterator[Diagnosis]:
    sums = timeline.sums.alive()
    ended, in_use = in_use is None, set(in_use or ())
    stored: dict[tuple[int, Location], list[Found]] = {}
    for found in reach(variables):
        node = found.value.grad_fn
        if node is None or node in in_use:
            continue
        total = next((sums[n] for n in _sequence_numbers(node) if n in sums), None)
        if total is not None and freed_by(node) is None:
            yield finding("graph_grows", total.location, total.location, carried_by=found.name)
        elif found.owners and isinstance(found.owners[-1], (list, deque, dict)):
            made_at = timeline.line_of(_torch.sequence_nr(node))
            if made_at is not None:
                stored.setdefault((id(found.owners[-1]), made_at), []).append(found)
    for (_, made_at), entries in stored.items():
        if len(entries) >= (_MANY if ended else LONG) and _of_many_iterations(
            timeline, entries, ended
        ):
            carried = entries[0].name.rpartition("[")[0]
            yield finding("graph_grows", made_at, made_at, carried_by=carried)


def _of_many_iterations(timeline: Timeline, entries: list[Found], ended: bool) -> bool:
    """Whether iterations lie between the entries.

    When the program has ended: or none of them had a backward, and each has a graph of its own.
    """
    nodes = [found.value.grad_fn for found in entries]
    ends = sorted(end.sequence_nr for end in timeline.steps or timeline.calls)
    if len({bisect.bisect_right(ends, _torch.sequence_nr(node)) for node in nodes}) >= LONG:
        return True
    if not ended or any(freed_by(node) is not None for node in nodes):
        return False
    first, second = (set(walk([node])[0]) for node in nodes[:2])
    shared = first & second
    return bool(shared) and all(isinstance(node, _torch.LEAF) for node in shared)


def _sequence_numbers(node: LiveNode) -> list[int]:
    """The numbers of a node and of those that few links lead to."""
    found: list[int] = []
    pending = [(node, 0)]
    for here, distance in pending:
        found.append(_torch.sequence_nr(here))
        if distance < _NEAR and len(found) < LONG:
            pending.extend((n, distance + 1) for n, _ in here.next_functions if n is not None)
    return found
