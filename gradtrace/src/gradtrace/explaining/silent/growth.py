"""Graphs that grow, and those that are kept alive."""

from __future__ import annotations

import bisect
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gradtrace import _torch
from gradtrace._torch import LiveNode
from gradtrace.autograd.frames import Found, Location, reach
from gradtrace.autograd.traversal import undisturbed, walk
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.silent.finding import finding
from gradtrace.watching.record import GROWING, BackwardCall, Timeline, freed_by
from gradtrace.watching.running_sums import LONG

_MANY = 30  # graphs that nothing ever used, for a list of them to be called growing
_NEAR = 4  # links from a variable's node to the sum behind it


def growing(timeline: Timeline, call: BackwardCall, size: int, oldest: int) -> Iterator[Diagnosis]:
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
        node = _torch.grad_fn_of(found.value)
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
    nodes = [_torch.grad_fn_of(found.value) for found in entries]
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
            pending.extend((n, distance + 1) for n, _ in _torch.edges_of(here) if n is not None)
    return found
