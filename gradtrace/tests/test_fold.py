"""What large models look like at first sight, and when their groups are opened."""

import copy

import pytest
import torch
from torch import nn

from gradtrace import snapshot, trace
from gradtrace.draw.fold import tree_of_groups, views
from gradtrace.draw.groups import ALIKE, Group
from gradtrace.draw.layout import drawings_of
from gradtrace.draw.scene import Scene, SceneNode
from gradtrace.player.trace_scene import scene_of


def first_sight(program, *arguments):
    seen = trace(program, *arguments, max_steps=10**6)
    assert seen.error is None
    return drawings_of(scene_of(seen))


def titles(view):
    return [box.title for box in view.boxes if box.kind != "outside"]


def inside(found, view, title):
    """The view that a group of this title opens."""
    (box,) = [box for box in view.boxes if box.title == title]
    return found[box.view]


def transformer():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 12)
    out = model(torch.ones(1, 2, 8))
    loss = out.pow(2).mean()
    loss.backward()


def test_layers_that_look_alike_are_one_box_though_the_first_gets_plain_data():
    found = first_sight(transformer)
    assert titles(found[0]) == ["model.layers.0 to 11 × 12", "PowBackward0", "MeanBackward0"]
    layers = inside(found, found[0], "model.layers.0 to 11 × 12")
    assert titles(layers) == [f"layers.{i}" for i in range(12)]
    layer = inside(found, layers, "layers.3")
    assert {"self_attn", "linear1", "linear2", "norm1", "norm2"} <= set(titles(layer))
    linear = inside(found, layer, "linear1")
    assert {"weight", "bias", "AddmmBackward0"} <= set(titles(linear))


class Block(nn.Module):
    def __init__(self, width, shortcut):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.norm = nn.BatchNorm2d(width)
        self.shortcut = nn.Conv2d(width, width, 1) if shortcut else nn.Identity()

    def forward(self, x):
        return torch.relu(self.conv2(self.norm(torch.relu(self.conv1(x)))) + self.shortcut(x))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 1)
        for number, depth in enumerate((3, 4, 6, 3), 1):
            blocks = [Block(4, shortcut=i == 0) for i in range(depth)]
            setattr(self, f"stage{number}", nn.Sequential(*blocks))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = self.stage4(self.stage3(self.stage2(self.stage1(x))))
        return self.head(x.mean((2, 3)))


def residual():
    model = Residual()
    scores = model(torch.ones(2, 1, 2, 2))
    loss = scores.sum()
    loss.backward()


def test_a_model_that_would_stand_alone_is_opened_whichever_line_makes_the_loss():
    class Block(nn.Sequential):
        def forward(self, x):
            return torch.relu(x + super().forward(x))

    def program():
        model = nn.Sequential(
            nn.Linear(4, 4),
            *(Block(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh()) for _ in range(5)),
            nn.Linear(4, 1),
        )
        out = model(torch.ones(2, 4))
        loss = out.pow(2).mean()
        loss.backward()

    shown = titles(first_sight(program)[0])
    assert {"model.0", "model.1", "model.5", "model.6"} <= set(shown)


def test_what_follows_a_block_without_parameters_belongs_to_its_stage():
    found = first_sight(residual)
    assert titles(found[0]) == [
        "model.stem", "ReluBackward0", "model.stage1", "model.stage2", "model.stage3",
        "model.stage4", "MeanBackward1", "model.head", "SumBackward0",
    ]  # fmt: skip
    stage = inside(found, found[0], "model.stage3")
    assert titles(stage) == ["0", "1", "2", "3", "4", "5"]
    assert titles(inside(found, stage, "5"))[-2:] == ["AddBackward0", "ReluBackward0"]


def recurrent(steps):
    cell = nn.GRUCell(2, 2)
    h = torch.zeros(1, 2)
    for x in torch.ones(steps, 1, 2):
        h = cell(x, h)
    loss = h.sum()
    loss.backward()


def test_of_a_loop_the_first_iterations_and_the_last_are_seen_and_ranges_of_those_between():
    found = first_sight(recurrent, 200)
    head = 1 + recurrent.__code__.co_firstlineno + 2
    assert titles(found[0]) == [
        "cell: 4 parameters",
        f"iteration 1, line {head}",
        f"iteration 2, line {head}",
        f"iterations 3 to 199, line {head}",
        f"iteration 200, line {head}",
        "SumBackward0",
    ]
    ranges = inside(found, found[0], f"iterations 3 to 199, line {head}")
    assert titles(ranges) == [
        f"iterations {begin} to {end}, line {head}"
        for begin, end in ((3, 50), (51, 100), (101, 150), (151, 199))
    ]
    tens = inside(found, ranges, f"iterations 3 to 50, line {head}")
    assert titles(tens) == [
        f"iterations {begin} to {end}, line {head}"
        for begin, end in ((3, 10), (11, 20), (21, 30), (31, 40), (41, 50))
    ]
    steps = inside(found, tens, f"iterations 21 to 30, line {head}")
    assert titles(steps) == [f"iteration {i}, line {head}" for i in range(21, 31)]
    step = inside(found, steps, f"iteration 30, line {head}")
    assert {"TanhBackward0", "SigmoidBackward0"} <= set(titles(step))
    outside = {box.title for box in step.boxes if box.kind == "outside"}
    assert {f"iteration 29, line {head}", f"iterations 31 to 40, line {head}"} <= outside
    # However long the loop: the way into any step is short.
    assert len(titles(first_sight(recurrent, 400)[0])) <= 40


