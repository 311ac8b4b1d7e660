"""The coordinates of boxes, tensors and bends: the last stage of Sugiyama's method."""

from collections import Counter, defaultdict
from dataclasses import dataclass
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
    TensorBox,
    label_below,
)
from gradtrace.draw.groups import View
from gradtrace.draw.layering import Layering, assign_layers, components, reduce_crossings
from gradtrace.draw.plan import Plan
from gradtrace.draw.scene import clipped

_PLACINGS = 6  # sweeps down and up again


@dataclass(slots=True)
class _Unit:
    """A box with its tensors, or a dummy node; edges meet it at ``x + middle``."""

    width: float
    height: float  # the larger one of the box's and its tensors', whose middles are level
    middle: float
    foot: float = 0.0  # room below that for arrows and the text beside them
    x: float = 0.0
    top: float = 0.0  # of its row
    level: float = 0.0  # where the middles of its row are
    bottom: float = 0.0


@dataclass
class Placement:
    """The coordinates of a plan: corners of boxes and tensors, bends of links, and total size."""

    boxes: list[tuple[float, float]]
    tensors: list[tuple[float, float]]
    bends: dict[tuple[int, int], list[tuple[float, float]]]
    width: float
    height: float

    @property
    def excess(self) -> float:
        """How many times larger than its panel the placement is; at most 1 if it fits."""
        return max(self.width / PANEL[0], self.height / PANEL[1])

    def drawing(self, plan: Plan, view: View) -> Drawing:
        """Write the coordinates into the boxes of a plan, and return its drawing."""
        for box, (x, y) in zip(plan.boxes, self.boxes, strict=True):
            box.x, box.y = x, y
        for tensor_box, (x, y) in zip(plan.tensors, self.tensors, strict=True):
            tensor_box.x, tensor_box.y = x, y
        edges = [Edge(i, j, self.bends[i, j]) for i, j in plan.links]
        title = clipped(view.group.title)
        size = self.width, self.height
        return Drawing(title, view.parent, *size, plan.boxes, plan.tensors, edges)


def best_placement(plan: Plan) -> Placement:
    """Return the first of several placements that fits the panel, or the one that comes closest.

    Parts that only parameters connect stand side by side if there is room, else below one another.
    If the drawing does not fit then, sources with several users stand above all columns.
    """
    best = _placement(plan, set())
    abreast = len(components(plan))
    while best.width > PANEL[0] and abreast > 1:
        abreast -= 1
        best = min(best, _placement(plan, set(), abreast), key=lambda placed: placed.excess)
    users = Counter(end for _, end in plan.links)
    common = {i for i in plan.sources if users[i] > 1}
    if best.excess > 1.0 and common:
        best = min(best, _placement(plan, common), key=lambda placed: placed.excess)
    return best


def _placement(plan: Plan, lifted: set[int], abreast: int | None = None) -> Placement:
    """Place a plan; ``lifted`` and ``abreast`` are as in :func:`assign_layers`."""
    tensors: dict[int, list[int]] = defaultdict(list)
    for k, tensor_box in enumerate(plan.tensors):
        tensors[tensor_box.box].append(k)
    units = [
        _unit_of(box, [plan.tensors[k] for k in tensors[i]]) for i, box in enumerate(plan.boxes)
    ]
    layering = assign_layers(plan, [unit.width for unit in units], lifted, abreast)
    units += [_Unit(DUMMY_WIDTH, 0.0, DUMMY_WIDTH / 2) for _ in layering.layers[len(units) :]]
    rows = [reduce_crossings(part, layering) for part in layering.parts]
    above = sum(_row_height(row, units) + GAP_Y for row in rows[-1])
    parts = [_in_columns(part, units, above) for part in rows[:-1]]
    _drop_dummies(parts, layering, len(plan.boxes))
    _place_across(units, parts, rows[-1], _share_columns(plan, layering), layering)
    height = _place_down(units, parts, rows[-1])

    boxes, placed = [], [(0.0, 0.0)] * len(plan.tensors)
    for i, box in enumerate(plan.boxes):
        unit = units[i]
        boxes.append((round(unit.x, 1), round(unit.level - box.height / 2, 1)))
        down = unit.level - _stack_height([plan.tensors[k] for k in tensors[i]]) / 2
        for k in tensors[i]:
            placed[k] = (round(unit.x + _width_with_label(box) + TO_TENSOR, 1), round(down, 1))
            down += plan.tensors[k].height + BETWEEN_TENSORS
    ways = _routes(units, boxes, parts, layering)
    width = max((unit.x + unit.width for unit in units), default=0.0)
    for box, (x, _) in zip(plan.boxes, boxes, strict=True):
        width = max(width, x + _label_end(box))
    return Placement(boxes, placed, ways, round(width, 1), round(height, 1))


