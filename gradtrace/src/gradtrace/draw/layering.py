"""The layers of a drawing, the dummy nodes of long edges, and the order within each layer.

These are the first stages of Sugiyama's method.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from gradtrace.draw.drawing import GAP_X, WIDEST_LAYER
from gradtrace.draw.plan import Plan

_ORDERINGS = 4  # sweeps down and up again


@dataclass
class Layering:
    """``ranks`` of all boxes and of the ``bends``, which are numbered after the boxes.

    ``parts`` are the boxes and bends that stand side by side with others, the last of them those
    that several use.  ``paths`` lists, for each link, the boxes and bends that it runs through.
    """

    ranks: list[int]
    parts: list[list[int]]
    paths: dict[tuple[int, int], list[int]]
    neighbours: dict[int, set[int]]


def assign_layers(
    plan: Plan, widths: list[float], lifted: set[int], abreast: int | None = None
) -> Layering:
    count = len(plan.boxes)
    ranks = _longest_path_layers(count, plan.links, plan.sources)
    parts = components(plan)
    part_of = {box: i for i, part in enumerate(parts) for box in part}

    # A source that one part uses is placed with it; those that several use, and those that are
    # ``lifted``, stand in the top rows.
    users: dict[int, set[int]] = defaultdict(set)
    for i, j in plan.links:
        if j in plan.sources:
            users[j].add(part_of[i])
    shared = []
    for source in sorted(plan.sources):
        if len(users[source]) == 1 and source not in lifted:
            (only,) = users[source]
            parts[only].append(source)
            part_of[source] = only
        else:
            shared.append(source)
            ranks[source] = 0
            part_of[source] = len(parts)
    tops = _wrapped([shared], widths)
    abreast = len(parts) if abreast is None else abreast
    below = [len(tops)] * abreast  # where the next part begins that stands there
    for number, part in enumerate(parts):
        rows: dict[int, list[int]] = defaultdict(list)
        for box in part:
            rows[ranks[box]].append(box)
        broken = _wrapped([rows[rank] for rank in sorted(rows)], widths, plan.sources)
        for rank, row in enumerate(broken, below[number % abreast]):
            for box in row:
                ranks[box] = rank
        below[number % abreast] += len(broken)
    for rank, row in enumerate(tops):
        for box in row:
            ranks[box] = rank
    # What stands below another is one part with it from here on: arrows that lead up pass that.
    parts = [[box for part in parts[k::abreast] for box in part] for k in range(abreast)]
    part_of = {box: k for k, part in enumerate([*parts, shared]) for box in part}
    parts.append(shared)

    # Bends are boxes without a node: they are ordered and placed as boxes are.  The edges of a part
    # that lead to the same box share them, or those that come from the same one if these are more.
    paths = {}
    neighbours: dict[int, set[int]] = defaultdict(set)
    trunks: dict[tuple[int, int, int], int] = {}
    far = [(i, j) for i, j in plan.links if ranks[i] > ranks[j] + 1]
    leaving, arriving = Counter(i for i, _ in far), Counter(j for _, j in far)
    for i, j in plan.links:
        bends = []
        trunk = i if leaving[i] > arriving[j] else j
        for rank in range(ranks[i] - 1, ranks[j], -1):
            part_index = part_of[i] if rank >= len(tops) else len(parts) - 1
            bend = trunks.setdefault((part_index, trunk, rank), len(ranks))
            if bend == len(ranks):
                ranks.append(rank)
                parts[part_index].append(bend)
            bends.append(bend)
        paths[i, j] = [i, *bends, j]
        for one, other in pairwise(paths[i, j]):
            neighbours[one].add(other)
            neighbours[other].add(one)
    return Layering(ranks, parts, paths, neighbours)


def _longest_path_layers(
    count: int, links: list[tuple[int, int]], sources: Iterable[int]
) -> list[int]:
    """Every box lies below all that backward reaches from it, a source right above its user."""
    users: list[list[int]] = [[] for _ in range(count)]
    waits_for = [0] * count
    for i, j in links:
        users[j].append(i)
        waits_for[i] += 1
    above = set(sources)
    ranks = [0] * count
    ready = [i for i in range(count) if not waits_for[i]]
    for box in ready:  # grows while it is read
        for user in users[box]:
            ranks[user] = max(ranks[user], ranks[box] + 1)
            waits_for[user] -= 1
            if not waits_for[user]:
                ready.append(user)
    # What builds on sources only, such as the transposition of a weight, goes down to its user.
    builds_on: list[set[int]] = [set() for _ in range(count)]
    for i, j in links:
        builds_on[i].add(j)
    for box in reversed(ready):
        if users[box] and (box in above or builds_on[box] <= above):
            ranks[box] = min(ranks[user] for user in users[box]) - 1
    return ranks


def components(plan: Plan) -> list[list[int]]:
    """The boxes that are connected, not counting connections through sources."""
    neighbours: dict[int, list[int]] = {
        i: [] for i in range(len(plan.boxes)) if i not in plan.sources
    }
    for i, j in plan.links:
        if i in neighbours and j in neighbours:
            neighbours[i].append(j)
            neighbours[j].append(i)
    parts, seen = [], set()
    for first in neighbours:
        if first not in seen:
            seen.add(first)
            part = [first]
            for box in part:  # grows while it is read
                new = dict.fromkeys(other for other in neighbours[box] if other not in seen)
                seen.update(new)
                part += new
            parts.append(part)
    return parts


def _wrapped(
    rows: list[list[int]], widths: list[float], upper: Iterable[int] = ()
) -> list[list[int]]:
    """The rows from the top, those that are too wide in several; the boxes in ``upper`` go up."""
    above = set(upper)
    broken: list[list[int]] = []
    for row in rows:
        edge = WIDEST_LAYER
        for box in sorted(row, key=lambda box: (box not in above, box)):
            if edge + widths[box] > WIDEST_LAYER:
                broken.append([])
                edge = 0.0
            broken[-1].append(box)
            edge += widths[box] + GAP_X
    return broken


def reduce_crossings(part: list[int], ranked: Layering) -> list[list[int]]:
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

    several = [row for row in rows if len(row) > 1]
    for sweep in range(_ORDERINGS):
        for row in several if sweep % 2 == 0 else reversed(several):
            row.sort(key=mean_place)
            length = len(row)
            place.update({box: i / length for i, box in enumerate(row)})
    return rows
