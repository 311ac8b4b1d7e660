"""Where the nodes of a trace are drawn: layers from top (leaves) to bottom (losses).

The layout is made once, of all nodes that the trace ever saw, so that nothing jumps from step to
step.  Ranks are longest paths (networkx); an edge over several ranks gets a bend at each, and the
boxes and bends of one rank are ordered by the mean place of their neighbours.  Parts of the graph
that never live at the same time, such as the iterations of a loop, share one column.  A large part
is folded: the operations nearest to the loss are drawn one by one, all earlier ones as one box.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import networkx as nx

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
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(trace.nodes)))
    graph.add_edges_from((i, j) for i, node in enumerate(trace.nodes) for j in node.next)
    leaves = [i for i, node in enumerate(trace.nodes) if node.leaf]
    rank = _ranks(graph, leaves)
    operations = graph.subgraph(set(graph) - set(leaves))
    members = sorted(nx.weakly_connected_components(operations), key=min)

    groups = [[i] for i in leaves[:MAX_LEAVES]]
    if leaves[MAX_LEAVES:]:
        groups.append(leaves[MAX_LEAVES:])
    parts: list[list[int]] = []  # of indices in groups
    for component in members:
        folded = _fold(component, rank)
        parts.append(list(range(len(groups), len(groups) + len(folded))))
        groups.extend(folded)
    texts = _texts(trace)
    boxes = [_box(trace, nodes, texts) for nodes in groups]
    box_of = {node: i for i, nodes in enumerate(groups) for node in nodes}
    links = sorted({(box_of[i], box_of[j]) for i, j in graph.edges if box_of[i] != box_of[j]})
    folded_graph = nx.DiGraph(links)
    folded_graph.add_nodes_from(range(len(groups)))
    leaf_boxes = [i for i, box in enumerate(boxes) if box.leaf]
    ranks = [rank for _, rank in sorted(_ranks(folded_graph, leaf_boxes).items())]

    # A leaf that one part uses is placed with it; those that several use stand in the top row.
    part_of = {box: i for i, part in enumerate(parts) for box in part}
    shared = []
    for leaf in leaf_boxes:
        users = {part_of[i] for i, j in links if j == leaf}
        if len(users) == 1:
            parts[users.pop()].append(leaf)
        else:
            ranks[leaf] = 0
            shared.append(leaf)

    # Bends are boxes without a node: they are ordered and placed as boxes are.
    paths = {}
    neighbours: dict[int, set[int]] = defaultdict(set)
    for i, j in links:
        path = [i]
        for between in range(ranks[i] - 1, ranks[j], -1):
            path.append(len(boxes))
            parts[part_of[i]].append(len(boxes))
            boxes.append(Box([], False, _BEND, 0.0))
            ranks.append(between)
        path.append(j)
        paths[i, j] = path
        for one, other in pairwise(path):
            neighbours[one].add(other)
            neighbours[other].add(one)

    left = 0.0
    for column in _columns(trace, members, parts):
        width = 0.0
        for part in column:
            rows = _rows(part, ranks)
            _order(rows, neighbours)
            width = max(width, _place(rows, boxes, neighbours, left))
        left += width + 2 * _GAP_X
    shared.sort(key=lambda i: (_mean(boxes, neighbours[i]), i))
    _spread(shared, boxes, {i: _mean(boxes, neighbours[i]) for i in shared})
    _stack(boxes, ranks)
    shift = min((box.x for box in boxes), default=0.0)
    for box in boxes:
        box.x = round(box.x - shift, 1)
    edges = [
        Edge(i, j, [(boxes[k].x + _BEND / 2, boxes[k].y) for k in path[1:-1]])
        for (i, j), path in paths.items()
    ]
    drawn = boxes[: len(groups)]
    return Layout(
        drawn,
        edges,
        width=max((box.x + box.width for box in boxes), default=0.0),
        height=max((box.y + box.height for box in drawn), default=0.0),
    )


def _ranks(graph: nx.DiGraph, leaves: list[int]) -> dict[int, int]:
    """Every operation lies below all that backward reaches from it, a leaf right above its user."""
    generations = nx.topological_generations(graph.reverse(copy=False))
    ranks = {node: rank for rank, nodes in enumerate(generations) for node in nodes}
    for leaf in leaves:
        ranks[leaf] = min((ranks[user] for user in graph.predecessors(leaf)), default=1) - 1
    return ranks


def _fold(component: set[int], rank: dict[int, int]) -> list[list[int]]:
    """One list for each box.  Whole ranks are folded, so that the drawing stays acyclic."""
    nodes = sorted(component, key=lambda node: (-rank[node], node))
    if len(nodes) <= MAX_OPERATIONS:
        return [[node] for node in sorted(nodes)]
    lowest = rank[nodes[MAX_OPERATIONS]] + 1
    shown = [node for node in nodes if rank[node] >= lowest]
    return [sorted(set(nodes) - set(shown))] + [[node] for node in sorted(shown)]


def _texts(trace: Trace) -> list[int]:
    """For each node, the length of the longest text that its box will ever show."""
    longest = [len(title(trace, [i])) for i in range(len(trace.nodes))]
    for step in trace.steps:
        for state in step.nodes:
            node = trace.nodes[state.node]
            if state.state == FREED or (step.raised and step.raised.node == state.node):
                length = len(title(trace, [state.node]) + "  ✗ stopped")
                longest[state.node] = max(longest[state.node], length)
            for slot, (now, _) in zip(node.slots, state.slots, strict=True):
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


def _columns(trace: Trace, members: list[set[int]], parts: list[list[int]]):
    """Sort the parts into columns: two may share one when the first dies before the second."""
    lives: dict[int, list[int]] = defaultdict(list)
    for time, step in enumerate(trace.steps):
        for state in step.nodes:
            lives[state.node].append(time)
    columns: list[list[list[int]]] = []
    ends: list[int] = []
    for component, part in zip(members, parts, strict=True):
        times = [time for node in component for time in lives[node]]
        for i, end in enumerate(ends):
            if end < min(times):
                columns[i].append(part)
                ends[i] = max(times)
                break
        else:
            columns.append([part])
            ends.append(max(times))
    return columns


def _rows(part: list[int], rank: list[int]) -> list[list[int]]:
    rows: dict[int, list[int]] = defaultdict(list)
    for box in part:
        rows[rank[box]].append(box)
    return [rows[key] for key in sorted(rows)]


def _order(rows: list[list[int]], neighbours: dict[int, set[int]], sweeps: int = 4) -> None:
    """Fewer crossings: sort each row by the mean place of its neighbours, down and up again."""
    place = {box: i / len(row) for row in rows for i, box in enumerate(row)}

    def mean_place(box: int) -> float:
        known = [place[other] for other in neighbours[box] if other in place]
        return sum(known) / len(known) if known else place[box]

    for sweep in range(sweeps):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            row.sort(key=mean_place)
            place.update({box: i / len(row) for i, box in enumerate(row)})


def _place(rows, boxes: list[Box], neighbours, left: float, sweeps: int = 6) -> float:
    """Set x within one part; returns its width."""
    part = {box for row in rows for box in row}
    for row in rows:
        _spread(row, boxes, {box: 0.0 for box in row})
    for sweep in range(sweeps):
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
    y = 0.0
    for key in sorted(heights):
        for i, box in enumerate(boxes):
            if rank[i] == key:
                box.y = y + (heights[key] - box.height) / 2
        y += heights[key] + _GAP_Y
