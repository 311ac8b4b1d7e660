"""Drawings of any graph: few boxes at once, everything placed once, nothing on top of anything."""

import functools
import random
from itertools import combinations, pairwise

import pytest
import torch

from gradtrace import trace
from gradtrace.draw.drawing import (
    ARROW_FOOT,
    BESIDE,
    BETWEEN_TENSORS,
    CHARACTER,
    DUMMY_WIDTH,
    END_FOOT,
    GAP_X,
    GAP_Y,
    LABELLED_FOOT,
    LANE,
    LINE,
    NAMES,
    PANEL,
    SMALL,
    TO_TENSOR,
    TURN,
    WIDEST_LAYER,
    Box,
    TensorBox,
    label_below,
)
from gradtrace.draw.layering import _wrapped, assign_layers, reduce_crossings
from gradtrace.draw.layout import drawings_of
from gradtrace.draw.module_paths import topological_order
from gradtrace.draw.placement import _in_columns, _placement, _Unit, _unit_of, best_placement
from gradtrace.draw.plan import Plan, add_tensors
from gradtrace.draw.scene import Scene, SceneNode, SceneTensor, module_of
from gradtrace.player.trace_scene import scene_of

MOST = 40  # boxes of one view, as promised


def empty():
    return 1


def only_a_leaf():
    return torch.ones(1, requires_grad=True)


def diamond():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    a, b = y.sin().sum(), (y * x).sum()
    (a + b).backward()


def skips_many_ranks():
    x = torch.ones(2, requires_grad=True)
    y = x
    for _ in range(6):
        y = y.exp()
    return (y * x).sum()


def chain(length=300):
    y = torch.ones(1, requires_grad=True)
    for _ in range(length):
        y = y.exp()
    z = y.sum()
    return z


def deep():
    y = chain()
    return y


def recurrent():
    cell = torch.nn.GRUCell(2, 2)
    h = torch.zeros(1, 2)
    for _ in range(8):
        h = cell(torch.ones(1, 2), h)
    h.sum().backward()


def many_leaves():
    leaves = [torch.ones(1, requires_grad=True) for _ in range(40)]
    return sum(leaf.exp() for leaf in leaves)


def iterations():
    x = torch.ones(1, requires_grad=True)
    for _ in range(5):
        y = x.exp()
        y.backward()
        del y


def comes_back():
    x = torch.ones(1, requires_grad=True)
    y = x.exp()

    def hidden(y=y):
        return y

    del y
    z = x.sin()
    y = hidden()
    return y, z


def detached_outlives_its_graph():
    x = torch.ones(1, requires_grad=True)
    y = x.exp()
    kept = y.detach()
    del y
    z = x.sin()
    del z
    return kept


def penalty():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    x = torch.ones(2, 3, requires_grad=True)
    (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    loss = grad.pow(2).sum() + model(x).sum()
    loss.backward()


def training():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1))
    for _ in range(7):
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()


PROGRAMS = [empty, only_a_leaf, diamond, skips_many_ranks, chain, deep, recurrent, many_leaves,
            iterations, comes_back, detached_outlives_its_graph, penalty, training]  # fmt: skip


def random_scene(seed):
    """Operations that use earlier ones and leaves, some of which belong to modules."""
    draw = random.Random(seed)
    count, leaves = draw.choice([3, 20, 35, 90, 400]), draw.choice([1, 4, 30])
    modules = ["", "", "net.0.", "net.1.", "net.1.inner.", "a.b.c.d."]
    nodes, tensors = [], []
    for i in range(leaves):
        label = f"{draw.choice(modules)}w{i}"
        module = module_of(label)
        nodes.append(
            SceneNode("AccumulateGrad", label, True, (), None, 0, 1, len(label), 0, module)
        )
    moment, lives = 0, [(0, 99)] * leaves
    for i in range(leaves, leaves + count):
        moment += draw.random() < 0.3
        operations = range(leaves, i)
        near = operations[-draw.choice([1, 3, 50]) :]
        used = draw.sample(near, min(len(near), draw.choice([0, 1, 1, 2])))
        used += draw.sample(range(leaves), draw.choice([0, 0, 1, min(2, leaves)]))
        name = draw.choice(["Exp", "Sin", "Add"]) + "Backward0"
        rows = draw.choice([0, 1, 4])
        nodes.append(SceneNode(name, name, False, tuple(used), i, moment, moment % 5, 14, rows))
        lives.append((moment, draw.choice([moment, 99])))
        if rows:
            savers = frozenset([i, *draw.sample(near, min(len(near), 1))])
            named = draw.random() < 0.4
            size = draw.choice([4, 400, 10**6])
            tensors.append(SceneTensor(size, min(savers), savers, named, draw.randrange(18)))
    for tensor in tensors:  # at home with a node that may have died before
        lives[tensor.home] = (lives[tensor.home][0], 99)
    return Scene(nodes, tensors, lives)


