"""What the source shows of a value that lost its graph."""

import linecache
import textwrap
from traceback import walk_tb
from types import FrameType

import pytest
import torch

from gradtrace.autograd import lost_graph

LOST = {
    "unpacked gradient": (
        "x.requires_grad_()\n"
        "(slope,) = torch.autograd.grad(model(x).sum(), x)\n"
        "penalty = (slope.norm(dim=1) - 1).pow(2).mean()\n"
        "(10 * penalty).backward()"
    ),
    "gradient": (
        "def derivative(u, x):\n"
        "    return torch.autograd.grad(u, x, torch.ones_like(u))[0]\n"
        "x.requires_grad_()\n"
        "slope = derivative(model(x), x)\n"
        "loss = slope.pow(2).mean()\n"
        "loss.backward()"
    ),
    "passed on": (
        "def train(value):\n"
        "    loss = value.pow(2).mean()\n"
        "    loss.backward()\n"
        "train(model(x).detach())"
    ),
    "method of a temporary": (
        "class Sampler:\n"
        "    def __init__(self, steps): self.steps = steps\n"
        "    @torch.no_grad()\n"
        "    def run(self, x):\n"
        "        for _ in range(self.steps):\n"
        "            x = model(x).expand(2, 3)\n"
        "        return x\n"
        "class Critic:\n"
        "    def score(self, x):\n"
        "        return Sampler(2).run(x)\n"
        "critic = Critic()\n"
        "scores = critic.score(x)\n"
        "loss = scores.mean()\n"
        "loss.backward()"
    ),
    "one of several values": (
        "def embed(x, normed):\n"
        "    h = model(x)\n"
        "    if normed:\n"
        "        h = h.data / 2\n"
        "    return h\n"
        "h = embed(model(x).expand(2, 3), True)\n"
        "loss = h.mean()\n"
        "loss.backward()"
    ),
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
    "index of a maximum": (
        "for _ in range(2):\n"
        "    _, best = torch.max(model(x), dim=1)\n"
        "    loss = torch.nn.L1Loss()(best.to(torch.float32), target[:, 0])\n"
        "    loss.backward()"
    ),
    "list of losses": (
        "losses = []\n"
        "for row in x:\n"
        "    losses.append(model(row).mean())\n"
        "loss = torch.tensor(losses).sum()\n"
        "loss.backward()"
    ),
    "method": (
        "class Trainer:\n"
        "    def scores(self, out):\n"
        "        return {'hits': (out.round().long() == 1).float(), 'n': 3}\n"
        "    def step(self):\n"
        "        self.hits = self.scores(model(x))\n"
        "        self.loss = 1 - self.hits['hits'].mean()\n"
        "trainer = Trainer()\n"
        "trainer.step()\n"
        "loss = trainer.scores(model(x))['hits'].mean()\n"
        "loss.backward()"
    ),
    "numpy": (
        "class Wrapper(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        values = model(x).detach().numpy()\n"
        "        return torch.from_numpy(values)\n"
        "wrapper = Wrapper()\n"
        "loss = F.mse_loss(wrapper(x), target)\n"
        "loss.backward()"
    ),
    "call of an object": (
        "class Pipeline:\n"
        "    @torch.no_grad()\n"
        "    def __call__(self, prompt):\n"
        "        return model(prompt).sigmoid()\n"
        "pipeline = Pipeline()\n"
        "loss = F.mse_loss(pipeline(x), target)\n"
        "loss.backward()"
    ),
    "scaled": (
        "with torch.set_grad_enabled(False):\n    loss = model(x).mean()\n(loss / 4).backward()"
    ),
}
WHERE = {
    "gradient": ("first_order", 2), "unpacked gradient": ("first_order", 2),
    "passed on": ("detach", 4),
    "method of a temporary": ("region", 3), "one of several values": ("detach", 4),
    "region": ("region", 1), "decorator": ("region", 1), "item": ("copy", 2),
    "argmax": ("operation", 1), "detach": ("detach", 1), "function": ("copy", 2),
    "returned in a region": ("region", 2), "compared": ("operation", 1),
    "frozen critic": ("operation", 2), "index of a maximum": ("operation", 2),
    "list of losses": ("copy", 4), "method": ("operation", 3), "numpy": ("copy", 3),
    "scaled": ("region", 1), "call of an object": ("region", 2),
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
    frames = (frame for frame, _ in walk_tb(failure.value.__traceback__))
    *_, innermost = (frame for frame in frames if frame.f_code.co_filename == file)
    return innermost


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


def test_a_line_that_hides_how_the_graph_was_lost_is_named_itself():
    program = """\
        hidden = getattr(torch.Tensor, "de" + "tach")
        loss = hidden(model(x).mean())
        loss.backward()"""
    detachment = lost_graph.find(run_until_it_fails(program, "elsewhere"))
    assert (detachment.how, detachment.location.line) == ("line", 2)
