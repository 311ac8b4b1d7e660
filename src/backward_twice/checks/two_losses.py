"""Exercise ``two_losses``: one trunk, two losses, and an optimizer step between the backward calls."""

import torch
from torch import nn

from backward_twice.checks.question import Question


def _draw(generator):
    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    return {
        "weights": {"trunk": normal(4, 3), "head a": normal(1, 4), "head b": normal(2, 4)},
        "x": normal(5, 3),
        "targets": [normal(5, 1), normal(5, 2)],
        "rate": 0.05 + 0.1 * torch.rand(1, generator=generator).item(),
    }


def _layers(weights):
    layers = []
    for weight in weights.values():
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        layer.weight.data.copy_(weight)
        layers.append(layer)
    return layers


def _run_one_update(answer, weights, x, targets, rate):
    trunk, head_a, head_b = layers = _layers(weights)
    optimizer = torch.optim.SGD([layer.weight for layer in layers], lr=rate)
    answer(trunk, head_a, head_b, optimizer, x, *targets)
    return {
        f"weight of the {name}": layer.weight for name, layer in zip(weights, layers, strict=True)
    }


def _gradients(weights, x, targets):
    """By the formulas of the chain rule, without autograd: of each loss for each weight."""
    trunk, *heads = weights.values()
    features = (x @ trunk.T).tanh()
    of_trunk, of_heads = [], []
    for head, target in zip(heads, targets, strict=True):
        of_output = 2 * (features @ head.T - target) / target.numel()
        of_heads.append(of_output.T @ features)
        of_trunk.append(((of_output @ head) * (1 - features**2)).T @ x)
    return of_trunk, of_heads


def _expect_one_update(weights, x, targets, rate):
    of_trunk, of_heads = _gradients(weights, x, targets)
    gradients = [sum(of_trunk), *of_heads]
    return {
        f"weight of the {name}": weight - rate * gradient
        for (name, weight), gradient in zip(weights.items(), gradients, strict=True)
    }


one_update = Question("one_update", _draw, _expect_one_update, _run_one_update)


def _run_parts(answer, weights, x, targets, rate):
    trunk, head_a, head_b = _layers(weights)
    of_a, of_b, of_sum = answer(trunk, head_a, head_b, x, *targets)
    return {"from loss a": of_a, "from loss b": of_b, "from their sum": of_sum}


def _expect_parts(weights, x, targets, rate):
    of_trunk, _ = _gradients(weights, x, targets)
    return {"from loss a": of_trunk[0], "from loss b": of_trunk[1], "from their sum": sum(of_trunk)}


trunk_gradients = Question("trunk_gradients", _draw, _expect_parts, _run_parts)
