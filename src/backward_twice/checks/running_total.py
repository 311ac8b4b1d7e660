"""Exercise ``running_total``: a running mean of losses that is a scale, and what a total holds.

The loss is divided by its own running mean.  Whatever of the mean has a graph
shows in the weights: the old part raises; with that detached, the new part bends the gradient.
"""

from itertools import pairwise

import torch
from torch import nn

from backward_twice.checks.question import Task
from gradtrace import snapshot


def _number(generator, low, high):
    return int(torch.randint(low, high + 1, (), generator=generator))


def _draw_training(generator):
    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    features, hidden = _number(generator, 2, 4), _number(generator, 3, 5)
    sizes = [_number(generator, 3, 6) for _ in range(_number(generator, 4, 7))]
    return {
        "layers": [
            {"weight": normal(hidden, features), "bias": normal(hidden)},
            {"weight": normal(1, hidden), "bias": normal(1)},
        ],
        "batches": [[normal(size, features), 2 * normal(size, 1)] for size in sizes],
        "decay": 0.6 + 0.3 * torch.rand((), generator=generator).item(),
        "rate": 0.05 + 0.05 * torch.rand((), generator=generator).item(),
    }


def _named(layers):
    return {f"{name} of layer {i}": layers[i - 1][name] for i in (1, 2) for name in layers[i - 1]}


def _by_batch(history):
    return {f"running mean after batch {i}": value for i, value in enumerate(history, 1)}


def _run_training(answer, layers, batches, decay, rate):
    linear = []
    for layer in layers:
        linear.append(nn.Linear(*reversed(layer["weight"].shape)))
        linear[-1].load_state_dict(layer)
    net = nn.Sequential(linear[0], nn.Tanh(), linear[1])
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    history = answer(net, optimizer, [tuple(batch) for batch in batches], decay)
    trained = _named([{"weight": layer.weight, "bias": layer.bias} for layer in linear])
    return {**trained, **_by_batch(history)}


def _expect_training(layers, batches, decay, rate):
    """With the gradient of the loss alone, divided by a number; in float64."""
    weights = {name: value.double().requires_grad_() for name, value in _named(layers).items()}
    history = []
    for x, target in batches:
        weight1, bias1, weight2, bias2 = weights.values()
        output = (x.double() @ weight1.T + bias1).tanh() @ weight2.T + bias2
        loss = (output - target.double()).square().mean()
        gradients = torch.autograd.grad(loss, weights.values())
        value = loss.item()
        history.append(decay * history[-1] + (1 - decay) * value if history else value)
        weights = {
            name: (old - rate * gradient / history[-1]).detach().requires_grad_()
            for (name, old), gradient in zip(weights.items(), gradients, strict=True)
        }
    return {**weights, **_by_batch(history)}


normalised_training = Task("normalised_training", _draw_training, _expect_training, _run_training)


def _draw_validation(generator):
    hidden = [_number(generator, 2, 12) for _ in range(_number(generator, 1, 4))]
    return {
        "batch_sizes": [_number(generator, 1, 20) for _ in range(_number(generator, 2, 6))],
        "widths": [_number(generator, 2, 9), *hidden, _number(generator, 1, 3)],
    }


def _run_bytes(answer, batch_sizes, widths):
    all_batches, last_batch = answer(batch_sizes, widths)
    return {"behind total": all_batches, "behind the last loss": last_batch}


def _expect_bytes(batch_sizes, widths):
    """Measured on the program itself."""
    layers = [nn.Linear(*pair) for pair in pairwise(widths)]
    between = [module for layer in layers for module in (nn.Tanh(), layer)][1:]
    net, total = nn.Sequential(*between), 0
    for size in batch_sizes:
        loss = net(torch.ones(size, widths[0])).square().mean()
        total = total + loss
    return {
        "behind total": snapshot(total).held.activations,
        "behind the last loss": snapshot(loss).held.activations,
    }


bytes_held = Task("bytes_held", _draw_validation, _expect_bytes, _run_bytes)
