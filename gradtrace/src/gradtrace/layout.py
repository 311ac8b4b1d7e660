"""Where the nodes of a trace are drawn: layers from top (leaves) to bottom (losses).

The layout is made once, of all nodes that the trace ever saw, so that nothing jumps from step to
step.  Four stages make it.  *Fold*: of a large part of the graph the operations nearest to the loss
get a box each, all earlier ones share one.  *Rank*: every box lies one layer below all that
backward reaches from it, and an edge over several layers gets a bend at each.  *Order*: the boxes
and bends of one layer are sorted by the mean place of their neighbours.  *Place*: each is put as
near to its neighbours as order and gaps allow; parts that never live at the same time, such as the
iterations of a loop, share one column.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from gradtrace.graph import FREED
from gradtrace.steps import Trace

MAX_OPERATIONS = 40  # of one connected part, drawn one by one
MAX_LEAVES = 16

# In the units of an SVG whose text is 12 px of a monospaced font.
_CHARACTER = 7.3
_LINE = 16
_PADDING = 8
_GAP_X, _GAP_Y = 14, 30
_BEND = 6.0

_ORDERINGS, _PLACINGS = 4, 6  # down and up again


@dataclass
class Box:
    """A rectangle for one node, or for many folded into one; ``x``, ``y`` is its upper left corner.

    ``nodes`` are indices in ``Trace.nodes``, ``leaf`` tells whether they are leaves.
    """

    nodes: list[int]
    leaf: bool
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0


@dataclass
class Edge:
    """A line in the direction of backward, from box to box (indices) by way of ``bends``."""

    start: int
    end: int
    bends: list[tuple[float, float]]


@dataclass
class Layout:
    """All boxes and edges, and the size of the drawing."""

    boxes: list[Box]
    edges: list[Edge]
    width: float
    height: float


def title(trace: Trace, nodes: list[int]) -> str:
    """What stands at the top of a box."""
    if len(nodes) > 1:
        kind = "leaves" if trace.nodes[nodes[0]].leaf else "operations"
        return f"{len(nodes)} more {kind}"
    label = trace.nodes[nodes[0]].label
    return label if len(label) <= 30 else label[:29] + "…"


def layout(trace: Trace) -> Layout:
    """Place every node of ``trace``.

    >>> import torch
    >>> from gradtrace import trace
    >>> def program():
    ...     x = torch.ones(1, requires_grad=True)
    ...     y = x.exp()
    >>> placed = layout(trace(program))
    >>> leaf, operation = placed.boxes
    >>> leaf.y < operation.y, placed.edges
    (True, [Edge(start=1, end=0, bends=[])])
    """
    folded = _fold(trace)
    ranked = _rank(folded)
    rows = [_order(part, ranked) for part in ranked.parts]
    boxes = _boxes(trace, folded) + [Box([], False, _BEND, 0.0) for _ in ranked.bends]
    _place(boxes, rows, _columns(trace, folded), ranked)
    edges = [
        Edge(i, j, [(boxes[k].x + _BEND / 2, boxes[k].y) for k in path[1:-1]])
        for (i, j), path in ranked.paths.items()
    ]
    drawn = boxes[: len(folded.boxes)]
    return Layout(
        drawn,
        edges,
        width=max((box.x + box.width for box in boxes), default=0.0),
        height=max((box.y + box.height for box in drawn), default=0.0),
    )


@dataclass(frozen=True)
class _Folded:
    """Which nodes share a box.

    ``boxes`` are lists of nodes, the ``leaves`` first.  A part is a connected piece of the graph
    without its leaves, here the range of its boxes.  ``links`` are pairs of boxes, in the direction
    of backward.
    """

    boxes: list[list[int]]
    leaves: range
    parts: list[range]
    links: list[tuple[int, int]]


def _fold(trace: Trace) -> _Folded:
    leaves = [i for i, node in enumerate(trace.nodes) if node.leaf]
    edges = [(i, j) for i, node in enumerate(trace.nodes) for j in node.next]
    ranks = _ranks(len(trace.nodes), edges, leaves)
    boxes = [[leaf] for leaf in leaves[:MAX_LEAVES]]
    if leaves[MAX_LEAVES:]:
        boxes.append(leaves[MAX_LEAVES:])
    leaf_boxes = range(len(boxes))
    parts = []
    for component in _components(trace):
        folded = _fold_part(component, ranks)
        parts.append(range(len(boxes), len(boxes) + len(folded)))
        boxes += folded
    box_of = {node: i for i, nodes in enumerate(boxes) for node in nodes}
    links = {(box_of[i], box_of[j]) for i, j in edges if box_of[i] != box_of[j]}
    return _Folded(boxes, leaf_boxes, parts, sorted(links))


def _components(trace: Trace) -> list[list[int]]:
    """The operations that are connected, not counting connections through leaves."""
    neighbours: dict[int, list[int]] = {i: [] for i, n in enumerate(trace.nodes) if not n.leaf}
    for i in neighbours:
        for j in trace.nodes[i].next:
            if j in neighbours:
                neighbours[i].append(j)
                neighbours[j].append(i)
    components, seen = [], set()
    for first in neighbours:
        if first not in seen:
            seen.add(first)
            component = [first]
            for node in component:  # grows while it is read
                new = [other for other in neighbours[node] if other not in seen]
                seen.update(new)
                component += dict.fromkeys(new)
            components.append(component)
    return components


def _fold_part(component: list[int], ranks: list[int]) -> list[list[int]]:
    """One list for each box.  Whole ranks are folded, so that the drawing stays acyclic."""
    nodes = sorted(component, key=lambda node: (-ranks[node], node))
    if len(nodes) <= MAX_OPERATIONS:
        return [[node] for node in sorted(nodes)]
    lowest = ranks[nodes[MAX_OPERATIONS]] + 1
    shown = [node for node in nodes if ranks[node] >= lowest]
    return [sorted(set(nodes) - set(shown))] + [[node] for node in sorted(shown)]


def _ranks(count: int, links: list[tuple[int, int]], leaves: Iterable[int]) -> list[int]:
    """Every operation lies below all that backward reaches from it, a leaf right above its user."""
    users: list[list[int]] = [[] for _ in range(count)]
    waits_for = [0] * count
    for i, j in links:
        users[j].append(i)
        waits_for[i] += 1
    ranks = [0] * count
    ready = [i for i in range(count) if not waits_for[i]]
    for node in ready:  # grows while it is read
        for user in users[node]:
            ranks[user] = max(ranks[user], ranks[node] + 1)
            waits_for[user] -= 1
            if not waits_for[user]:
                ready.append(user)
    for leaf in leaves:
        ranks[leaf] = min((ranks[user] for user in users[leaf]), default=1) - 1
    return ranks


@dataclass(frozen=True)
class _Ranked:
    """The layer of every box and bend; bends are numbered after the boxes.

    ``parts`` are those of :class:`_Folded`, with their bends and the leaves that only they use;
    ``shared`` are the other leaves.  ``paths`` leads each link from box to box by way of its bends.
    """

    ranks: list[int]
    bends: range
    parts: list[list[int]]
    shared: list[int]
    paths: dict[tuple[int, int], list[int]]
    neighbours: dict[int, set[int]]


def _rank(folded: _Folded) -> _Ranked:
    count = len(folded.boxes)
    ranks = _ranks(count, folded.links, folded.leaves)
    parts = [list(part) for part in folded.parts]
    part_of = {box: i for i, part in enumerate(parts) for box in part}

    # A leaf that one part uses is placed with it; those that several use stand in the top row.
    users: dict[int, set[int]] = defaultdict(set)
    for i, j in folded.links:
        users[j].add(part_of[i])
    shared = [leaf for leaf in folded.leaves if len(users[leaf]) != 1]
    for leaf in folded.leaves:
        if len(users[leaf]) == 1:
            parts[min(users[leaf])].append(leaf)
        else:
            ranks[leaf] = 0

    # Bends are boxes without a node: they are ordered and placed as boxes are.
    paths = {}
    neighbours: dict[int, set[int]] = defaultdict(set)
    for i, j in folded.links:
        between = range(ranks[i] - 1, ranks[j], -1)
        bends = range(len(ranks), len(ranks) + len(between))
        ranks += between
        parts[part_of[i]] += bends
        paths[i, j] = [i, *bends, j]
        for one, other in pairwise(paths[i, j]):
            neighbours[one].add(other)
            neighbours[other].add(one)
    return _Ranked(ranks, range(count, len(ranks)), parts, shared, paths, neighbours)


def _order(part: list[int], ranked: _Ranked) -> list[list[int]]:
    """The rows of a part from the top.

    Fewer crossings: each row is sorted by the mean place of its neighbours.
    """
    by_rank: dict[int, list[int]] = defaultdict(list)
    for box in part:
        by_rank[ranked.ranks[box]].append(box)
    rows = [by_rank[rank] for rank in sorted(by_rank)]
    place = {box: i / len(row) for row in rows for i, box in enumerate(row)}

    def mean_place(box: int) -> float:
        known = [place[other] for other in ranked.neighbours[box] if other in place]
        return sum(known) / len(known) if known else place[box]

    for sweep in range(_ORDERINGS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            row.sort(key=mean_place)
            place.update({box: i / len(row) for i, box in enumerate(row)})
    return rows


def _boxes(trace: Trace, folded: _Folded) -> list[Box]:
    texts = _texts(trace)
    return [_box(trace, nodes, texts) for nodes in folded.boxes]


def _texts(trace: Trace) -> list[int]:
    """For each node, the length of the longest text that its box will ever show."""
    longest = [len(title(trace, [i])) for i in range(len(trace.nodes))]
    alive: set[int] = set()
    for step, changed, gone in trace.changes():
        alive.difference_update(gone)
        alive.update(state.node for state in changed)
        stopped = {state.node for state in changed if state.state == FREED}
        if step.raised and step.raised.node in alive:
            stopped.add(step.raised.node)
        for node in stopped:
            longest[node] = max(longest[node], len(title(trace, [node]) + "  ✗ stopped"))
        for state in changed:
            for slot, (now, _) in zip(trace.nodes[state.node].slots, state.slots, strict=True):
                length = len(f"■ {slot.name}  {slot.nbytes or 0:,} B  {now}")
                longest[state.node] = max(longest[state.node], length)
    return longest


def _box(trace: Trace, nodes: list[int], texts: list[int]) -> Box:
    if len(nodes) == 1:
        length, lines = texts[nodes[0]], 1 + len(needed_slots(trace, nodes[0]))
    else:
        length, lines = len("9999 alive, 9999 freed"), 2
    width = round(length * _CHARACTER + 2 * _PADDING, 1)
    return Box(nodes, trace.nodes[nodes[0]].leaf, width, lines * _LINE + 2 * _PADDING)


def needed_slots(trace: Trace, node: int) -> list[str]:
    """The names of the slots in which the node saved something."""
    return [slot.name for slot in trace.nodes[node].slots if not slot.empty]


def _columns(trace: Trace, folded: _Folded) -> list[list[int]]:
    """Sort the parts into columns: two may share one when the first dies before the second."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for time, (_, changed, gone) in enumerate(trace.changes()):
        for state in changed:
            first.setdefault(state.node, time)
            last.pop(state.node, None)
        last.update((node, time - 1) for node in gone)
    columns: list[list[int]] = []
    ends: list[int] = []
    for part, boxes in enumerate(folded.parts):
        nodes = [node for box in boxes for node in folded.boxes[box]]
        begin = min(first[node] for node in nodes)
        end = max(last.get(node, len(trace.steps)) for node in nodes)
        for i, end_before in enumerate(ends):
            if end_before < begin:
                columns[i].append(part)
                ends[i] = end
                break
        else:
            columns.append([part])
            ends.append(end)
    return columns