SCENES = [*PROGRAMS, *range(40)]


@functools.cache
def scene_made_by(program):
    if callable(program):
        return scene_of(trace(program, max_steps=10**6))
    return random_scene(program)


@pytest.fixture(params=SCENES, ids=lambda made: getattr(made, "__name__", made))
def scene(request):
    return scene_made_by(request.param)


def test_every_node_is_in_one_box_of_the_view_of_each_group_around_it(scene):
    views = drawings_of(scene)
    inside = {0: set(range(len(scene.nodes)))}
    for number, view in enumerate(views):
        own = [box for box in view.boxes if box.kind != "outside"]
        assert len(view.boxes) <= MOST
        assert sorted(n for box in own for n in box.nodes) == sorted(inside[number])
        for box in own:
            assert (box.kind == "group") == (box.view is not None)
            if box.view is not None:
                assert views[box.view].parent == number
                assert len(box.nodes) > 1
                inside[box.view] = set(box.nodes)
    assert inside.keys() == set(range(len(views)))


def test_nothing_lies_on_anything_that_is_there_at_the_same_time(scene):
    for view in drawings_of(scene):
        placed = [(box, box.width, box) for box in view.boxes]
        placed += [
            (thing, thing.width + thing.room, view.boxes[thing.box]) for thing in view.tensors
        ]
        for one, other in combinations(placed, 2):
            (a, a_width, a_home), (b, b_width, b_home) = one, other
            apart = (
                a.x + a_width <= b.x
                or b.x + b_width <= a.x
                or a.y + a.height <= b.y
                or b.y + b.height <= a.y
            )
            assert apart or not together(scene, a_home, b_home), (one, other)
        for item, width, _ in placed:
            assert 0 <= item.x <= item.x + width <= view.width + 0.2
            assert 0 <= item.y <= item.y + item.height <= view.height + 0.2


def together(scene, one, other):
    """Whether two boxes, with what is at home there, are drawn at the same time."""
    (a, b), (c, d) = (
        (min(scene.lives[n][0] for n in box.nodes), max(scene.lives[n][1] for n in box.nodes))
        for box in (one, other)
    )
    return a <= d and c <= b


def test_backward_runs_upwards_along_every_edge(scene):
    for view in drawings_of(scene):
        box_of = {node: i for i, box in enumerate(view.boxes) for node in box.nodes}
        links = {
            (box_of[i], box_of[j])
            for i, node in enumerate(scene.nodes)
            for j in node.next
            if i in box_of and j in box_of and box_of[i] != box_of[j]
            if "outside" not in (view.boxes[box_of[i]].kind, view.boxes[box_of[j]].kind)
        }
        drawn = {(edge.start, edge.end) for edge in view.edges}
        assert links <= drawn
        for edge in view.edges:
            start, end = view.boxes[edge.start], view.boxes[edge.end]
            heights = [start.y, *(y for _, y in edge.bends), end.y + end.height]
            # From one column to the one before it an edge comes back down, once for each.
            up = [low >= high for low, high in pairwise(heights)]
            turns = up.count(False)
            assert turns == 0 or (start.x > end.x and turns <= view.width / 100)


