"""What the source shows of a value that lost its graph."""

import linecache
import textwrap
from types import FrameType

import pytest
import torch

from gradtrace.autograd import lost_graph

LOST = {
    "region": (
        "with torch.no_grad():\n"
        "    prediction = model(x)\n"
        "loss = F.mse_loss(prediction, target)\n"
        "loss.backward()"
    ),
    "decorator": (
        "@torch.inference_mode()\n"
        "def encode(x):\n"
        "    return model(x)\n"
        "loss = encode(x).pow(2).mean()\n"
        "loss.backward()"
    ),
    "item": (
        "total = 0.0\n"
        "value = model(x).mean().item()\n"
        "loss = torch.tensor(value * 2)\n"
        "loss.backward()"
    ),
    "argmax": (
        "classes = model(x).argmax(1)\n"
        "loss = (classes.float() - target).abs().mean()\n"
        "loss.backward()"
    ),
    "detach": ("features = model(x).detach()\nloss = -features.sum() / 4\nloss.backward()"),
    "function": (
        "def distance(a, b):\n"
        "    return torch.as_tensor(abs(a.mean().item() - b))\n"
        "loss = criterion(distance(model(x), 1.0), torch.tensor(0.0))\n"
        "torch.autograd.backward(loss)"
    ),
    "returned in a region": (
        "def encode(x):\n"
        "    with torch.no_grad():\n"
        "        return model(x)\n"
        "loss = encode(x).pow(2).mean()\n"
        "loss.backward()"
    ),
    "compared": ("right = model(x) > 0\nloss = right.float().mean()\nloss.backward()"),
    "frozen critic": (
        "critic = torch.nn.Linear(1, 1).requires_grad_(False)\n"
        "action = torch.distributions.Normal(model(x), 1.0).sample()\n"
        "loss = -critic(action).mean()\n"
        "loss.backward()"
    ),
    "scaled": (
        "with torch.set_grad_enabled(False):\n    loss = model(x).mean()\n(loss / 4).backward()"
    ),
}
WHERE = {
    "region": ("region", 1), "decorator": ("region", 1), "item": ("copy", 2),
    "argmax": ("operation", 1), "detach": ("detach", 1), "function": ("copy", 2),
    "returned in a region": ("region", 2), "compared": ("operation", 1),
    "frozen critic": ("operation", 2),
    "scaled": ("region", 1),
}  # fmt: skip


def run_until_it_fails(text: str, name: str) -> FrameType:
    """Run a program and return the frame in which it failed."""
    text = textwrap.dedent(text) + "\n"
    file = f"/programs/{name}.py"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    torch.manual_seed(0)
    variables = {
        "torch": torch,
        "F": torch.nn.functional,
        "model": torch.nn.Linear(3, 1),
        "criterion": torch.nn.MSELoss(),
        "x": torch.ones(2, 3),
        "target": torch.zeros(2, 1),
    }
    with pytest.raises(RuntimeError, match="does not require grad") as failure:
        exec(compile(text, file, "exec"), variables)
    traceback = failure.value.__traceback__
    while traceback.tb_frame.f_code.co_filename != file:
        traceback = traceback.tb_next
    return traceback.tb_frame


@pytest.mark.parametrize("name", LOST)
def test_the_line_where_a_value_lost_its_graph(name):
    detachment = lost_graph.find(run_until_it_fails(LOST[name], name))
    assert detachment is not None
    assert (detachment.how, detachment.location.line) == WHERE[name]


def test_a_detached_target_beside_a_frozen_prediction_is_no_explanation():
    program = """\
        model.requires_grad_(False)
        prediction = model(x)
        loss = F.mse_loss(prediction, (target + 1).detach())
        loss.backward()"""
    frame = run_until_it_fails(program, "frozen")
    # The prediction's own graph was never there: that the source does not show.
    assert lost_graph.find(frame) is None


def test_an_operand_that_the_source_does_not_explain_leaves_it_open():
    program = """\
        class Elsewhere:
            def loss(self):
                return torch.zeros(())
        loss = Elsewhere().loss() + model(x).mean().detach()
        loss.backward()"""
    assert lost_graph.find(run_until_it_fails(program, "elsewhere")) is None
