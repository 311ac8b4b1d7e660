"""The place of every box, tensor and bend: the last stage of Sugiyama's method."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise

from gradtrace.draw.drawing import (
    ARROW_FOOT,
    BESIDE,
    BETWEEN_TENSORS,
    DUMMY_WIDTH,
    END_FOOT,
    GAP_X,
    GAP_Y,
    LABELLED_FOOT,
    LANE,
    PANEL,
    SMALL,
    TO_TENSOR,
    TURN,
    Box,
    Drawing,
    Edge,
    Thing,
    label_below,
)
from gradtrace.draw.groups import View
from gradtrace.draw.layering import Layering, assign_layers, components, reduce_crossings
from gradtrace.draw.plan import Plan
from gradtrace.draw.scene import clipped

_PLACINGS = 6  # sweeps down and up again


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
class Placement:
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

    def drawing(self, plan: Plan, view: View) -> Drawing:
        for box, (x, y) in zip(plan.boxes, self.boxes, strict=True):
            box.x, box.y = x, y
        for thing, (x, y) in zip(plan.things, self.things, strict=True):
            thing.x, thing.y = x, y
        edges = [Edge(i, j, self.bends[i, j]) for i, j in plan.links]
        title = clipped(view.group.title)
        size = self.width, self.height
        return Drawing(title, view.parent, *size, plan.boxes, plan.things, edges, self.number)


def best_placement(plan: Plan) -> Placement:
    """Find the place of every box, thing and bend, in the first of some ways that fits its panel.

    What only parameters connect stands side by side, where there is room for that, or else beneath
    one another.  Where it is too high, what several boxes use stands above all columns.
    """
    leaves = {i for i in plan.sources if plan.boxes[i].kind != "group"}
    users = Counter(end for _, end in plan.links)
    common = {i for i in plan.sources if users[i] > 1}
    best = _placement(plan, set())
    abreast = len(components(plan))
    while best.excess > 1.0 and best.width > PANEL[0] and abreast > 1:
        abreast -= 1
        best = min(best, _placement(plan, set(), abreast), key=lambda placed: placed.excess)
    for sources, lifted in (
        (plan.sources, common),
        (leaves, set[int]()),
        (leaves, common & leaves),
    ):
        if best.excess <= 1.0:
            break
        if lifted or sources < plan.sources:
            placed = _placement(replace(plan, sources=sources), lifted)
            best = min(best, placed, key=lambda placed: placed.excess)
    return best


def _placement(plan: Plan, lifted: set[int], abreast: int | None = None) -> Placement:
    """Place a plan; ``lifted`` are sources that stand above all columns.

    Of its parts at most ``abreast`` stand side by side, the others below them.
    """
    things: dict[int, list[int]] = defaultdict(list)
    for k, thing in enumerate(plan.things):
        things[thing.box].append(k)
    units = [_unit_of(box, [plan.things[k] for k in things[i]]) for i, box in enumerate(plan.boxes)]
    ranked = assign_layers(plan, [unit.width for unit in units], lifted, abreast)
    units += [_Unit(DUMMY_WIDTH, 0.0, DUMMY_WIDTH / 2) for _ in ranked.ranks[len(units) :]]
    rows = [reduce_crossings(part, ranked) for part in ranked.parts]
    above = sum(_row_height(row, units) + GAP_Y for row in rows[-1])
    parts = [_in_columns(part, units, above) for part in rows[:-1]]
    _drop_dummies(parts, ranked, len(plan.boxes))
    bends = range(len(plan.boxes), len(units))
    _place_across(units, parts, rows[-1], _share_columns(plan, ranked), ranked, bends)
    height = _place_down(units, parts, rows[-1])

    boxes, placed = [], [(0.0, 0.0)] * len(plan.things)
    for i, box in enumerate(plan.boxes):
        unit = units[i]
        boxes.append((round(unit.x, 1), round(unit.level - box.height / 2, 1)))
        down = unit.level - _stack_height([plan.things[k] for k in things[i]]) / 2
        for k in things[i]:
            placed[k] = (round(unit.x + _width_with_label(box) + TO_TENSOR, 1), round(down, 1))
            down += plan.things[k].height + BETWEEN_TENSORS
    ways = _routes(units, boxes, parts, ranked)
    width = max((unit.x + unit.width for unit in units), default=0.0)
    for box, (x, _) in zip(plan.boxes, boxes, strict=True):
        width = max(width, x + _label_end(box))
    return Placement(boxes, placed, ways, round(width, 1), round(height, 1))


def _in_columns(rows: list[list[int]], units: list[_Unit], above: float) -> list[list[list[int]]]:
    """The rows of a part, in as few columns as fit the panel, or come nearest to that.

    ``above`` is the height of what stands over them.
    """
    heights = [_row_height(row, units) + GAP_Y for row in rows]
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
        width = sum(max(widths[row] for row in column) + TURN for column in columns) - TURN
        highest = max(sum(heights[row] for row in column) for column in columns)
        height = above + highest + 2 * TURN * (len(columns) > 1) - GAP_Y
        excess = max(width / PANEL[0], height / PANEL[1])
        if excess < least:
            least, best = excess, [[rows[row] for row in column] for column in columns]
        if excess <= 1.0 or width > 2 * PANEL[0]:
            break
    return best


def _drop_dummies(parts: list[list[list[list[int]]]], ranked: Layering, boxes: int) -> None:
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


def _routes(
    units: list[_Unit],
    boxes: list[tuple[float, float]],
    parts: list[list[list[list[int]]]],
    ranked: Layering,
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
                lane = LANE * min(known.setdefault(k, len(known)), 4)
                left, top, _ = edges[here]
                bottom = edges[there][2]
                between = left - LANE - lane
                points += [
                    (units[before].x + units[before].middle, top - LANE - lane),
                    (between, top - LANE - lane),
                    (between, bottom + LANE + lane),
                    (units[k].x + units[k].middle, bottom + LANE + lane),
                ]
            if k != end:
                points += [
                    (units[k].x + DUMMY_WIDTH / 2, y) for y in (units[k].bottom, units[k].top)
                ]
        points.append((units[end].x + units[end].middle, units[end].bottom))
        ways[link] = [(round(x, 1), round(y, 1)) for x, y in points]
    return ways


def _unit_of(box: Box, things: list[Thing]) -> _Unit:
    foot = END_FOOT if box.end else LABELLED_FOOT if box.made else ARROW_FOOT
    width, height = _width_with_label(box), box.height
    if things:
        width += TO_TENSOR + max(thing.width + thing.room for thing in things)
        height = max(height, _stack_height(things))
    return _Unit(width, height, box.width / 2, max(0.0, foot - (height - box.height) / 2))


def _width_with_label(box: Box) -> float:
    """The width of a box, or more where what is written below it would touch its neighbour."""
    return max(box.width, _label_end(box) - GAP_X + LANE)


def _label_end(box: Box) -> float:
    """Where the text below a box ends, from its left edge."""
    text = label_below(box)
    return box.width / 2 + BESIDE + SMALL * len(text) if text else 0.0


def _stack_height(things: list[Thing]) -> float:
    return sum(thing.height for thing in things) + BETWEEN_TENSORS * max(0, len(things) - 1)


def _share_columns(plan: Plan, ranked: Layering) -> list[list[int]]:
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
    ranked: Layering,
    bends: range,
) -> None:
    """Set x of every unit; ``parts`` has the columns of each and their rows."""
    left = 0.0
    for column in columns:
        widest = 0.0
        for part in column:
            for place in (_place_straight, _place_compact):  # straight edges may take too much room
                edge = left
                for rows in parts[part]:
                    edge += place(rows, units, ranked.neighbours, edge, bends) + TURN
                if edge - TURN - left <= PANEL[0]:
                    break
            widest = max(widest, edge - TURN - left)
        left += widest + 2 * GAP_X
    for row in shared:
        wanted = {
            box: _mean_middle([units[other] for other in ranked.neighbours[box] - set(row)])
            for box in row
        }
        row.sort(key=lambda box: (wanted[box], box))
        _spread([units[box] for box in row], [wanted[box] for box in row])
    shift = min((unit.x for unit in units), default=0.0)
    for unit in units:
        unit.x -= shift


def _place_straight(
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
            [
                units[other]
                for other in _alignment_neighbours(box, neighbours[box] & part - set(row), bends)
            ]
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
            _spread(row, [_mean_middle(others) for others in around])
        if sweep and before == [unit.x for row in placed for unit in row]:
            break  # nor will it move any more
    return _move(part, units, left)


def _place_compact(
    rows: list[list[int]],
    units: list[_Unit],
    neighbours: dict[int, set[int]],
    left: float,
    bends: range,
) -> float:
    """As :func:`_place_straight`, each row as narrow as it can be."""
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


def _alignment_neighbours(box: int, others: set[int], bends: range) -> set[int]:
    """What a box or a bend is drawn near to: its own kind where there is any, to be straight."""
    bend = box in bends
    same = {other for other in others if (other in bends) == bend}
    return same or others


def _mean_middle(others: list[_Unit]) -> float:
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
    return GAP_X if unit.height else LANE


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
        turn = TURN if len(columns) > 1 else 0.0
        end = max([end, *(_stack(rows, units, begin + turn) + turn for rows in columns)])
    return end - (GAP_Y if shared or parts else 0.0)


def _stack(rows: list[list[int]], units: list[_Unit], y: float) -> float:
    """Put rows below each other from ``y`` on; returns where the next one would begin."""
    for row in rows:
        upper, height = _upper(row, units), _row_height(row, units)
        for i in row:
            units[i].top, units[i].level, units[i].bottom = y, y + upper, y + height
        y += height + GAP_Y
    return y