def test_an_edge_touches_no_box_no_text_and_no_tensor(scene):
    for view in drawings_of(scene):
        parts = [(box, (box.x, box.y, box.x + box.width, box.y + box.height)) for box in view.boxes]
        for box in view.boxes:
            left, bottom = box.x + box.width / 2 + BESIDE, box.y + box.height
            parts.append((box, (left, bottom, left + SMALL * len(label_below(box)), bottom + 13)))
        for thing in view.tensors:
            right, bottom = thing.x + thing.width + thing.room, thing.y + thing.height
            parts.append((view.boxes[thing.box], (thing.x, thing.y, right, bottom)))
        for edge in view.edges:
            start, end = view.boxes[edge.start], view.boxes[edge.end]
            first = start.x + start.width / 2, start.y
            last = end.x + end.width / 2, end.y + end.height
            for (x, low), (other, high) in pairwise([first, *edge.bends, last]):
                # However it is rounded, an arrow stays within what its points span.
                across, along = sorted([x, other]), sorted([high, low])
                for home, (left, top, right, bottom) in parts:
                    if right <= left or not (
                        together(scene, home, start) and together(scene, home, end)
                    ):
                        continue
                    apart = (
                        across[1] <= left + 0.2
                        or right <= across[0] + 0.2
                        or along[1] <= top + 0.2
                        or bottom <= along[0] + 0.2
                    )
                    assert apart, (view.title, start.title, end.title, home.title)


def test_the_row_puts_each_operation_after_what_it_builds_on(scene):
    place = {node: i for i, node in enumerate(topological_order(scene))}
    assert set(place) == {i for i, node in enumerate(scene.nodes) if not node.leaf}
    for i in place:
        assert all(place[j] < place[i] for j in scene.nodes[i].next if j in place)


def test_the_row_is_right_where_numbers_are_of_several_threads():
    numbers = [3, 1, 2, 0]
    nodes = [
        SceneNode("A", "A", False, (i - 1,) if i else (), number, None, None, 1, 0)
        for i, number in enumerate(numbers)
    ]
    assert topological_order(Scene(nodes, [], [(0, 0)] * 4)) == [0, 1, 2, 3]


def test_the_same_trace_is_drawn_the_same_way():
    seen = trace(recurrent)
    assert drawings_of(scene_of(seen)) == drawings_of(scene_of(seen))


def test_iterations_that_never_live_together_share_a_column():
    (view,) = drawings_of(scene_of(trace(iterations)))
    operations = [box for box in view.boxes if box.kind == "node"]
    assert len(operations) == 5
    assert len({box.x for box in operations}) == 1


def test_parts_that_live_together_for_one_step_stand_apart():
    def program():
        x = torch.ones(1, requires_grad=True)
        y = x.exp()
        z = x.sin()
        del y
        return z

    (view,) = drawings_of(scene_of(trace(program)))
    assert len({box.x for box in view.boxes if box.kind == "node"}) == 2


def test_a_tensor_that_outlives_its_node_keeps_the_column():
    (view,) = drawings_of(scene_of(trace(detached_outlives_its_graph)))
    assert len({box.x for box in view.boxes if box.kind == "node"}) == 2


def test_a_box_has_room_for_its_texts():
    seen = trace(diamond)
    (view,) = drawings_of(scene_of(seen))
    for box in view.boxes:
        (node,) = box.nodes
        assert box.width > CHARACTER * len(box.title)
        known = seen.nodes[node]
        # A leaf: its bytes and value, and its gradient.
        assert box.rows == (2 if known.leaf else sum(not slot.empty for slot in known.slots))
        assert box.height >= LINE * (1 + box.rows)


def test_a_tensor_is_at_home_with_the_node_that_made_it_and_its_area_tells_nothing():
    def program():
        x = torch.ones(4, requires_grad=True)
        y = x + 1
        z = y.sin()
        w = z[:1].exp()
        return w

    seen = trace(program)
    (view,) = drawings_of(scene_of(seen))
    homes = {
        seen.tensors[thing.tensor].label: view.boxes[thing.box].title for thing in view.tensors
    }
    assert homes == {"y": "AddBackward0", "z": "SinBackward0", "w": "ExpBackward0"}
    assert len({(thing.width, thing.height) for thing in view.tensors}) == 1
    assert all(thing.x > view.boxes[thing.box].x + view.boxes[thing.box].width
               for thing in view.tensors)  # fmt: skip


def test_graphs_that_stand_side_by_side_go_below_one_another_where_they_are_too_wide():
    def program():
        x = torch.ones(1, requires_grad=True)
        a, b, c, d, e = [x.exp() for _ in range(5)]
        return a, b, c, d, e

    (view,) = drawings_of(scene_of(trace(program)))
    operations = [box for box in view.boxes if box.title == "ExpBackward0"]
    assert view.width <= PANEL[0]
    assert len({box.x for box in operations}) > 1
    assert len({box.y for box in operations}) > 1


