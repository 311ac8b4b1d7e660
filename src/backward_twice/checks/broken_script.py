"""Exercise ``broken_script``: a training script with one fault, to be repaired in few lines.

Of the three scripts of a draw one raises because a graph was freed, one because a saved tensor was
changed in place, and one raises nothing but trains a part of the network wrongly.  A repaired
script is run, and its losses and parameters are compared with those of the script without a fault.
"""

import difflib
import linecache

from backward_twice.checks.task import Task

_SCRIPT = '''\
"""Train a recurrent network on a long series, chunk by chunk.

The state goes on from chunk to chunk, but each gradient stays within its chunk.  The loss is the
mean squared error of the predictions plus a penalty on the features.  It trains every parameter.
"""

import torch
from torch import nn
from torch.nn import functional as F

SEED = {seed}
INPUTS, FEATURES, HIDDEN = 3, {features}, {hidden}
CHUNKS, STEPS, BATCH = 4, {steps}, {batch}
RATE, PENALTY, MAX_NORM = {rate}, 0.05, 2.0


def make_chunks(generator):
    """Noisy sums of the last inputs, to be predicted from them."""
    series = torch.randn(CHUNKS * STEPS, BATCH, INPUTS, generator=generator)
    target = series.cumsum(0).sum(-1, keepdim=True).tanh()
    return list(zip(series.split(STEPS), target.split(STEPS)))


class Encoder(nn.Module):
    """Features of each step, in a scale that is learned."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(INPUTS, FEATURES)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, FEATURES))

    def forward(self, x):
        features = torch.tanh(self.linear(x))
        features = features * self.scale
        return features


class Predictor(nn.Module):
    """One prediction for each step, and the state after the last."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(FEATURES, HIDDEN)
        self.head = nn.Linear(HIDDEN, 1, bias=False)
        self.offset = nn.Parameter(torch.zeros(1))

    def forward(self, features, state):
        outputs = []
        for step in features:
            state = self.cell(step, state)
            outputs.append(self.head(state))
        predictions = torch.stack(outputs)
        predictions += self.offset
        return predictions, state


class History:
    """The losses so far, and their running mean."""

    def __init__(self):
        self.losses, self.mean = [], 0.0

    def add(self, loss):
        self.losses.append(loss.item())
        self.mean += 0.1 * (loss.detach() - self.mean)


class Trainer:
    def __init__(self):
        self.encoder, self.predictor = Encoder(), Predictor()
        self.parameters = [*self.encoder.parameters(), *self.predictor.parameters()]
        self.optimizer = torch.optim.SGD(self.parameters, lr=RATE)
        self.state = torch.zeros(BATCH, HIDDEN)
        self.history = History()

    def loss(self, x, target):
        features = self.encoder(x)
        predictions, state = self.predictor(features, self.state)
        self.state = state.detach()
        penalty = PENALTY * features.square().mean()
        return F.mse_loss(predictions, target) + penalty

    def step(self, x, target):
        loss = self.loss(x, target)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, MAX_NORM)
        self.optimizer.step()
        self.history.add(loss)

    @torch.no_grad()
    def evaluate(self, x, target):
        predictions, _ = self.predictor(self.encoder(x), torch.zeros(BATCH, HIDDEN))
        return F.mse_loss(predictions, target).item()


def main():
    torch.manual_seed(SEED)
    trainer = Trainer()
    *training, (x, target) = make_chunks(torch.Generator().manual_seed(SEED))
    for chunk in training:
        trainer.step(*chunk)
    return trainer.history.losses, trainer.evaluate(x, target), trainer.parameters


losses, validation_loss, parameters = main()
'''
_FAULTS = (
    ("self.state = state.detach()", "self.state = state"),
    ("features = features * self.scale", "features *= self.scale"),
    ("self.predictor(features, self.state)", "self.predictor(features.detach(), self.state)"),
)
_MOST_CHANGED = 2
_FEW = f"at most {_MOST_CHANGED} lines are changed"


def _draw(draws):
    sizes = [
        {
            "seed": draws.integer(0, 9999),
            "features": draws.integer(3, 5),
            "hidden": draws.integer(4, 6),
            "steps": draws.integer(3, 5),
            "batch": draws.integer(2, 4),
            "rate": draws.integer(20, 40) / 100,
        }
        for _ in _FAULTS
    ]
    scripts = [
        _SCRIPT.format(**script_sizes).replace(*fault)
        for script_sizes, fault in zip(sizes, draws.shuffled(_FAULTS), strict=True)
    ]
    return {"scripts": scripts, "sizes": sizes}


def _trained(script, number):
    """Run a script; return its losses and its parameters."""
    file = f"<script {number}>"
    # An error in it is shown with its line.
    linecache.cache[file] = len(script), None, script.splitlines(keepends=True), file
    names = {"__name__": "script"}
    exec(compile(script, file, "exec"), names)
    return {
        f"script {number}: losses": names["losses"],
        f"script {number}: validation loss": names["validation_loss"],
        f"script {number}: parameters": names["parameters"],
    }


def _number_of_changes(script, repaired):
    """Return how many lines of a script were replaced, removed or added."""
    matcher = difflib.SequenceMatcher(None, script.splitlines(), repaired.splitlines())
    return sum(max(b - a, d - c) for kind, a, b, c, d in matcher.get_opcodes() if kind != "equal")


def _run(answer, scripts, sizes):
    results = {}
    for number, repaired in enumerate([answer(script) for script in scripts], 1):
        is_small = _number_of_changes(scripts[number - 1], repaired) <= _MOST_CHANGED
        results |= {**_trained(repaired, number), f"script {number}: {_FEW}": is_small}
    return results


def _expect(scripts, sizes):
    expected = {}
    for number, script_sizes in enumerate(sizes, 1):
        results = _trained(_SCRIPT.format(**script_sizes), number)
        expected |= {**results, f"script {number}: {_FEW}": True}
    return expected


repair = Task("repair", _draw, _expect, _run)