def test_iterations_are_counted_in_every_kind_of_loop():
    def program(steps):
        y = torch.ones(4, requires_grad=True)
        for _ in range(2):
            while True:
                if steps % 2:
                    y = (y.exp() + y).sin() * y
                steps += 1
                if steps % 16 == 0:
                    break
        return y

    found = first_sight(program, 0)
    head = program.__code__.co_firstlineno + 2
    outer = [f"iteration 1, line {head}", f"iteration 2, line {head}"]
    everywhere = {title for view in found for title in titles(view)}
    assert titles(found[0]) == ["y", *outer]
    assert {f"iteration {i}, line {head + 1}" for i in range(2, 17, 2)} <= everywhere
    assert f"iteration 1, line {head + 1}" not in everywhere  # it made nothing


def module_with_steps():
    model = nn.GRU(2, 2)
    out, _ = model(torch.ones(200, 1, 2))
    loss = out.sum()
    loss.backward()


def test_steps_inside_one_call_are_counted_from_0_as_the_sequence_is():
    found = first_sight(module_with_steps)
    assert titles(found[0]) == [
        "before the steps of model", "model: 2 parameters", "step 0 of model", "step 1 of model",
        "steps 2 to 198 of model", "step 199 of model", "after the steps of model", "SumBackward0",
    ]  # fmt: skip
    ranges = inside(found, found[0], "steps 2 to 198 of model")
    assert titles(ranges) == ["steps 2 to 49", "steps 50 to 99", "steps 100 to 149",
                              "steps 150 to 198"]  # fmt: skip
    tens = inside(found, ranges, "steps 50 to 99")
    steps = inside(found, tens, "steps 60 to 69")
    assert titles(steps) == [f"step {k}" for k in range(60, 70)]
    outside = {box.title for box in steps.boxes if box.kind == "outside"}
    assert outside == {
        "before the steps and 1 more", "steps 50 to 59", "steps 70 to 79", "after the steps"
    }  # fmt: skip


@pytest.mark.parametrize(("steps", "members"), [(ALIKE, ALIKE), (ALIKE + 1, 4)])
def test_more_than_a_few_time_steps_are_shown_by_the_first_two_and_the_last(steps, members):
    """Twelve layers stand side by side; time steps are divided into ranges from seven on."""

    def program():
        model = nn.RNN(2, 2)
        out, _ = model(torch.ones(steps, 1, 2))
        return out.sum()

    groups = [tree_of_groups(scene_of(trace(program)))]
    for group in groups:  # grows while it is read
        groups += [member for member in group.members if isinstance(member, Group)]
    (run,) = [group for group in groups if group.kind == "run"]
    assert len(run.members) == members