def test_parts_with_room_side_by_side_stay_so_in_a_drawing_that_is_too_high():
    """To try them below one another, too, would take a layout for each number of parts."""
    rows = [(4 * row + i, 4 * row - 4 + i) for row in range(1, 9) for i in range(4)]
    tail = [(36, 32 + i) for i in range(4)] + [(i, i - 1) for i in (37, 38, 39)]
    other_part = [(i, i - 1) for i in range(41, 45)]
    placement = best_placement(plan_of(rows + tail + other_part))
    assert placement.height > PANEL[1] and placement.width <= PANEL[0]
    assert placement.boxes[40][1] == 0  # level with the first row of the other part


@pytest.mark.parametrize("excess", [0, 1])
def test_parts_stand_side_by_side_as_long_as_they_fit_the_panel(excess):
    plan = plan_of([(1, 0), (3, 2)])
    for box in plan.boxes:
        box.width = (PANEL[0] - 2 * GAP_X) / 2
    plan.boxes[3].width += excess
    tops = [y for _, y in best_placement(plan).boxes]
    assert tops == ([0, ROW, 2 * ROW, 3 * ROW] if excess else [0, ROW] * 2)


def test_there_is_room_for_the_names_of_a_tensor_as_they_are_told():
    def program():
        x = torch.ones(1, requires_grad=True)
        data_loader = [[x.exp(), x.sin()]]
        batch = data_loader[0][1]
        return batch

    seen = trace(program)
    (view,) = drawings_of(scene_of(seen))
    room = {seen.tensors[thing.tensor].label: thing.room for thing in view.tensors}
    told = {"data_loader[0][0]": len("data_loader[0][0]"), "data_loader[0][1]": 22}
    assert {label: round((room[label] - NAMES) / CHARACTER) for label in told} == told


@pytest.mark.parametrize(("text", "rows", "is_folded"), [(14, 0, False), (60, 4, True)])
def test_nodes_are_drawn_one_by_one_only_if_they_fit_the_panel(text, rows, is_folded):
    chain = [
        SceneNode("N", "N", False, (i - 1,) if i else (), i, i, i, text, rows) for i in range(20)
    ]
    first, *_ = drawings_of(Scene(chain, [], [(0, 99)] * 20))
    assert any(box.kind == "group" for box in first.boxes) == is_folded


def test_wide_rows_are_broken():
    views = drawings_of(scene_of(trace(many_leaves)))
    assert max(view.width for view in views) < 1000


def test_a_group_hands_on_what_others_use_and_an_end_says_so():
    def program():
        model = torch.nn.GRU(2, 2)
        out, _ = model(torch.ones(5, 1, 2))
        loss = out.sum()
        return loss

    seen = trace(program)
    if not any(node.made for node in seen.nodes if not node.leaf):
        pytest.skip("this PyTorch does not tell what an operation made")
    written = {box.title: label_below(box) for box in drawings_of(scene_of(seen))[0].boxes}
    assert written["SumBackward0"] == "output scalar"
    assert written["after the steps of model"] == "[5, 1, 2]"


@pytest.mark.parametrize(
    ("links", "savers", "drawn"),
    [
        ([], {0}, True),  # the result of the whole graph
        ([(1, 0)], {0}, False),  # a later box uses it, but saved nothing of it
        ([(1, 0)], {0, 1}, True),
    ],
)
def test_of_a_folded_box_only_tensors_that_cross_its_border_are_drawn(links, savers, drawn):
    nodes = [SceneNode(f"N{i}", f"N{i}", False, (), i, i, i, 4, 1) for i in range(2)]
    named = SceneTensor(8, 0, frozenset(savers), named=True, room=3)
    boxes = [Box("group", f"box {i}", [i], None, 2, 90.0, 60.0) for i in range(2)]
    plan = Plan(boxes, {0: 0, 1: 1}, {}, links, set(), [(0, 1), (0, 1)])
    add_tensors(Scene(nodes, [named], [(0, 1)] * 2), plan, {0: [0]})
    assert bool(plan.tensors) == drawn


