"""Failures that raise nothing: a gradient that will be wrong, a graph that grows.

Each detector reads what a strict watch recorded, and the graph of the backward that is about to
run; it yields findings and remembers nothing of its own.
"""

from __future__ import annotations

import bisect
import itertools
import sys
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from gradtrace import _torch, source
from gradtrace._torch import LiveNode
from gradtrace.causes import CAUSES, LIKELY, RULES
from gradtrace.diagnosis import Diagnosis
from gradtrace.frames import Found, Location, namespace, reach, user_frames
from gradtrace.graph import ALIVE, PACKED, Node, describe, storage_of, undisturbed, walk
from gradtrace.operations import LONG, checksum
from gradtrace.record import (
    GROWING,
    BackwardCall,
    Edit,
    Export,
    Memory,
    Timeline,
    Untrained,
    freed_by,
)

_MANY = 30  # graphs that nothing ever used, for a list of them to be called growing
_NEAR = 4  # links from a variable's node to the sum behind it
_FEW, _LATEST = 3, 8  # steps of an optimizer: after so many, what has no gradient is looked at
_NAMES = 4  # shown


def finding(
    cause: str,
    raised_at: Location | None,
    began_at: Location | None,
    carried_by: str | None = None,
    made_at: Location | None = None,
    evidence: Collection[str] = (),
) -> Diagnosis:
    """A diagnosis of the family ``silent``, with the first fix for which there is evidence."""
    names = {} if carried_by is None else {"it": carried_by}
    fix = next(one for one in CAUSES[cause].fixes if set(one.needs) <= {*evidence})
    return Diagnosis(
        "silent",
        cause,
        LIKELY,
        raised_at,
        began_at=began_at,
        made_at=made_at,
        advice=fix,
        names=names,
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
        yield from _recomputed_with_others(timeline, call, live, i, links[i], node)
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


def _recomputed_with_others(
    timeline: Timeline,
    call: BackwardCall,
    live: Sequence[LiveNode],
    i: int,
    links: Sequence[int],
    node: Node,
) -> Iterator[Diagnosis]:
    """A checkpoint will compute anew what this node needs, with weights that were changed since."""
    if not any(
        saved.state == PACKED and _torch.packed_by_checkpoint(_saved_tensor(live[i], saved.name))
        for saved in node.saved
    ):
        return
    saved_by = _torch.sequence_nr(live[i])
    for j in links:
        if isinstance(live[j], _torch.LEAF):
            storage = storage_of(live[j].variable)[0]
            for edit in itertools.islice(timeline.edits_since(saved_by, storage), 1):
                made_at = timeline.line_of(saved_by)
                cause = "checkpoint_recomputes_anew"
                yield finding(cause, call.location, edit.location, made_at=made_at)


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


# Parameters that never get a gradient.


def untrained(timeline: Timeline, optimizer: torch.optim.Optimizer) -> Iterator[Diagnosis]:
    """What the optimizer holds and never gets a gradient, after its first steps.

    Either the parameters were replaced and nothing leads to them any more, or a cut lies between
    them and the loss: that is looked for in the steps after these.  What no loss uses is left out.
    What runs in ``no_grad()``, or is detached outside of a module's forward, may be meant so, for a
    while or for ever: see :func:`never_trained`.
    """
    known = timeline.untrained.get(id(optimizer))
    if known is not None and known.optimizer() is not optimizer:
        known = None  # of another one, that had this address
    if known is not None and not known.places and not known.doubtful:
        return  # as mostly
    held = [one for group in optimizer.param_groups for one in group["params"]]
    if known is None:
        known = timeline.untrained[id(optimizer)] = Untrained(
            weakref.ref(optimizer), [*range(len(held))]
        )
    known.steps += 1
    known.last_step = timeline.steps[-1].location
    with _torch.no_torch_function(), undisturbed():
        known.places = _without_gradient(known.places, held)
        known.doubtful = {
            location: (places, names)
            for location, (places, names) in known.doubtful.items()
            if _without_gradient(places, held) == places
        }
        if known.steps == _FEW:
            yield from _replaced(timeline, optimizer, known, held)
        elif known.steps > _FEW:
            yield from _cut_off(timeline, known, held)


def _without_gradient(places: Iterable[int], held: Sequence[torch.Tensor]) -> list[int]:
    off = (i for i in places if i < len(held))
    return [i for i in off if held[i].requires_grad and held[i].grad is None]


def never_trained(timeline: Timeline) -> Iterator[Diagnosis]:
    """What was cut off where it may have been meant, and never got a gradient until the end."""
    for known in timeline.untrained.values():
        for location, (_, names) in known.doubtful.items():
            yield finding("never_trained", known.last_step, location, names)
        known.doubtful = {}


def _replaced(
    timeline: Timeline,
    optimizer: torch.optim.Optimizer,
    known: Untrained,
    held: list[torch.Tensor],
) -> Iterator[Diagnosis]:
    spaces = [(frame, namespace(frame, forget=True)) for frame in user_frames(sys._getframe(1))]
    reached = {id(found.value) for _, space in spaces for found in reach(space)}
    gone = [i for i in known.places if id(held[i]) not in reached]
    known.places = [i for i in known.places if id(held[i]) in reached]
    timeline.suspects.update((_torch.tensor_identity(held[i]), None) for i in known.places)
    if gone and any(id(one) in reached for one in held):
        made = (
            Location(frame.f_code.co_filename, line)
            for frame, space in spaces
            for name, value in space.items()
            if value is optimizer and (line := source.assigned_at(frame, name)) is not None
        )
        step = timeline.steps[-1].location
        yield finding("optimizer_holds_replaced", step, next(made, step))


def _cut_off(timeline: Timeline, known: Untrained, held: list[torch.Tensor]) -> Iterator[Diagnosis]:
    if not known.places:
        return
    nothing = all(one.grad is None for one in held)
    sure: dict[Location, list[int]] = {}
    doubtful: dict[Location, list[int]] = {}
    for i in known.places:
        found = timeline.suspects.get(_torch.tensor_identity(held[i]))
        if found is None or _others_train(timeline, known, held[i]):
            continue
        cut, meant = found
        location = cut.location
        if location is None or source.is_conditional(location):
            continue  # the program says when
        if not meant or (nothing and cut.how != "region"):
            sure.setdefault(location, []).append(i)
        elif location in timeline.fed and not _goes_another_way(timeline, held[i]):
            doubtful.setdefault(location, []).append(i)
    for location, places in sure.items():
        names = _names(held[i] for i in places)
        yield finding("never_trained", timeline.steps[-1].location, location, names)
    if sure or known.steps > _LATEST:
        known.doubtful = {
            location: (places, _names(held[i] for i in places))
            for location, places in doubtful.items()
        }
        for i in known.places:
            timeline.suspects.pop(_torch.tensor_identity(held[i]), None)
        known.places = []


def _others_train(timeline: Timeline, known: Untrained, parameter: torch.Tensor) -> bool:
    """Whether another optimizer has made steps with a gradient of this parameter."""
    storage = storage_of(parameter)[0]
    return any(
        step.optimizer() is not known.optimizer() and storage in (step.storages or ())
        for step in tuple(timeline.steps)
    )


def _goes_another_way(timeline: Timeline, parameter: torch.Tensor) -> bool:
    """Whether the program itself writes the parameter, or its module is in eval mode."""
    edits = timeline.edits_since(-1, storage_of(parameter)[0])
    if any(edit.last_call and not edit.by_optimizer for edit in edits):
        return True
    owners = (
        found.owners[-1]
        for frame in user_frames(sys._getframe(1))
        for found in reach(namespace(frame, forget=True))
        if found.value is parameter and found.owners
    )
    return any(isinstance(one, torch.nn.Module) and not one.training for one in owners)


def _names(parameters: Iterable[torch.Tensor]) -> str | None:
    """What the variables call them."""
    wanted = {id(one) for one in parameters}
    spaces = (namespace(frame, forget=True) for frame in user_frames(sys._getframe(1)))
    names = [one.name for space in spaces for one in reach(space) if id(one.value) in wanted]
    shown = ", ".join([*dict.fromkeys(names)][:_NAMES])
    more = f" and {len(wanted) - _NAMES} more" if len(wanted) > _NAMES else ""
    return shown + more or None


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
        # What grows may be .grad, where a whole backward gives that a graph.
        creating = (one for one in reversed(timeline.calls) if one.creates_graph and one.whole)
        began = next(creating, None)
        if began is None:
            yield finding("graph_grows", call.location, call.location)
        else:
            evidence = ("creates_graph",)
            yield finding("graph_grows", call.location, began.location, evidence=evidence)


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