def _place(
    boxes: list[Box], rows: list[list[list[int]]], columns: list[list[int]], ranked: _Ranked
) -> None:
    """Set x and y of every box and bend; ``rows`` are those of each part."""
    left = 0.0
    for column in columns:
        widths = [_place_part(rows[part], boxes, ranked.neighbours, left) for part in column]
        left += max(widths) + 2 * _GAP_X
    wanted = {leaf: _mean(boxes, ranked.neighbours[leaf]) for leaf in ranked.shared}
    _spread(sorted(ranked.shared, key=lambda leaf: (wanted[leaf], leaf)), boxes, wanted)
    _stack(boxes, ranked.ranks)
    shift = min((box.x for box in boxes), default=0.0)
    for box in boxes:
        box.x = round(box.x - shift, 1)


def _place_part(
    rows: list[list[int]], boxes: list[Box], neighbours: dict[int, set[int]], left: float
) -> float:
    """Set x within one part, whose left edge is at ``left``; returns its width."""
    part = {box for row in rows for box in row}
    for row in rows:
        _spread(row, boxes, {box: 0.0 for box in row})
    for sweep in range(_PLACINGS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = {box: _mean(boxes, neighbours[box] & part - set(row)) for box in row}
            _spread(row, boxes, wanted)
    start = min(boxes[box].x for box in part)
    for box in part:
        boxes[box].x += left - start
    return max(boxes[box].x + boxes[box].width for box in part) - left


def _mean(boxes: list[Box], others: set[int]) -> float:
    """The mean of the boxes' centres."""
    centres = [boxes[i].x + boxes[i].width / 2 for i in others]
    return sum(centres) / len(centres) if centres else 0.0


def _spread(row: list[int], boxes: list[Box], wanted: dict[int, float]) -> None:
    """Put the centres of a row as near to ``wanted`` as order and gaps allow."""
    edge = float("-inf")
    for i in row:
        boxes[i].x = max(wanted[i] - boxes[i].width / 2, edge)
        edge = boxes[i].x + boxes[i].width + _GAP_X
    if row:
        drift = [boxes[i].x + boxes[i].width / 2 - wanted[i] for i in row]
        for i in row:
            boxes[i].x -= sum(drift) / len(drift)


def _stack(boxes: list[Box], rank: list[int]) -> None:
    """Set y: ranks from the top, each as high as its highest box."""
    heights: dict[int, float] = defaultdict(float)
    for i, box in enumerate(boxes):
        heights[rank[i]] = max(heights[rank[i]], box.height)
    tops, y = {}, 0.0
    for key in sorted(heights):
        tops[key] = y
        y += heights[key] + _GAP_Y
    for i, box in enumerate(boxes):
        box.y = tops[rank[i]] + (heights[rank[i]] - box.height) / 2