def test_all_tensors_of_one_home_are_drawn():
    node = SceneNode("ExpBackward0", "exp", False, (), 0, 0, 0, 4, 1)
    saved = SceneTensor(8, 0, frozenset({0}), named=True, room=3)
    (view,) = drawings_of(Scene([node], [saved, None, saved], [(0, 1)]))
    assert [(drawn.tensor, drawn.box) for drawn in view.tensors] == [(0, 0), (2, 0)]


def test_an_open_group_shows_its_neighbours():
    views = drawings_of(scene_made_by(chain))
    inner = [view for view in views if view.parent is not None]
    assert inner
    for view in inner:
        around = {node for box in views[view.parent].boxes for node in box.nodes}
        outside = {node for box in view.boxes if box.kind == "outside" for node in box.nodes}
        own = {node for box in view.boxes if box.kind != "outside" for node in box.nodes}
        assert outside and outside <= around - own


def plan_of(links, sources=(), lives=None):
    """Boxes of one size, which are all there at the same time unless ``lives`` says otherwise."""
    count = 1 + max(max(link) for link in links)
    boxes = [Box("node", f"box {i}", [i], None, 1, 90.0, 60.0) for i in range(count)]
    lives = [(0, 1)] * count if lives is None else lives
    return Plan(boxes, {i: i for i in range(count)}, {}, links, set(sources), lives)


ROW = 60.0 + ARROW_FOOT + GAP_Y  # from a row of such boxes to the next


def test_boxes_stand_in_rows_below_the_middle_of_what_they_use():
    placement = best_placement(plan_of([(1, 0), (2, 0)]))
    middle = (90 + GAP_X) / 2
    assert placement.boxes == [(middle, 0), (0, ROW), (90 + GAP_X, ROW)]
    assert [*placement.bends.values()] == [[(middle + 45, 60 + ARROW_FOOT)]] * 2
    assert (placement.width, placement.height) == (2 * 90 + GAP_X, 2 * ROW - GAP_Y)


def test_tensors_stand_beside_their_box_level_with_its_middle():
    for count, height in ((1, 60.0), (2, 60.0), (4, 4 * 22 + 3 * BETWEEN_TENSORS)):
        plan = plan_of([(1, 0), (2, 0)])
        plan.tensors = [TensorBox(k, 1, 60.0 - k, 22.0, 10.0 + 2 * k) for k in range(count)]
        placement = best_placement(plan)
        middle, step = ROW + height / 2, 22 + BETWEEN_TENSORS
        top = middle - (count * step - BETWEEN_TENSORS) / 2
        assert placement.tensors == [(90 + TO_TENSOR, top + k * step) for k in range(count)]
        widest = 90 + TO_TENSOR + 70 + (count - 1)
        assert placement.boxes[1:] == [(0, middle - 30), (widest + GAP_X, middle - 30)]
        assert placement.boxes[0] == (middle_of_both := (widest + GAP_X) / 2, 0)
        start = [(45, ROW)] * (height > 60)  # it leaves the row above the tensors
        assert placement.bends[1, 0] == [*start, (middle_of_both + 45, 60 + ARROW_FOOT)]
        assert placement.width == widest + GAP_X + 90


def test_the_text_below_a_box_takes_room():
    plan = plan_of([(1, 0), (2, 0)])
    plan.boxes[1].outputs, plan.boxes[2].end = "[64, 128, 7, 7]", True
    placement = best_placement(plan)
    text = round(45 + BESIDE + SMALL * len("[64, 128, 7, 7]"), 1)  # its end
    assert placement.boxes[2] == (text + LANE, ROW)
    assert placement.height == ROW + 60 + END_FOOT
    plan.boxes[1].outputs, plan.boxes[2].outputs = "", "[64, 128, 7, 7]"
    end = 45 + BESIDE + SMALL * len("output [64, 128, 7, 7]")
    assert best_placement(plan).width == round(90 + GAP_X + end, 1)
    plan.boxes[2].end = False
    assert best_placement(plan).height == ROW + 60 + LABELLED_FOOT


def test_an_edge_passes_a_row_in_a_lane_beside_its_boxes():
    placement = best_placement(plan_of([(1, 0), (2, 1), (2, 0)]))
    assert placement.boxes == [(0, 0), (0, ROW), (0, 2 * ROW)]
    lane = 90 + GAP_X + DUMMY_WIDTH / 2
    last = (45, 60 + ARROW_FOOT)
    assert placement.bends[2, 0] == [(lane, 2 * ROW - GAP_Y), (lane, ROW), last]
    assert placement.width == lane + DUMMY_WIDTH / 2


