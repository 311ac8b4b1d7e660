"""Exercise ``two_losses``: one trunk, two losses, an optimizer step between the backward calls.

The trunk has two layers: backward through the second needs its weight, so a step in between is
noticed.  With one layer it would not be, and the update would even come out right.
"""

import torch
from torch import nn

from backward_twice.checks.networks import fill, leave_gradients
from backward_twice.checks.task import Task


def _draw(draws):
    return {
        "weights": {
            "trunk's first layer": draws.normal(4, 3),
            "trunk's second layer": draws.normal(4, 4),
            "head a": draws.normal(1, 4),
            "head b": draws.normal(2, 4),
        },
        "x": draws.normal(5, 3),
        "targets": [draws.normal(5, 1), draws.normal(5, 2)],
        "rate": draws.uniform(0.05, 0.15),
    }


def _layers(weights):
    """Return the layers, the trunk and both heads; each ``.grad`` has a leftover value."""
    layers = [nn.Linear(*reversed(weight.shape), bias=False) for weight in weights.values()]
    fill((layer.weight for layer in layers), weights.values())
    leave_gradients(*layers)
    first, second, head_a, head_b = layers
    return layers, nn.Sequential(first, nn.Tanh(), second, nn.Tanh()), head_a, head_b


def _run_one_update(answer, weights, x, targets, rate):
    layers, trunk, head_a, head_b = _layers(weights)
    optimizer = torch.optim.SGD([layer.weight for layer in layers], lr=rate)
    answer(trunk, head_a, head_b, optimizer, x, *targets)
    return {
        f"weight of the {name}": layer.weight for name, layer in zip(weights, layers, strict=True)
    }


one_update = Task("one_update", _draw, run=_run_one_update)


def _run_trunk_gradients(answer, weights, x, targets, rate):
    layers, trunk, head_a, head_b = _layers(weights)
    of_a, of_b, of_sum = answer(trunk, head_a, head_b, x, *targets)
    remaining = {
        f".grad of the {name}": layer.weight.grad
        for name, layer in zip(weights, layers, strict=True)
    }
    return {"from loss a": of_a, "from loss b": of_b, "from their sum": of_sum, **remaining}


trunk_gradients = Task("trunk_gradients", _draw, run=_run_trunk_gradients)
