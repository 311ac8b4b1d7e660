"""The layers of a drawing, the dummy nodes of long edges, and the order within each layer.

These are the first stages of Sugiyama's method. Every box is below all of its inputs. Layer 0 is at
the top, where the leaves are; links lead upward, in the direction of the backward pass.
"""

from collections import Counter, defaultdict
from collections.abc import Set
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise

from gradtrace.draw.drawing import GAP_X, WIDEST_LAYER
from gradtrace.draw.plan import Plan

_SWEEPS = 4  # over all layers, down and up again


@dataclass
class Layering:
    """The layer of every box and of every dummy node; dummies are numbered after the boxes."""

    layers: list[int]
    parts: list[list[int]]  # with their dummies; the last part has the boxes above all others
    paths: dict[tuple[int, int], list[int]]  # the boxes and dummies that the edge of a link passes
    neighbours: dict[int, set[int]]


def assign_layers(
    plan: Plan, widths: list[float], lifted: set[int], abreast: int | None = None
) -> Layering:
    """Assign a layer to every box, and insert a dummy node where an edge crosses a layer.

    ``lifted`` sources stand in the top layers even if only one part uses them. At most ``abreast``
    parts stand side by side, the others below them.
    """
    layers = _longest_path_layers(plan)
    parts, shared = _with_sources(plan, components(plan), lifted)
    top_rows = _wrapped([shared], widths)
    abreast = len(parts) if abreast is None else abreast
    next_layer = [len(top_rows)] * abreast  # at which the next part in this position begins
    for number, part in enumerate(parts):
        rows: dict[int, list[int]] = defaultdict(list)
        for box in part:
            rows[layers[box]].append(box)
        wrapped = _wrapped([rows[layer] for layer in sorted(rows)], widths, plan.sources)
        for layer, row in enumerate(wrapped, next_layer[number % abreast]):
            for box in row:
                layers[box] = layer
        next_layer[number % abreast] += len(wrapped)
    for layer, row in enumerate(top_rows):
        for box in row:
            layers[box] = layer
    # Parts below one another are one part from here on, because edges to the top pass them all.
    parts = [[box for part in parts[k::abreast] for box in part] for k in range(abreast)]
    return _insert_dummies(plan, layers, [*parts, shared], len(top_rows))


def _with_sources(
    plan: Plan, parts: list[list[int]], lifted: set[int]
) -> tuple[list[list[int]], list[int]]:
    """Add to each part the sources that only it uses; return parts, and the remaining sources."""
    part_of = {box: i for i, part in enumerate(parts) for box in part}
    users: dict[int, set[int]] = defaultdict(set)
    for i, j in plan.links:
        if j in plan.sources:
            users[j].add(part_of[i])
    shared = []
    for source in sorted(plan.sources):
        if len(users[source]) == 1 and source not in lifted:
            (only,) = users[source]
            parts[only].append(source)
        else:
            shared.append(source)
    return parts, shared


def _insert_dummies(
    plan: Plan, layers: list[int], parts: list[list[int]], top_layers: int
) -> Layering:
    """Insert a dummy node into every layer that an edge crosses.

    Edges of one part to the same box share their dummies, or edges from the same box if there are
    more of them.
    """
    part_of = {box: k for k, part in enumerate(parts) for box in part}
    paths = {}
    neighbours: dict[int, set[int]] = defaultdict(set)
    trunks: dict[tuple[int, int, int], int] = {}
    long_links = [(i, j) for i, j in plan.links if layers[i] > layers[j] + 1]
    leaving, arriving = Counter(i for i, _ in long_links), Counter(j for _, j in long_links)
    for i, j in plan.links:
        dummies = []
        trunk = i if leaving[i] > arriving[j] else j
        for layer in range(layers[i] - 1, layers[j], -1):
            part_index = part_of[i] if layer >= top_layers else len(parts) - 1
            dummy = trunks.setdefault((part_index, trunk, layer), len(layers))
            if dummy == len(layers):
                layers.append(layer)
                parts[part_index].append(dummy)
            dummies.append(dummy)
        paths[i, j] = [i, *dummies, j]
        for upper, lower in pairwise(paths[i, j]):
            neighbours[upper].add(lower)
            neighbours[lower].add(upper)
    return Layering(layers, parts, paths, neighbours)


def _longest_path_layers(plan: Plan) -> list[int]:
    """Return layers in which boxes are below their inputs, sources right above their first user."""
    users: list[list[int]] = [[] for _ in plan.boxes]
    inputs: list[set[int]] = [set() for _ in plan.boxes]
    for i, j in plan.links:
        users[j].append(i)
        inputs[i].add(j)
    layers = [0] * len(plan.boxes)
    order = [*TopologicalSorter(dict(enumerate(inputs))).static_order()]
    for box in order:
        layers[box] = max((layers[j] + 1 for j in inputs[box]), default=0)
    # A box whose inputs are sources only, such as the transpose of a weight, moves to its user.
    for box in reversed(order):
        if users[box] and (box in plan.sources or inputs[box] <= plan.sources):
            layers[box] = min(layers[user] for user in users[box]) - 1
    return layers


def components(plan: Plan) -> list[list[int]]:
    """Return the connected components of the boxes without the sources."""
    neighbours: dict[int, list[int]] = {
        i: [] for i in range(len(plan.boxes)) if i not in plan.sources
    }
    for i, j in plan.links:
        if i in neighbours and j in neighbours:
            neighbours[i].append(j)
            neighbours[j].append(i)
    parts, visited = [], set()
    for first in neighbours:
        if first not in visited:
            visited.add(first)
            part = [first]
            for box in part:  # grows while it is read
                new = dict.fromkeys(k for k in neighbours[box] if k not in visited)
                visited.update(new)
                part += new
            parts.append(part)
    return parts


def _wrapped(
    rows: list[list[int]], widths: list[float], first: Set[int] = frozenset()
) -> list[list[int]]:
    """Break rows wider than ``WIDEST_LAYER``; boxes in ``first`` go to the upper new rows."""
    wrapped: list[list[int]] = []
    for row in rows:
        edge = WIDEST_LAYER
        for box in sorted(row, key=lambda box: (box not in first, box)):
            if edge + widths[box] > WIDEST_LAYER:
                wrapped.append([])
                edge = 0.0
            wrapped[-1].append(box)
            edge += widths[box] + GAP_X
    return wrapped


def reduce_crossings(part: list[int], layering: Layering) -> list[list[int]]:
    """Return the rows of a part from the top, each sorted by the barycenter heuristic."""
    by_layer: dict[int, list[int]] = defaultdict(list)
    for box in part:
        by_layer[layering.layers[box]].append(box)
    rows = [by_layer[layer] for layer in sorted(by_layer)]
    position = {box: i / len(row) for row in rows for i, box in enumerate(row)}

    def barycenter(box: int) -> float:
        positions = [position[n] for n in layering.neighbours[box] if n in position]
        return sum(positions) / len(positions) if positions else position[box]

    movable = [row for row in rows if len(row) > 1]
    for sweep in range(_SWEEPS):
        for row in movable if sweep % 2 == 0 else reversed(movable):
            row.sort(key=barycenter)
            length = len(row)
            position.update({box: i / length for i, box in enumerate(row)})
    return rows