@pytest.mark.parametrize(
    ("lives", "columns"),
    [
        ([(0, 1), (2, 3), (4, 5)], [0, 0, 0]),
        ([(0, 2), (2, 3), (4, 5)], [0, 1, 0]),
        ([(0, 1), (2, 4), (4, 5)], [0, 0, 1]),
        ([(0, 4), (2, 4), (4, 5)], [0, 1, 2]),
        ([(0, 5), (0, 1), (2, 3)], [0, 1, 1]),
    ],
)
def test_parts_stand_side_by_side_unless_one_ends_before_the_other_begins(lives, columns):
    links = [(1, 0), (2, 1), (4, 3), (5, 4), (7, 6), (8, 7)]
    lives = [life for begin, end in lives for life in ((begin, begin), (begin, end), (end, end))]
    boxes = best_placement(plan_of(links, lives=lives)).boxes
    lefts = [column * (90 + 2 * GAP_X) for column in columns]
    assert boxes == [(left, row * ROW) for left in lefts for row in range(3)]


def test_a_source_of_several_parts_stands_above_the_middle_of_its_users():
    """Of the parts 2, 3 and 4, the last two use source 0, and the first two source 1."""
    boxes = best_placement(plan_of([(3, 0), (4, 0), (2, 1), (3, 1)], {0, 1})).boxes
    step = 90 + 2 * GAP_X
    assert boxes[2:] == [(0, ROW), (step, ROW), (2 * step, ROW)]
    assert boxes[:2] == [(1.5 * step, 0), (0.5 * step, 0)]


def test_a_second_column_begins_beside_the_first_and_edges_turn_above_and_below_both():
    placement = best_placement(plan_of([(i, i - 1) for i in range(1, 14)]))
    columns = [(x, TURN + row * ROW) for x in (0, 90 + TURN) for row in range(7)]
    assert placement.boxes == columns
    above, below, between = TURN - LANE, TURN + 7 * ROW - GAP_Y + LANE, 90 + TURN - LANE
    start, end = 90 + TURN + 45, 45
    turns = [(start, above), (between, above), (between, below), (end, below)]
    assert placement.bends[7, 6] == [*turns, (end, below - LANE)]
    assert (placement.width, placement.height) == (2 * 90 + TURN, 2 * TURN + 7 * ROW - GAP_Y)


def test_long_edges_share_the_dummies_of_their_common_end():
    """Box 4 is three layers below box 0, and two below the boxes 1 and 2."""
    below = [(3, 1), (3, 2), (4, 3), (1, 0), (2, 0)]
    for long, dummies in (
        ([], 0),
        ([(4, 1)], 1),
        ([(4, 1), (4, 2)], 1),  # of the box that they leave
        ([(4, 0)], 2),
        ([(4, 0), (3, 0)], 2),  # of the box where they arrive
    ):
        plan = plan_of(below + long)
        layering = assign_layers(plan, [90.0] * 5, set())
        assert layering.layers[:5] == [0, 1, 1, 2, 3]
        assert len(layering.layers) == 5 + dummies, long


