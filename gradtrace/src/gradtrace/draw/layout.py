"""Where everything is drawn: layers from top (leaves) to bottom (losses), each thing at its home.

The layout is made once, of all that was ever there, so that nothing jumps from step to step.  Four
stages make it.  *Fold* (:mod:`gradtrace.draw.fold`): a large graph becomes several views of a few
boxes, each of which stands for a node or for a group with a view of its own.  *Rank*: every box
lies one layer below all that backward reaches from it, a layer that is too wide is broken like a
line of text, an edge over several layers passes through each, and a folded drawing that is too high
goes on at the top of a next column.  *Order*: the boxes of one layer are sorted by the mean place
of their neighbours.  *Place*: each is put as near to its neighbours as order and gaps allow; parts
that never live at the same time, such as the iterations of a loop, share one column.

A tensor is drawn to the right of its home, the box of the node that made it or first saved it.  Of
a group, only those are that the graph hands on over its border.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from gradtrace.draw.fold import Group, View, views
from gradtrace.draw.scene import Scene, clipped

# In the units of an SVG whose text is 12 px of a monospaced font.
CHARACTER = 7.3
LINE = 16
PADDING = 8
SMALL = 6.1  # a character of what is written below a box, 10 px
BESIDE = 7.0  # from the edge that arrives below a box to this text
_HEAD = 7.0  # below a box, for the head of the arrow that arrives there
_LABEL = 13.0  # the same with a text beside it
_END = 16.0  # below a box that nothing builds on
_FRAME = 10.0  # above and below the rows of a box, together
_GAP_X, _GAP_Y = 16, 9
_WIDEST = 640.0  # of a row, where it can be broken
PANEL = (670.0, 780.0)  # width and height that can be read at once, on a page of 1440 × 900
_BEND = 8.0
_TURN = 36.0  # between two columns, and above and below them: for edges from one to the next
_LANE = 6.0

_TO_THING = 28.0  # from a box to its things: room for the strings
_THING_TEXT = "999.9 MB"
_THING_HEIGHT = 22.0
NAMES = 9.0  # from a tensor to the names of its variables
_GROWTH = (44.0, 26.0)  # of the largest thing, in width and height
_BETWEEN_THINGS = 6.0
_MOST_THINGS = 4  # of one folded box

_STUBS = 5  # neighbours of an open group that are drawn, before it and after it
_BAR = 8.0  # below the rows of a folded box: how much it holds
_STEPS_TEXT = len("steps 20 to 49")
_FOLDED_TEXT = len("99.9 kB, 512 B shared")

_ORDERINGS, _PLACINGS = 4, 6  # down and up again


@dataclass
class Box:
    """A rectangle for a node, a leaf, a group, or for what lies outside of an open group.

    ``x``, ``y`` is its upper left corner.  ``nodes`` are indices in the scene, ``view`` is the
    index of the view that a click leads to, ``rows`` the number of rows below the title.  ``made``
    are the shapes of what it hands on last, to be written below it; ``end`` tells that nothing
    builds on that.
    """

    kind: str
    title: str
    nodes: list[int]
    view: int | None
    rows: int
    width: float
    height: float
    made: str = ""
    end: bool = False
    x: float = 0.0
    y: float = 0.0


@dataclass
class Thing:
    """A tensor (index in the scene), at home with box ``box``.

    Its area grows with its bytes; to the right is ``room`` for the names of variables, which begin
    :data:`NAMES` from it.
    """

    tensor: int
    box: int
    width: float
    height: float
    room: float
    x: float = 0.0
    y: float = 0.0


@dataclass
class Edge:
    """A line in the direction of backward, from box to box (indices) by way of ``bends``."""

    start: int
    end: int
    bends: list[tuple[float, float]]


@dataclass
class Drawing:
    """One view with the place of everything; ``parent`` is the index of the view around it.

    ``like`` is the same number for drawings of the same kinds of boxes in the same places.
    """

    title: str
    parent: int | None
    width: float
    height: float
    boxes: list[Box]
    things: list[Thing]
    edges: list[Edge]
    like: int


def layout(scene: Scene) -> list[Drawing]:
    """Place every node of the scene: the first view, and one for each group that can be opened.

    >>> import torch
    >>> from gradtrace import trace
    >>> from gradtrace.player.trace_scene import scene_of
    >>> def program():
    ...     x = torch.ones(1, requires_grad=True)
    ...     y = x.exp()
    >>> (view,) = layout(scene_of(trace(program)))
    >>> leaf, operation = view.boxes
    >>> leaf.y < operation.y, [(edge.start, edge.end) for edge in view.edges]
    (True, [(1, 0)])
    """
    users: list[list[int]] = [[] for _ in scene.nodes]
    for i, node in enumerate(scene.nodes):
        for j in node.next:
            users[j].append(i)
    at_home: dict[int, list[int]] = defaultdict(list)
    for k, tensor in enumerate(scene.tensors):
        if tensor is not None:
            at_home[tensor.home].append(k)
    largest = max((t.nbytes for t in scene.tensors if t is not None), default=0)

    drawings: list[Drawing] = []
    plans: list[_Plan] = []
    placed: dict[object, _Placed] = {}

    tried: list[tuple[list[int | Group], _Plan, _Placed]] = []

    def excess(view: View) -> float:
        plan = _plan(scene, view, None if view.parent is None else plans[view.parent], users)
        _add_things(scene, plan, at_home, largest)
        key = plan.key()
        if key not in placed:  # the steps of a loop look alike
            placed[key] = replace(_place(plan), number=len(placed))
        tried.append((view.boxes, plan, placed[key]))
        return placed[key].excess

    for view in views(scene, excess):
        plan, places = next((plan, at) for boxes, plan, at in tried if boxes is view.boxes)
        tried.clear()
        for box, opens in zip(plan.boxes, view.opens, strict=False):  # beyond them are stubs
            box.view = opens
        plans.append(plan)
        drawings.append(places.drawing(plan, view))
    return drawings


# Which boxes a view has


@dataclass
class _Plan:
    """A view before it has places.

    ``where`` maps nodes to boxes, also those outside that are drawn as a stub; ``outside`` maps
    these to the box that they are in where they are inside.  ``links`` are pairs of boxes, in the
    direction of backward.  ``sources`` are boxes that stand above what uses them.
    """

    boxes: list[Box]
    where: dict[int, int]
    outside: dict[int, Box]
    links: list[tuple[int, int]]
    sources: set[int]
    lives: list[tuple[int, int]]
    things: list[Thing] = field(default_factory=list)

    def key(self) -> object:
        """Equal for views that are placed alike."""
        times = sorted({time for life in self.lives for time in life})
        order = {time: i for i, time in enumerate(times)}
        return (
            tuple((box.kind, box.width, box.height, below(box)) for box in self.boxes),
            tuple(self.links),
            tuple(sorted(self.sources)),
            tuple((order[first], order[last]) for first, last in self.lives),
            tuple((thing.box, thing.width, thing.height, thing.room) for thing in self.things),
        )


def _plan(
    scene: Scene,
    view: View,
    around: _Plan | None,
    users: list[list[int]],
) -> _Plan:
    nodes = scene.nodes
    boxes = [_box(scene, view, member) for member in view.boxes]
    for box in boxes:
        last = _last(scene, box, users)
        if box.kind == "leaf" or not nodes[last].leaf:
            box.made, box.end = nodes[last].made, not (nodes[last].leaf or users[last])
    where = {node: number for number, box in enumerate(boxes) for node in box.nodes}
    inside = len(boxes)
    outside: dict[int, Box] = {}
    links: set[tuple[int, int]] = set()
    # Nodes outside, with the boxes that they meet: what these build on, and what uses them.
    before: dict[int, set[int]] = defaultdict(set)
    after: dict[int, set[int]] = defaultdict(set)
    here = where.get
    for i, own in where.items():
        for j in nodes[i].next:
            other = here(j)
            if other is None:
                before[j].add(own)
            elif other != own:
                links.add((own, other))
        for j in users[i]:
            if j not in where:
                after[j].add(own)
    if around is not None:
        links |= _stubs(scene, view, boxes, where, outside, around, (before, after))
    sources = {i for i in range(inside) if all(scene.nodes[n].leaf for n in boxes[i].nodes)}
    starts = {i for i, _ in links}
    sources |= {i for i in range(inside, len(boxes)) if i not in starts}
    lives = []
    for box in boxes:
        begins, ends = zip(*map(scene.lives.__getitem__, box.nodes), strict=True)
        lives.append((min(begins), max(ends)))
    return _Plan(boxes, where, outside, sorted(links), sources, lives)


def _box(scene: Scene, view: View, member: int | Group) -> Box:
    if isinstance(member, Group):
        title = clipped(_within(view, member.title))
        count = f"{member.size} nodes, {member.size} freed"
        length, rows = max(len(title), len(count), _FOLDED_TEXT), 2
        kind, nodes = "group", list(member.nodes())
    else:
        node = scene.nodes[member]
        title = clipped(_within(view, node.label) if node.leaf else node.label)
        length, rows = max(len(title), node.text), node.rows
        kind, nodes = "leaf" if node.leaf else "node", [member]
    width = round(length * CHARACTER + 2 * PADDING, 1)
    height = (1 + rows) * LINE + _FRAME + (_BAR if kind == "group" else 0)
    return Box(kind, title, nodes, None, rows, width, height)


def _last(scene: Scene, box: Box, users: list[list[int]]) -> int:
    """The last node of a box that others build on; its last node, where none do."""
    last = box.nodes[-1]
    if not users[last] and not scene.nodes[last].leaf:
        within = set(box.nodes)
        for node in reversed(box.nodes):
            if not scene.nodes[node].leaf and not within.issuperset(users[node]):
                return node
    return last


def below(box: Box) -> str:
    """What is written below a box, right of its middle: the shape of what it hands on."""
    return f"output {box.made}".rstrip() if box.end else box.made


def _within(view: View, title: str) -> str:
    """A name without the module, or whose steps it is, that is open."""
    return title.removeprefix("".join(f"{part}." for part in view.path)).removesuffix(view.of)


def _stubs(
    scene: Scene,
    view: View,
    boxes: list[Box],
    where: dict[int, int],
    outside: dict[int, Box],
    around: _Plan,
    neighbours: tuple[Mapping[int, set[int]], Mapping[int, set[int]]],
) -> set[tuple[int, int]]:
    """Add boxes for the neighbours of an open group, as the view around it shows them.

    Those that several boxes use alike are one, so that their edges do not cross.  ``neighbours``
    are the nodes before the group and those after it, with the boxes that each of them meets.
    """
    # Nodes outside, by the box that they are in; beside single nodes each leaf is one of its own.
    one_by_one = all(box.kind != "group" for box in boxes)
    sides: tuple[dict[tuple[int, int], set[int]], ...] = defaultdict(set), defaultdict(set)
    meets: dict[tuple[int, int, int], set[int]] = defaultdict(set)
    homes: dict[int, Box] = {}
    for number, outer in enumerate(neighbours):
        for j, met in outer.items():
            home = around.outside.get(j) or around.boxes[around.where[j]]
            outside[j] = homes[id(home)] = home
            leaf = j if number == 0 and one_by_one and scene.nodes[j].leaf else -1
            sides[number][id(home), leaf].add(j)
            meets[number, id(home), leaf] |= met
    for number, side in enumerate(sides):
        alike: dict[object, list[tuple[int, int]]] = defaultdict(list)
        for key in side:
            met = meets[number, *key]
            apart = len(met) == 1 and len(side) <= _STUBS
            alike[key if apart else frozenset(met)].append(key)
        stubs = list(alike.values())
        if len(stubs) > _STUBS:
            stubs = [*stubs[: _STUBS - 1], [key for keys in stubs[_STUBS - 1 :] for key in keys]]
        for keys in stubs:
            nodes = sorted({node for key in keys for node in side[key]})
            where.update(dict.fromkeys(nodes, len(boxes)))
            first, leaf = keys[0]
            home = homes[first]
            title = home.title if leaf < 0 else scene.nodes[leaf].label
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            title = clipped(_within(view, title), len(more)) + more
            leads_to = view.parent if home.view is None or more else home.view
            # Of steps side by side all look alike, whatever the numbers of those beside them.
            length = max(len(title), _STEPS_TEXT if home.kind == "group" else 0)
            width = round(length * CHARACTER + 2 * PADDING, 1)
            height = LINE + _FRAME
            boxes.append(Box("outside", title, nodes, leads_to, 0, width, height))
    before, after = neighbours
    return {(box, where[j]) for j, met in before.items() for box in met} | {
        (where[j], box) for j, met in after.items() for box in met
    }


def _add_things(scene: Scene, plan: _Plan, at_home: Mapping[int, list[int]], largest: int) -> None:
    for number, box in enumerate(plan.boxes):
        candidates = [k for node in box.nodes for k in at_home.get(node, ())]
        if box.kind != "node":
            candidates = [k for k in candidates if _passes(scene, plan, k, number)][-_MOST_THINGS:]
        for k in candidates:
            tensor = scene.tensors[k]
            assert tensor is not None
            if tensor.life is not None:
                begin, end = plan.lives[number]
                plan.lives[number] = min(begin, tensor.life[0]), max(end, tensor.life[1])
            share = (tensor.nbytes / largest) ** 0.5 if largest else 0.0
            plan.things.append(
                Thing(
                    k,
                    number,
                    round(len(_THING_TEXT) * CHARACTER + _GROWTH[0] * share, 1),
                    round(_THING_HEIGHT + _GROWTH[1] * share, 1),
                    round(NAMES + tensor.room * CHARACTER, 1) if tensor.named else 0.0,
                )
            )


def _passes(scene: Scene, plan: _Plan, k: int, home: int) -> bool:
    """Whether a tensor of a folded box is seen from outside of it."""
    tensor = scene.tensors[k]
    assert tensor is not None
    saved = {plan.where[i] for i in tensor.savers if i in plan.where} - {home}
    if any(plan.boxes[i].kind == "node" for i in saved):
        return True
    if tensor.data or not tensor.named or plan.boxes[home].kind != "group":
        return False
    return bool(saved or _ends(plan, home))


def _ends(plan: _Plan, box: int) -> bool:
    """Whether nothing builds on a box."""
    return all(end != box for _, end in plan.links)


# Rank


@dataclass
class _Ranked:
    """``ranks`` of all boxes and of the ``bends``, which are numbered after the boxes.

    ``parts`` are the boxes and bends that stand side by side with others, the last of them those
    that several use.  ``paths`` lists, for each link, the boxes and bends that it runs through.
    """

    ranks: list[int]
    parts: list[list[int]]
    paths: dict[tuple[int, int], list[int]]
    neighbours: dict[int, set[int]]


def _rank(
    plan: _Plan, widths: list[float], lifted: set[int], abreast: int | None = None
) -> _Ranked:
    count = len(plan.boxes)
    ranks = _ranks(count, plan.links, plan.sources)
    parts = _parts(plan)
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
    tops = _broken([shared], widths)
    abreast = len(parts) if abreast is None else abreast
    below = [len(tops)] * abreast  # where the next part begins that stands there
    for number, part in enumerate(parts):
        rows: dict[int, list[int]] = defaultdict(list)
        for box in part:
            rows[ranks[box]].append(box)
        broken = _broken([rows[rank] for rank in sorted(rows)], widths, plan.sources)
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
    return _Ranked(ranks, parts, paths, neighbours)


def _ranks(count: int, links: list[tuple[int, int]], sources: Iterable[int]) -> list[int]:
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


def _parts(plan: _Plan) -> list[list[int]]:
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


def _broken(
    rows: list[list[int]], widths: list[float], upper: Iterable[int] = ()
) -> list[list[int]]:
    """The rows from the top, those that are too wide in several; the boxes in ``upper`` go up."""
    above = set(upper)
    broken: list[list[int]] = []
    for row in rows:
        edge = _WIDEST
        for box in sorted(row, key=lambda box: (box not in above, box)):
            if edge + widths[box] > _WIDEST:
                broken.append([])
                edge = 0.0
            broken[-1].append(box)
            edge += widths[box] + _GAP_X
    return broken


# Order


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

    several = [row for row in rows if len(row) > 1]
    for sweep in range(_ORDERINGS):
        for row in several if sweep % 2 == 0 else reversed(several):
            row.sort(key=mean_place)
            length = len(row)
            place.update({box: i / length for i, box in enumerate(row)})
    return rows


# Place


@dataclass(slots=True)
class _Unit:
    """A box with its things, or a bend; edges meet it at ``x + middle``.

    ``height`` is that of the box or of its things, whose middles are level; ``foot`` is what it
    takes below that for arrows and the text beside them.
    """

    width: float
    height: float
    middle: float
    foot: float = 0.0
    x: float = 0.0
    top: float = 0.0  # of its row
    level: float = 0.0  # where the middles of its row are
    bottom: float = 0.0


@dataclass
class _Placed:
    """The places of a plan: corners of boxes and things, bends of each link, size of it all.

    ``number`` tells it from those of other plans.
    """

    boxes: list[tuple[float, float]]
    things: list[tuple[float, float]]
    bends: dict[tuple[int, int], list[tuple[float, float]]]
    width: float
    height: float
    number: int = -1

    @property
    def excess(self) -> float:
        """How many times larger than its panel it is; at most 1 where it fits."""
        return max(self.width / PANEL[0], self.height / PANEL[1])

    def drawing(self, plan: _Plan, view: View) -> Drawing:
        for box, (x, y) in zip(plan.boxes, self.boxes, strict=True):
            box.x, box.y = x, y
        for thing, (x, y) in zip(plan.things, self.things, strict=True):
            thing.x, thing.y = x, y
        edges = [Edge(i, j, self.bends[i, j]) for i, j in plan.links]
        title = clipped(view.group.title)
        size = self.width, self.height
        return Drawing(title, view.parent, *size, plan.boxes, plan.things, edges, self.number)


def _place(plan: _Plan) -> _Placed:
    """Find the place of every box, thing and bend, in the first of some ways that fits its panel.

    What only parameters connect stands side by side, where there is room for that, or else beneath
    one another.  Where it is too high, what several boxes use stands above all columns.
    """
    leaves = {i for i in plan.sources if plan.boxes[i].kind != "group"}
    users = Counter(end for _, end in plan.links)
    common = {i for i in plan.sources if users[i] > 1}
    best = _placed(plan, set())
    abreast = len(_parts(plan))
    while best.excess > 1.0 and best.width > PANEL[0] and abreast > 1:
        abreast -= 1
        best = min(best, _placed(plan, set(), abreast), key=lambda placed: placed.excess)
    for sources, lifted in (
        (plan.sources, common),
        (leaves, set[int]()),
        (leaves, common & leaves),
    ):
        if best.excess <= 1.0:
            break
        if lifted or sources < plan.sources:
            placed = _placed(replace(plan, sources=sources), lifted)
            best = min(best, placed, key=lambda placed: placed.excess)
    return best


def _placed(plan: _Plan, lifted: set[int], abreast: int | None = None) -> _Placed:
    """Place a plan; ``lifted`` are sources that stand above all columns.

    Of its parts at most ``abreast`` stand side by side, the others below them.
    """
    things: dict[int, list[int]] = defaultdict(list)
    for k, thing in enumerate(plan.things):
        things[thing.box].append(k)
    units = [_unit(box, [plan.things[k] for k in things[i]]) for i, box in enumerate(plan.boxes)]
    ranked = _rank(plan, [unit.width for unit in units], lifted, abreast)
    units += [_Unit(_BEND, 0.0, _BEND / 2) for _ in ranked.ranks[len(units) :]]
    rows = [_order(part, ranked) for part in ranked.parts]
    above = sum(_row_height(row, units) + _GAP_Y for row in rows[-1])
    parts = [_in_columns(part, units, above) for part in rows[:-1]]
    _drop_bends(parts, ranked, len(plan.boxes))
    bends = range(len(plan.boxes), len(units))
    _place_across(units, parts, rows[-1], _columns(plan, ranked), ranked, bends)
    height = _place_down(units, parts, rows[-1])

    boxes, placed = [], [(0.0, 0.0)] * len(plan.things)
    for i, box in enumerate(plan.boxes):
        unit = units[i]
        boxes.append((round(unit.x, 1), round(unit.level - box.height / 2, 1)))
        down = unit.level - _stack_height([plan.things[k] for k in things[i]]) / 2
        for k in things[i]:
            placed[k] = (round(unit.x + _reach(box) + _TO_THING, 1), round(down, 1))
            down += plan.things[k].height + _BETWEEN_THINGS
    ways = _ways(units, boxes, parts, ranked)
    width = max((unit.x + unit.width for unit in units), default=0.0)
    for box, (x, _) in zip(plan.boxes, boxes, strict=True):
        width = max(width, x + _text_end(box))
    return _Placed(boxes, placed, ways, round(width, 1), round(height, 1))


def _in_columns(rows: list[list[int]], units: list[_Unit], above: float) -> list[list[list[int]]]:
    """The rows of a part, in as few columns as fit the panel, or come nearest to that.

    ``above`` is the height of what stands over them.
    """
    heights = [_row_height(row, units) + _GAP_Y for row in rows]
    widths = [_row_width(row, units) for row in rows]
    least, best = float("inf"), [rows]
    for count in range(1, len(rows) + 1):
        # Each column takes what brings it nearest to its share.
        columns: list[list[int]] = [[] for _ in range(count)]
        seen, total = 0.0, sum(heights)
        for row, height in enumerate(heights):
            columns[min(int((seen + height / 2) / total * count), count - 1)].append(row)
            seen += height
        columns = [column for column in columns if column]
        width = sum(max(widths[row] for row in column) + _TURN for column in columns) - _TURN
        highest = max(sum(heights[row] for row in column) for column in columns)
        height = above + highest + 2 * _TURN * (len(columns) > 1) - _GAP_Y
        excess = max(width / PANEL[0], height / PANEL[1])
        if excess < least:
            least, best = excess, [[rows[row] for row in column] for column in columns]
        if excess <= 1.0 or width > 2 * PANEL[0]:
            break
    return best


def _drop_bends(parts: list[list[list[list[int]]]], ranked: _Ranked, boxes: int) -> None:
    """Leave out the bends of edges to what stands above all columns, in columns before their own.

    Such an edge leads straight up.  Bends are numbered after the ``boxes``.
    """
    column_of = _column_of(parts)
    for (start, end), path in ranked.paths.items():
        if end not in column_of:
            own = [k for k in path if column_of.get(k, column_of[start]) == column_of[start]]
            ranked.paths[start, end] = own
    used = {k for path in ranked.paths.values() for k in path} | set(range(boxes))
    for columns in parts:
        for rows in columns:
            rows[:] = [kept for row in rows if (kept := [k for k in row if k in used])]
        columns[:] = [rows for rows in columns if rows]


def _column_of(parts: list[list[list[list[int]]]]) -> dict[int, tuple[int, int]]:
    """For each box and bend its part, and its column there."""
    return {
        box: (part, column)
        for part, columns in enumerate(parts)
        for column, rows in enumerate(columns)
        for row in rows
        for box in row
    }


def _ways(
    units: list[_Unit],
    boxes: list[tuple[float, float]],
    parts: list[list[list[list[int]]]],
    ranked: _Ranked,
) -> dict[tuple[int, int], list[tuple[float, float]]]:
    """The bends of each link; ``boxes`` are the corners of boxes.

    Within a row every edge runs straight up, past boxes, texts and tensors; it turns between rows.
    From one column to the one before it, an edge runs over the top, between the two, and below.
    """
    column_of = _column_of(parts)
    edges = {
        place: (
            min(units[box].x for row in rows for box in row),
            min(units[box].top for row in rows for box in row),
            max(units[box].bottom for row in rows for box in row),
        )
        for part, columns in enumerate(parts)
        for column, rows in enumerate(columns)
        for place in [(part, column)]
    }
    lanes: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    ways = {}
    for link, path in ranked.paths.items():
        start, end = link
        points: list[tuple[float, float]] = []
        if round(units[start].top, 1) < boxes[start][1]:
            points.append((units[start].x + units[start].middle, units[start].top))
        for before, k in pairwise(path):
            here, there = column_of.get(before), column_of.get(k)
            if here is not None and there is not None and here != there:
                known = lanes[here]
                lane = _LANE * min(known.setdefault(k, len(known)), 4)
                left, top, _ = edges[here]
                bottom = edges[there][2]
                between = left - _LANE - lane
                points += [
                    (units[before].x + units[before].middle, top - _LANE - lane),
                    (between, top - _LANE - lane),
                    (between, bottom + _LANE + lane),
                    (units[k].x + units[k].middle, bottom + _LANE + lane),
                ]
            if k != end:
                points += [(units[k].x + _BEND / 2, y) for y in (units[k].bottom, units[k].top)]
        points.append((units[end].x + units[end].middle, units[end].bottom))
        ways[link] = [(round(x, 1), round(y, 1)) for x, y in points]
    return ways


def _unit(box: Box, things: list[Thing]) -> _Unit:
    foot = _END if box.end else _LABEL if box.made else _HEAD
    width, height = _reach(box), box.height
    if things:
        width += _TO_THING + max(thing.width + thing.room for thing in things)
        height = max(height, _stack_height(things))
    return _Unit(width, height, box.width / 2, max(0.0, foot - (height - box.height) / 2))


def _reach(box: Box) -> float:
    """The width of a box, or more where what is written below it would touch its neighbour."""
    return max(box.width, _text_end(box) - _GAP_X + _LANE)


def _text_end(box: Box) -> float:
    """Where the text below a box ends, from its left edge."""
    text = below(box)
    return box.width / 2 + BESIDE + SMALL * len(text) if text else 0.0


def _stack_height(things: list[Thing]) -> float:
    return sum(thing.height for thing in things) + _BETWEEN_THINGS * max(0, len(things) - 1)


def _columns(plan: _Plan, ranked: _Ranked) -> list[list[int]]:
    """Sort the parts into columns: two may share one when the first dies before the second."""
    columns: list[list[int]] = []
    ends: list[int] = []
    for part, members in enumerate(ranked.parts[:-1]):
        lives = [plan.lives[box] for box in members if box < len(plan.boxes)]
        begin, end = min(first for first, _ in lives), max(last for _, last in lives)
        for i, end_before in enumerate(ends):
            if end_before < begin:
                columns[i].append(part)
                ends[i] = end
                break
        else:
            columns.append([part])
            ends.append(end)
    return columns


def _place_across(
    units: list[_Unit],
    parts: list[list[list[list[int]]]],
    shared: list[list[int]],
    columns: list[list[int]],
    ranked: _Ranked,
    bends: range,
) -> None:
    """Set x of every unit; ``parts`` has the columns of each and their rows."""
    left = 0.0
    for column in columns:
        widest = 0.0
        for part in column:
            for place in (_straight, _close):  # straight edges may take too much room
                edge = left
                for rows in parts[part]:
                    edge += place(rows, units, ranked.neighbours, edge, bends) + _TURN
                if edge - _TURN - left <= PANEL[0]:
                    break
            widest = max(widest, edge - _TURN - left)
        left += widest + 2 * _GAP_X
    for row in shared:
        wanted = {
            box: _mean([units[other] for other in ranked.neighbours[box] - set(row)]) for box in row
        }
        row.sort(key=lambda box: (wanted[box], box))
        _spread([units[box] for box in row], [wanted[box] for box in row])
    shift = min((unit.x for unit in units), default=0.0)
    for unit in units:
        unit.x -= shift


def _straight(
    rows: list[list[int]],
    units: list[_Unit],
    neighbours: dict[int, set[int]],
    left: float,
    bends: range,
) -> float:
    """Set x within one column, whose left edge is at ``left``, each unit near to its neighbours.

    Returns its width.
    """
    part = {box for row in rows for box in row}
    placed = [[units[box] for box in row] for row in rows]
    near = [
        [
            [units[other] for other in _near(box, neighbours[box] & part - set(row), bends)]
            for box in row
        ]
        for row in rows
    ]
    down = list(zip(placed, near, strict=True))
    for row in placed:
        _spread(row, [0.0] * len(row))
    for sweep in range(_PLACINGS):
        before = [unit.x for row in placed for unit in row]
        for row, around in down if sweep % 2 == 0 else reversed(down):
            _spread(row, [_mean(others) for others in around])
        if sweep and before == [unit.x for row in placed for unit in row]:
            break  # nor will it move any more
    return _move(part, units, left)


def _close(
    rows: list[list[int]],
    units: list[_Unit],
    neighbours: dict[int, set[int]],
    left: float,
    bends: range,
) -> float:
    """As :func:`_straight`, each row as narrow as it can be."""
    for row in rows:
        edge = -_row_width(row, units) / 2
        for i in row:
            units[i].x = edge
            edge += units[i].width + _gap(units[i])
    return _move({box for row in rows for box in row}, units, left)


def _move(part: set[int], units: list[_Unit], left: float) -> float:
    """Put the left edge of these at ``left``; returns their width."""
    start = min(units[box].x for box in part)
    for box in part:
        units[box].x += left - start
    return max(units[box].x + units[box].width for box in part) - left


def _near(box: int, others: set[int], bends: range) -> set[int]:
    """What a box or a bend is drawn near to: its own kind where there is any, to be straight."""
    bend = box in bends
    same = {other for other in others if (other in bends) == bend}
    return same or others


def _mean(others: list[_Unit]) -> float:
    """The mean of the places where edges meet these."""
    return sum([unit.x + unit.middle for unit in others]) / len(others) if others else 0.0


def _spread(row: list[_Unit], wanted: list[float]) -> None:
    """Put the middles of a row as near to ``wanted`` as order and gaps allow; bends make way."""
    edge = float("-inf")
    boxes: list[float] = []  # how far each is from where it should be
    bends: list[float] = []
    for unit, middle in zip(row, wanted, strict=True):
        unit.x = max(middle - unit.middle, edge)
        edge = unit.x + unit.width + _gap(unit)
        (boxes if unit.height else bends).append(unit.x + unit.middle - middle)
    drift = boxes or bends
    if drift:
        shift = sum(drift) / len(drift)
        for unit in row:
            unit.x -= shift


def _gap(unit: _Unit) -> float:
    """What is left free to its right."""
    return _GAP_X if unit.height else _LANE


def _row_width(row: list[int], units: list[_Unit]) -> float:
    return sum(units[i].width + _gap(units[i]) for i in row) - _gap(units[row[-1]])


def _upper(row: list[int], units: list[_Unit]) -> float:
    """How far a row reaches above the middles of its boxes."""
    return max(units[i].height for i in row) / 2


def _row_height(row: list[int], units: list[_Unit]) -> float:
    return _upper(row, units) + max(units[i].height / 2 + units[i].foot for i in row)


def _place_down(
    units: list[_Unit], parts: list[list[list[list[int]]]], shared: list[list[int]]
) -> float:
    """Set top and bottom of every unit's row: what is shared on top, each part below it."""
    begin = _stack(shared, units, 0.0)
    end = begin
    for columns in parts:
        turn = _TURN if len(columns) > 1 else 0.0
        end = max([end, *(_stack(rows, units, begin + turn) + turn for rows in columns)])
    return end - (_GAP_Y if shared or parts else 0.0)


def _stack(rows: list[list[int]], units: list[_Unit], y: float) -> float:
    """Put rows below each other from ``y`` on; returns where the next one would begin."""
    for row in rows:
        upper, height = _upper(row, units), _row_height(row, units)
        for i in row:
            units[i].top, units[i].level, units[i].bottom = y, y + upper, y + height
        y += height + _GAP_Y
    return y
