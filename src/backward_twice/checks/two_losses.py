"""Exercise ``two_losses``: one trunk, two losses, an optimizer step between the backward calls.

The trunk has two layers: backward through the second needs its weight, so a step in between is
noticed.  With one layer it would not be, and the update would even come out right.
"""

import torch
from torch import nn

from backward_twice.checks.question import Task


def _draw(generator):
    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    return {
        "weights": {
            "trunk's first layer": normal(4, 3),
            "trunk's second layer": normal(4, 4),
            "head a": normal(1, 4),
            "head b": normal(2, 4),
        },
        "x": normal(5, 3),
        "targets": [normal(5, 1), normal(5, 2)],
        "rate": 0.05 + 0.1 * torch.rand(1, generator=generator).item(),
    }


def _layers(weights):
    """The layers, with gradients of an earlier step: none of them is to count, or to be lost."""
    layers = []
    for weight in weights.values():
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        layer.weight.data.copy_(weight)
        layer.weight.grad = weight.cos()
        layers.append(layer)
    first, second, head_a, head_b = layers
    return layers, nn.Sequential(first, nn.Tanh(), second, nn.Tanh()), head_a, head_b


def _run_one_update(answer, weights, x, targets, rate):
    layers, trunk, head_a, head_b = _layers(weights)
    optimizer = torch.optim.SGD([layer.weight for layer in layers], lr=rate)
    answer(trunk, head_a, head_b, optimizer, x, *targets)
    return {
        f"weight of the {name}": layer.weight for name, layer in zip(weights, layers, strict=True)
    }


def _gradients(weights, x, targets):
    """By the chain rule, without autograd: of each loss, for the trunk's layers and its head."""
    first, second, *heads = weights.values()
    hidden = (x @ first.T).tanh()
    features = (hidden @ second.T).tanh()
    for head, target in zip(heads, targets, strict=True):
        of_output = 2 * (features @ head.T - target) / target.numel()
        of_second = (of_output @ head) * (1 - features**2)
        of_first = (of_second @ second) * (1 - hidden**2)
        yield of_first.T @ x, of_second.T @ hidden, of_output.T @ features


def _expect_one_update(weights, x, targets, rate):
    of_a, of_b = _gradients(weights, x, targets)
    gradients = [of_a[0] + of_b[0], of_a[1] + of_b[1], of_a[2], of_b[2]]
    return {
        f"weight of the {name}": weight - rate * gradient
        for (name, weight), gradient in zip(weights.items(), gradients, strict=True)
    }


one_update = Task("one_update", _draw, _expect_one_update, _run_one_update)


def _run_trunk_gradients(answer, weights, x, targets, rate):
    layers, trunk, head_a, head_b = _layers(weights)
    of_a, of_b, of_sum = answer(trunk, head_a, head_b, x, *targets)
    remaining = {
        f".grad of the {name}": layer.weight.grad
        for name, layer in zip(weights, layers, strict=True)
    }
    return {"from loss a": of_a, "from loss b": of_b, "from their sum": of_sum, **remaining}


def _expect_trunk_gradients(weights, x, targets, rate):
    (of_a, *_), (of_b, *_) = _gradients(weights, x, targets)
    remaining = {f".grad of the {name}": weight.cos() for name, weight in weights.items()}
    return {"from loss a": of_a, "from loss b": of_b, "from their sum": of_a + of_b, **remaining}


trunk_gradients = Task("trunk_gradients", _draw, _expect_trunk_gradients, _run_trunk_gradients)