def test_edges_that_need_not_cross_do_not():
    links = [(1, 0), (2, 0), (3, 0), (3, 2), (4, 1), (5, 1), (6, 2), (7, 3), (8, 6), (9, 6)]
    layering = assign_layers(plan_of([*links, (10, 5), (10, 7), (11, 7)]), [90.0] * 12, set())
    rows = reduce_crossings(layering.parts[0], layering)
    for upper, lower in pairwise(rows):
        edges = [
            (above, below)
            for above, box in enumerate(upper)
            for below, other in enumerate(lower)
            if other in layering.neighbours[box]
        ]
        assert not any((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(edges, 2))


def test_edges_are_straight_where_there_is_room():
    """Box 3 has one input, which stands to the right of the middle."""
    boxes = best_placement(plan_of([(1, 0), (2, 0), (3, 2)])).boxes
    assert boxes[1][0] < boxes[2][0] - 10 < boxes[3][0]


def test_a_source_with_one_user_stays_near_it_in_a_drawing_that_is_too_high():
    """With all sources above the columns, this drawing would be narrower."""
    links = [(i, i - 1) for i in range(1, 40)] + [(5 * i, 40 + i) for i in range(8)]
    placement = best_placement(plan_of(links, range(40, 48)))
    assert placement.excess > 1
    heights = [y for _, y in placement.boxes]
    assert min(heights[40:]) == min(heights[:40])  # none is above the columns


@pytest.mark.parametrize(
    ("links", "are_lifted"),
    [
        ([(i, 60 + i % 3) for i in range(60)], True),
        ([(i, 60 + i // 5) for i in range(60) if i % 5 < 2], False),
    ],
)
def test_sources_of_several_users_stand_above_a_drawing_that_comes_closer_to_the_panel_so(
    links, are_lifted
):
    links = [(i, i - 1) for i in range(1, 60)] + links
    sources = {end for _, end in links if end >= 60}
    plan = plan_of(links, sources)
    near, above = _placement(plan, set()), _placement(plan, sources)
    assert near.excess > 1 < above.excess and are_lifted == (above.excess < near.excess)
    assert best_placement(plan) == (above if are_lifted else near)


def test_the_rows_above_all_columns_count_towards_the_height():
    """Ten rows fit the panel, and with them a row that is 12 high, but not one of 14."""
    for height, columns in ((12.0, 1), (14.0, 2)):
        plan = plan_of([(i, i - 1) for i in range(2, 11)] + [(11, 0), (1, 0)], {0})
        plan.boxes[0].height = height
        boxes = best_placement(plan).boxes
        assert len({x for x, _ in boxes[1:11]}) == columns, boxes


def test_coordinates_have_one_decimal():
    plan = plan_of([(1, 0), (2, 1), (2, 0)])
    for number, box in enumerate(plan.boxes):
        box.width, box.height = 90.123 + number / 7, 60.0375 - number / 7
    plan.tensors = [TensorBox(0, 1, 60.0, 22.123, 10.0)]
    placement = best_placement(plan)
    bends = [point for way in placement.bends.values() for point in way]
    places = *placement.boxes, *placement.tensors, *bends
    numbers = [number for place in places for number in place]
    numbers += [placement.width, placement.height]
    assert [round(number, 1) for number in numbers] == numbers


def test_sources_stay_near_their_users_in_a_drawing_that_fits():
    links = [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (4, 0), (4, 2), *((5, i) for i in range(1, 5))]
    plan = plan_of(links, {0})
    near, above = _placement(plan, set()), _placement(plan, {0})
    assert above.excess < near.excess <= 1
    assert best_placement(plan).boxes == near.boxes


def test_a_lifted_source_stands_above_all_even_if_one_part_uses_it():
    plan = plan_of([(1, 0), (2, 1), (2, 3)], {3})
    layerings = [assign_layers(plan, [90.0] * 4, lifted) for lifted in (set(), {3})]
    assert [layering.layers[:4] for layering in layerings] == [[0, 1, 2, 1], [1, 2, 3, 0]]
    assert [layering.parts[-1][:1] for layering in layerings] == [[], [3]]


def test_a_box_whose_inputs_are_sources_stands_right_above_its_user():
    """Box 4 is the transpose of the weight 5, which box 3 multiplies by the result of box 2."""
    plan = plan_of([(1, 0), (2, 1), (3, 2), (3, 4), (4, 5)], {5})
    layers = assign_layers(plan, [90.0] * 6, set()).layers
    assert (layers[4], layers[5]) == (layers[3] - 1, layers[3] - 2)


def test_sources_are_in_the_upper_of_two_rows():
    width = (WIDEST_LAYER - GAP_X) / 2  # of which two have room
    assert _wrapped([[0, 1, 2], [3]], [width] * 4, {2}) == [[2, 0], [1], [3]]
    assert _wrapped([[0, 1, 2]], [width + 1] * 3) == [[0], [1], [2]]


def test_a_source_is_in_the_upper_row_of_a_layer_that_is_too_wide():
    """The boxes 1 to 3 and the source 4, all of which box 5 uses, take two rows."""
    links = [*((box, 0) for box in (1, 2, 3)), *((5, box) for box in (1, 2, 3, 4))]
    layers = assign_layers(plan_of(links, {4}), [WIDEST_LAYER / 2 - GAP_X] * 6, set()).layers
    assert layers == [0, 1, 2, 2, 1, 3, *layers[6:]]


def test_a_part_that_is_too_high_is_divided_into_even_columns():
    def columns(rows, height, above=0.0, width=90.0):
        units = [_Unit(width, height, 45.0) for _ in range(rows)]
        return [len(column) for column in _in_columns([[i] for i in range(rows)], units, above)]

    third = PANEL[1] / 3
    assert columns(2, third) == [2]
    assert columns(2, third, above=third) == [1, 1]
    assert columns(4, third) == [2, 2]
    assert columns(6, third) == [2, 2, 2]
    assert columns(3, third + 7, width=(PANEL[0] - TURN) / 2) == [1, 2]  # no wider than the panel
    # A row stands in the column to which its middle belongs; one that is too high divides nothing.
    for heights, divided in (
        ((250.0, 330.0, 250.0), [[[0]], [[1], [2]]]),
        ((900.0, 20.0, 20.0), [[[0], [1], [2]]]),
    ):
        units = [_Unit(90.0, height, 45.0) for height in heights]
        assert _in_columns([[0], [1], [2]], units, 0.0) == divided
    # Edges from one column to another turn above and below them.
    assert columns(4, (PANEL[1] - TURN - GAP_Y) / 2) == [1, 1, 1, 1]
    assert columns(4, (PANEL[1] - 2 * TURN - GAP_Y) / 2) == [2, 2]


def test_edges_from_one_column_to_different_boxes_of_another_have_lanes_of_their_own():
    """Three edges of this chain of two columns end in three boxes of the first."""
    links = [(i, i - 1) for i in range(1, 14)] + [(13, 5), (12, 4)]
    bends = best_placement(plan_of(links)).bends.values()
    lanes = {x for way in bends for (x, upper), (_, lower) in pairwise(way) if lower > upper}
    assert [b - a for a, b in pairwise(sorted(lanes))] == [LANE, LANE]


def test_only_so_many_edges_have_lanes_of_their_own_as_the_gap_has_room_for():
    links = [(i, i - 1) for i in range(1, 14)] + [(13 - i, 6 - i) for i in range(7)]
    bends = best_placement(plan_of(links)).bends.values()
    lanes = {x for way in bends for (x, upper), (_, lower) in pairwise(way) if lower > upper}
    assert len(lanes) == TURN // LANE - 1


def test_an_edge_to_a_box_above_all_columns_leads_straight_up():
    links = [(i, i - 1) for i in range(1, 14)] + [(13, 14), (15, 14), (16, 15)]
    placement = best_placement(plan_of(links, [14]))
    lane = 90 + TURN + 90 + GAP_X + DUMMY_WIDTH / 2  # beside the second column
    assert {x for x, _ in placement.bends[13, 14][:-1]} == {lane}
    # It takes no room in the first column.
    assert (placement.boxes[0], placement.boxes[7][0]) == ((0, ROW + TURN), 90 + TURN)
    assert placement.boxes[15] == (lane + DUMMY_WIDTH / 2 + 2 * GAP_X, ROW)


def test_tensors_beside_a_box_leave_room_for_the_arrow_below_it():
    box = Box("node", "box", [0], None, 1, 90.0, 60.0)
    tensors = [TensorBox(k, 0, 60.0, 29.0, 0.0) for k in range(4)]
    beyond = (2 * 29 + BETWEEN_TENSORS - 60) / 2  # the box, at its lower end
    assert [_unit_of(box, tensors[:count]).foot for count in (0, 1, 2)] == [
        *(ARROW_FOOT, ARROW_FOOT),
        ARROW_FOOT - beyond,
    ]
    assert _unit_of(box, tensors).foot == 0


def test_a_drawing_ends_where_its_last_box_and_text_end():
    (view,) = drawings_of(scene_made_by(diamond))
    things = [(box.x + box.width, box.y + box.height) for box in view.boxes]
    things += [(drawn.x + drawn.width + drawn.room, 0.0) for drawn in view.tensors]
    right, bottom = (max(side) for side in zip(*things, strict=True))
    assert right <= view.width <= right + 60 and bottom <= view.height <= bottom + 40
    assert min(box.x for box in view.boxes) == min(box.y for box in view.boxes) == 0
