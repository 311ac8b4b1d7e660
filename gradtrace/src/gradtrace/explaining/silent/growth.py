"""Graphs that grow, and graphs that variables keep alive."""

import bisect
import itertools
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gradtrace import _torch
from gradtrace.autograd import source
from gradtrace.autograd.frames import Found, Location, namespace, reach, user_frames
from gradtrace.autograd.tensors import storages_in
from gradtrace.autograd.traversal import leaves_of, walk
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.evidence.carriers import (
    CONTAINERS,
    Holder,
    filled_at,
    list_of,
    name_of,
    without_index,
)
from gradtrace.explaining.silent.pending import PendingBackward, finding
from gradtrace.watching.record import Timeline, freed_by
from gradtrace.watching.running_sums import LONG, SUM_TAG, with_scaled

_GROWING = 4  # backward calls of one line, each over a larger graph
_SPENT = 3  # iterations whose freed graphs one tensor keeps alive
_MOST = 100  # variables whose graphs are searched for them
_MANY = 30  # unused graphs in one container before it counts as growing


def growing(graph: PendingBackward) -> Iterator[Diagnosis]:
    """Yield a finding if four calls of one line retained graphs, each larger than the one before.

    Their oldest node must be the same. If an optimizer steps at all, it must step between them,
    because an inner loop is unrolled on purpose. If none does, a call of ``backward`` must be
    between those of ``autograd.grad``, and calls that unroll a loop must be 16.
    """
    timeline, call = graph.timeline, graph.call
    if not call.keeps_graph:
        return
    ends = timeline.steps or [c for c in timeline.calls if c.whole and not call.whole]
    unrolls = call.creates_graph or not call.whole
    long = 4 * _GROWING if unrolls and not ends else _GROWING
    step = ends[-1].sequence_nr if ends else None
    sizes = timeline.sizes.setdefault(call.location, deque(maxlen=4 * _GROWING))
    sizes.append((len(graph.live), graph.oldest, step))
    pairs = itertools.pairwise([*sizes][-long:])
    grows = all(a[0] < b[0] and a[1] == b[1] and (step is None or a[2] != b[2]) for a, b in pairs)
    if len(sizes) >= long and grows:
        # With create_graph=True, .grad has a graph, which may be the one that grows.
        creator = next((c for c in reversed(timeline.calls) if c.creates_graph and c.whole), None)
        facts = ("larger",) if creator is None else ("creates_graph",)
        names, began_at = name_of(_carriers(graph)), (creator or call).location
        yield graph.finding("graph_grows", began_at, facts=facts, carried_by=names)
        sizes.clear()  # so that the variables are not searched again at each call


def _carriers(graph: PendingBackward) -> Iterator[Holder]:
    """Yield the variables of loops that carry a recent part of this graph to the next iteration."""
    live = set(graph.live)
    calls = [c.sequence_nr for c in graph.timeline.calls if c.location == graph.call.location]
    since = min(calls[-3:], default=0)
    for frame in user_frames(sys._getframe(1)):
        for variable in reach(namespace(frame, forget=True)) if source.loop_around(frame) else ():
            holder, node = Holder(*variable, frame), _torch.grad_fn_of(variable.value)
            if node in live and _torch.sequence_nr(node) > since and holder.carries:
                yield holder


def unused_sums(timeline: Timeline) -> Iterator[Diagnosis]:
    """Yield findings about sums of losses that were freed before any backward call used them."""
    while timeline.sums.died:
        location = timeline.sums.died.pop()
        yield finding("graph_grows", location, location)