def test_time_steps_inside_a_forward_are_told_by_the_weights_that_they_share():
    class Unrolled(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.RNNCell(2, 2), nn.Linear(2, 1)

        def forward(self, x):
            h, outs = torch.zeros(1, 2), []
            for step in x:
                h = self.cell(step, h)
                outs.append(self.head(h))
            return torch.stack(outs)

    def program():
        model = Unrolled()
        out = model(torch.ones(30, 1, 2))
        return out

    assert {"step 0 of model", "steps 2 to 28 of model", "step 29 of model"} <= set(
        titles(first_sight(program)[0])
    )


def test_layers_without_names_are_no_time_steps():
    x = torch.ones(1, 2, requires_grad=True)
    model = nn.Sequential(*(layer for _ in range(40) for layer in (nn.Linear(2, 2), nn.Tanh())))
    text = snapshot(model(x).sum()).to_svg()
    assert "step" not in text


def test_a_loop_without_shared_parameters_is_seen_by_its_first_and_last_iterations():
    def program():
        layers, x = [nn.Linear(8, 8) for _ in range(15)], torch.ones(2, 8)
        for layer in layers:
            x = torch.tanh(layer(x))
        total = x.sum()
        return total

    head = program.__code__.co_firstlineno + 2
    found = first_sight(program)
    assert titles(found[0]) == [
        *(f"iteration{i}, line {head}" for i in (" 1", " 2", "s 3 to 14", " 15")),
        "SumBackward0",
    ]
    iterations = inside(found, found[0], f"iterations 3 to 14, line {head}")
    assert titles(iterations) == [f"iteration {i}, line {head}" for i in range(3, 15)]


def test_layers_of_a_recurrent_module_are_told_apart():
    def program():
        model = nn.LSTM(2, 2, 2, bidirectional=True).double()
        out, _ = model(torch.ones(5, 1, 2, dtype=torch.float64))
        return out

    layers = {title for title in titles(first_sight(program)[0]) if title.startswith("layer")}
    assert layers == {f"layer {i}{way} of model" for i in (0, 1) for way in ("", ", reverse")}


def test_lines_of_a_loop_without_modules_are_iterations():
    def program():
        y = torch.ones(2, requires_grad=True)
        for _ in range(50):
            z = y.exp()
            y = z.sin()
        return y

    head = program.__code__.co_firstlineno + 2
    shown = titles(first_sight(program)[0])
    assert shown == ["y", *(f"iteration{i}, line {head}" for i in (" 1", " 2", "s 3 to 49", " 50"))]


SMOOTH = [nn.Softplus(), nn.Sigmoid(), nn.Tanh(), nn.GELU(), nn.SiLU()]


def test_calls_of_one_module_are_numbered_and_those_without_parameters_are_known():
    def program():
        net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Sequential(*SMOOTH, nn.Flatten()))
        x, y = torch.ones(2, 3, 1, 2, 2)
        far = net(x) + net(y) + net(x * 2) + net(y * 2)
        return far, far.exp()

    shown = titles(first_sight(program)[0])
    assert [title for title in shown if "call" in title] == [
        f"net (call {i})" for i in (1, 2, 3, 4)
    ]
    seen = trace(program)
    softplus = next(node for node in seen.nodes if node.name == "SoftplusBackward0")
    assert seen.calls[softplus.call].name == "net.1.0"


def test_a_module_called_twice_and_weights_that_are_tied():
    def program():
        embed, block = nn.Linear(3, 3, bias=False), nn.Sequential(*map(layer, range(12)))
        out = nn.Linear(3, 3, bias=False)
        out.weight = embed.weight
        x = torch.ones(1, 3)
        a = out(block(embed(x)))
        b = out(block(embed(x + 1)))
        loss = (a * b).sum()
        loss.backward()

    def layer(_):
        return nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    found = first_sight(program)
    shown = titles(found[0])
    assert shown[:3] == ["out.weight", "embed.weight", "block: 24 parameters"]
    assert shown.count("block.0 to 11 × 12") == 2
    assert {"embed (call 1)", "embed (call 2)"} <= set(shown)


def test_modules_inside_themselves_do_not_overflow_the_stack():
    class Nested(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return self.inner(x * self.weight) if self.inner is not None else x * self.weight

    model = None
    for _ in range(120):
        model = Nested(model)
    graph = snapshot(model(torch.ones(1)), model=model)
    assert len(graph.nodes) == 240
    assert "<svg" in graph.to_svg()


@pytest.mark.parametrize("names", [["Exp"], ["Exp", "Sin", "Mul", "Mul"], list("abcdefghijk")])
def test_a_hundred_thousand_nodes_are_folded(names):
    count = 100_000
    nodes = [
        SceneNode(names[i % len(names)], "", False, (i - 1,) if i else (), i, None, None, 1, 0)
        for i in range(count)
    ]
    found = views(Scene(nodes, [], [(0, 0)] * count))
    assert max(len(view.boxes) for view in found) <= 40


def test_groups_are_intervals_of_the_row():
    scene = scene_of(trace(transformer))
    place = {i: node.order for i, node in enumerate(scene.nodes)}
    groups = [tree_of_groups(scene)]
    for group in groups:
        groups += [member for member in group.members if not isinstance(member, int)]
        orders = sorted(order for i in group.nodes() if (order := place[i]) is not None)
        assert orders == list(range(orders[0], orders[-1] + 1)) if orders else True
    assert len(groups) > 50


def test_steps_of_a_model_are_called_after_its_class():
    model = nn.GRU(2, 2)
    out, _ = model(torch.ones(200, 1, 2))
    text = snapshot(out.sum(), model=model).to_svg()
    assert ">step 0 of GRU<" in text
    assert ">steps 2 to 198 of GRU<" in text
    assert ">GRU: 2 parameters<" in text


def test_a_snapshot_folds_as_a_trace_does():
    model = Residual()
    loss = model(torch.ones(2, 1, 2, 2)).sum()
    text = snapshot(loss, model=copy.copy(model))._repr_html_()
    for title in ("stem", "stage1", "stage4", "head"):
        assert f">{title}<" in text