def _in_columns(rows: list[list[int]], units: list[_Unit], above: float) -> list[list[list[int]]]:
    """Divide a part's rows into columns, and return each column as a list of rows of unit indices.

    The fewest columns that fit the panel are chosen, or else the division that exceeds it least.
    ``above`` is the height already taken by the rows above all columns.
    """
    heights = [_row_height(row, units) + GAP_Y for row in rows]
    widths = [_row_width(row, units) for row in rows]
    least, best = float("inf"), [rows]
    for count in range(1, len(rows) + 1):
        # Each column takes what brings it nearest to its share.
        columns: list[list[int]] = [[] for _ in range(count)]
        above_row, total = 0.0, sum(heights)
        for row, height in enumerate(heights):
            columns[int((above_row + height / 2) / total * count)].append(row)
            above_row += height
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


def _drop_dummies(parts: list[list[list[list[int]]]], layering: Layering, boxes: int) -> None:
    """Remove dummies of edges to boxes above all columns, except in the column where they start.

    Such edges lead straight up. Dummies are numbered after the ``boxes``.
    """
    column_of = _column_of(parts)
    for (start, end), path in layering.paths.items():
        if end not in column_of:
            own = column_of[start]
            layering.paths[start, end] = [k for k in path if column_of.get(k, own) == own]
    used = {k for path in layering.paths.values() for k in path} | set(range(boxes))
    for columns in parts:
        for rows in columns:
            rows[:] = [used_row for row in rows if (used_row := [k for k in row if k in used])]
        columns[:] = [rows for rows in columns if rows]


def _column_of(parts: list[list[list[list[int]]]]) -> dict[int, tuple[int, int]]:
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
    layering: Layering,
) -> dict[tuple[int, int], list[tuple[float, float]]]:
    """Return the bends of each link; ``boxes`` are the corners of the boxes.

    Within a row every edge runs straight up, past boxes, texts and tensors; it turns between rows.
    From one column to the previous one an edge runs over the top, between the two, and below.
    """
    column_of = _column_of(parts)
    edges = {
        (part, column): (
            min(units[box].x for row in rows for box in row),
            min(units[box].top for row in rows for box in row),
            max(units[box].bottom for row in rows for box in row),
        )
        for part, columns in enumerate(parts)
        for column, rows in enumerate(columns)
    }
    lanes: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    ways = {}
    for (start, end), path in layering.paths.items():
        points: list[tuple[float, float]] = []
        if round(units[start].top, 1) < boxes[start][1]:
            points.append((units[start].x + units[start].middle, units[start].top))
        for previous, k in pairwise(path):
            own_column, next_column = column_of.get(previous), column_of.get(k)
            if own_column is not None and next_column is not None and own_column != next_column:
                turns = lanes[own_column]
                lane = LANE * min(turns.setdefault(k, len(turns)), 4)
                left_edge, top, _ = edges[own_column]
                bottom = edges[next_column][2]
                between = left_edge - LANE - lane
                points += [
                    (units[previous].x + units[previous].middle, top - LANE - lane),
                    (between, top - LANE - lane),
                    (between, bottom + LANE + lane),
                    (units[k].x + units[k].middle, bottom + LANE + lane),
                ]
            if k != end:
                points += [
                    (units[k].x + DUMMY_WIDTH / 2, y) for y in (units[k].bottom, units[k].top)
                ]
        points.append((units[end].x + units[end].middle, units[end].bottom))
        ways[start, end] = [(round(x, 1), round(y, 1)) for x, y in points]
    return ways


def _unit_of(box: Box, tensors: list[TensorBox]) -> _Unit:
    foot = END_FOOT if box.end else LABELLED_FOOT if box.outputs else ARROW_FOOT
    width, height = _width_with_label(box), box.height
    if tensors:
        width += TO_TENSOR + max(tensor_box.width + tensor_box.room for tensor_box in tensors)
        height = max(height, _stack_height(tensors))
    return _Unit(width, height, box.width / 2, max(0.0, foot - (height - box.height) / 2))


def _width_with_label(box: Box) -> float:
    """Return the width of a box, or more if the text below it would touch its neighbour."""
    return max(box.width, _label_end(box) - GAP_X + LANE)


def _label_end(box: Box) -> float:
    """Return the distance from a box's left edge to the end of the text below the box."""
    text = label_below(box)
    return box.width / 2 + BESIDE + SMALL * len(text) if text else 0.0


def _stack_height(tensors: list[TensorBox]) -> float:
    return sum(tensor.height for tensor in tensors) + BETWEEN_TENSORS * max(0, len(tensors) - 1)