def leaks(
    timeline: Timeline, variables: Mapping[str, Any], in_use: Iterable[Any] | None = None
) -> Iterator[Diagnosis]:
    """Yield findings about sums that were freed unused, and variables that keep many graphs alive.

    ``in_use``, the nodes of a backward call that begins, do not count; it is None at the end.
    """
    yield from unused_sums(timeline)
    sums = timeline.sums.alive()
    ended, in_use = in_use is None, set(in_use or ())
    stored: dict[tuple[int, Location], list[Found]] = {}
    grown: dict[tuple[Location | None, tuple[str, ...]], list[str]] = {}  # names by line, facts
    searched: dict[Any, tuple[str, ...] | None] = {}
    appended: dict[str, bool] = {}  # by the name of a list: whether the source appends to it
    for variable in reach(variables):
        node = _torch.grad_fn_of(variable.value)
        if node is None or node in in_use:
            continue
        name, total = variable.name, sums.get(_torch.sequence_nr(node))
        scaled = with_scaled(node)[-1].metadata.get(SUM_TAG)
        if total is None and scaled is not None and scaled.is_reported:
            continue  # it is an earlier value, or a mean, of a total that is itself reported
        made_at = timeline.line_of(_torch.sequence_nr(node))
        if node not in searched and len(searched) < _MOST:
            searched[node] = _spans_iterations(timeline, node)
        if total is not None and freed_by(node) is None:
            grown.setdefault((total.location, ()), []).append(name)
        elif made_at is not None and (facts := searched.get(node)) is not None:
            list_name = list_of(variable)
            if list_name is not None and list_name not in appended:  # the source is read once
                filled = filled_at(variable)
                appended[list_name] = filled is not None and ".append(" in filled.text
            if list_name is not None and appended[list_name]:
                name, facts = list_name, (*facts, "is_appended")
            grown.setdefault((made_at, facts), []).append(name)
        elif made_at is not None:
            for container in itertools.takewhile(_can_grow, reversed(variable.owners)):
                stored.setdefault((id(container), made_at), []).append(variable)
    for (made_at, facts), names in grown.items():
        carried = ", ".join(dict.fromkeys(names))
        yield finding("graph_grows", made_at, made_at, carried_by=carried, facts=facts)
    reported: set[int] = set()
    for (container_id, made_at), entries in stored.items():
        if (
            container_id not in reported
            and len(entries) >= (_MANY if ended else LONG)
            and _of_many_iterations(timeline, entries, ended)
        ):
            reported.add(container_id)
            carried = without_index(entries[0].name)
            yield finding("graph_grows", made_at, made_at, carried_by=carried)


def _can_grow(owner: Any) -> bool:
    """Whether an owner is a container that may hold many tensors, unlike a short window."""
    bound = getattr(owner, "maxlen", None)
    return isinstance(owner, CONTAINERS) and (bound is None or bound > _MANY)


def _spans_iterations(timeline: Timeline, node: _torch.LiveNode) -> tuple[str, ...] | None:
    """Return facts about a graph with parts of several iterations, which no call can use, or None.

    Three iterations freed parts of it, or steps that changed its leaves separate five.
    """
    nodes = walk([node])[0]
    # Optimizer steps tell apart the iterations.
    ends = [end.sequence_nr for end in timeline.steps]
    calls = {call for inner in nodes if (call := freed_by(inner)) is not None}
    iterations = {(call.location, bisect.bisect(ends, call.sequence_nr)) for call in calls}
    lines = Counter(location for location, _ in iterations if ends)
    if max(lines.values(), default=len(calls) // LONG * _SPENT) >= _SPENT:
        return ("larger",)
    leaves = storages_in(leaves_of(nodes))
    changes: dict[int, list[int]] = {}
    for step in timeline.steps:
        if step.storages and step.storages & leaves:
            changes.setdefault(id(step.optimizer()), []).append(step.sequence_nr)
    numbers = [_torch.sequence_nr(n) for n in nodes if not isinstance(n, _torch.LEAF)]
    separated = ({bisect.bisect(steps, number) for number in numbers} for steps in changes.values())
    return () if any(len(parts) > _GROWING for parts in separated) else None


def _of_many_iterations(timeline: Timeline, entries: list[Found], ended: bool) -> bool:
    """Whether the entries were made in at least ten iterations, which steps or calls separate."""
    nodes = [_torch.grad_fn_of(entry.value) for entry in entries]
    ends = sorted(end.sequence_nr for end in timeline.steps or timeline.calls)
    if len({bisect.bisect_right(ends, _torch.sequence_nr(node)) for node in nodes}) >= LONG:
        return True
    # When the program has ended, unused entries whose graphs share only leaves count, too.
    if not ended or any(freed_by(node) is not None for node in nodes):
        return False
    first, second = (set(walk([node])[0]) for node in nodes[:2])
    shared = first & second
    return bool(shared) and all(isinstance(node, _torch.LEAF) for node in shared)