def _share_columns(plan: Plan, layering: Layering) -> list[list[int]]:
    """Distribute parts over columns; a part shares the column of one that ended before it began."""
    columns: list[list[int]] = []
    ends: list[int] = []
    for part, members in enumerate(layering.parts[:-1]):
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
    layering: Layering,
) -> None:
    """Set the x of every unit; ``parts`` has the columns of each part and their rows."""
    left_edge = 0.0
    for column in columns:
        widest = 0.0
        for part in column:
            for place in (_place_straight, _place_compact):  # straight edges may take too much room
                edge = left_edge
                for rows in parts[part]:
                    edge += place(rows, units, layering.neighbours, edge) + TURN
                if edge - TURN - left_edge <= PANEL[0]:
                    break
            widest = max(widest, edge - TURN - left_edge)
        left_edge += widest + 2 * GAP_X
    for row in shared:
        target = {
            box: _mean_middle([units[k] for k in layering.neighbours[box] - set(row)])
            for box in row
        }
        row.sort(key=lambda box: (target[box], box))
        _spread([units[box] for box in row], [target[box] for box in row])
    shift = min((unit.x for unit in units), default=0.0)
    for unit in units:
        unit.x -= shift


def _place_straight(
    rows: list[list[int]], units: list[_Unit], neighbours: dict[int, set[int]], left_edge: float
) -> float:
    """Set x within a column so that edges are nearly straight; return the width of the column."""
    part = {box for row in rows for box in row}
    placed = [[units[box] for box in row] for row in rows]
    near = [
        [_aligned_with(box, neighbours[box] & part - set(row), units) for box in row]
        for row in rows
    ]
    down = list(zip(placed, near, strict=True))
    for row in placed:
        _spread(row, [0.0] * len(row))
    for sweep in range(_PLACINGS):
        previous_x = [unit.x for row in placed for unit in row]
        for row, row_neighbours in down if sweep % 2 == 0 else reversed(down):
            _spread(row, [_mean_middle(unit_neighbours) for unit_neighbours in row_neighbours])
        if sweep and previous_x == [unit.x for row in placed for unit in row]:
            break  # nor will it move any more
    return _move(part, units, left_edge)


def _place_compact(
    rows: list[list[int]], units: list[_Unit], neighbours: dict[int, set[int]], left_edge: float
) -> float:
    """Set x within a column so that its rows are as narrow as possible; return its width."""
    for row in rows:
        edge = -_row_width(row, units) / 2
        for i in row:
            units[i].x = edge
            edge += units[i].width + _gap(units[i])
    return _move({box for row in rows for box in row}, units, left_edge)


def _move(part: set[int], units: list[_Unit], left_edge: float) -> float:
    """Move the units of a part so that its left edge is at ``left_edge``; return its width."""
    start = min(units[box].x for box in part)
    for box in part:
        units[box].x += left_edge - start
    return max(units[box].x + units[box].width for box in part) - left_edge


def _aligned_with(box: int, neighbours: set[int], units: list[_Unit]) -> list[_Unit]:
    """Return a box's neighbours of its own kind (box or dummy), or all if there are none."""
    same = {k for k in neighbours if bool(units[k].height) == bool(units[box].height)}
    return [units[k] for k in same or neighbours]


def _mean_middle(units: list[_Unit]) -> float:
    """Return the mean x at which edges meet these units; 0 if there are no units."""
    return sum([unit.x + unit.middle for unit in units]) / len(units) if units else 0.0


def _spread(row: list[_Unit], targets: list[float]) -> None:
    """Set the x of a row's units so that its boxes, or else its dummies, are near ``targets``."""
    edge = float("-inf")
    boxes: list[float] = []  # how far each is from where it should be
    bends: list[float] = []
    for unit, middle in zip(row, targets, strict=True):
        unit.x = max(middle - unit.middle, edge)
        edge = unit.x + unit.width + _gap(unit)
        (boxes if unit.height else bends).append(unit.x + unit.middle - middle)
    if drift := boxes or bends:
        shift = sum(drift) / len(drift)
        for unit in row:
            unit.x -= shift


def _gap(unit: _Unit) -> float:
    return GAP_X if unit.height else LANE


def _row_width(row: list[int], units: list[_Unit]) -> float:
    return sum(units[i].width + _gap(units[i]) for i in row) - _gap(units[row[-1]])


def _upper(row: list[int], units: list[_Unit]) -> float:
    """Return the height of the part of a row above the centres of its boxes."""
    return max(units[i].height for i in row) / 2


def _row_height(row: list[int], units: list[_Unit]) -> float:
    return _upper(row, units) + max(units[i].height / 2 + units[i].foot for i in row)


def _place_down(
    units: list[_Unit], parts: list[list[list[list[int]]]], shared: list[list[int]]
) -> float:
    """Set the y of every row, shared boxes on top and each part below; return the height."""
    begin = _stack(shared, units, 0.0)
    end = begin
    for columns in parts:
        turn = TURN if len(columns) > 1 else 0.0
        end = max([end, *(_stack(rows, units, begin + turn) + turn for rows in columns)])
    return end - (GAP_Y if shared or parts else 0.0)


def _stack(rows: list[list[int]], units: list[_Unit], y: float) -> float:
    """Put rows below one another from ``y`` on; return where the next row would begin."""
    for row in rows:
        upper, height = _upper(row, units), _row_height(row, units)
        for i in row:
            units[i].top, units[i].level, units[i].bottom = y, y + upper, y + height
        y += height + GAP_Y
    return y
