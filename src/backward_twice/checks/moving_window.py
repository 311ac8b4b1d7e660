"""Exercise ``moving_window``: a buffer overwritten in place, whose older rows enter the loss.

The older rows are constants of the loss; only the new row has a gradient.  The right result is
computed without a buffer, from a list of rows, in double precision.
"""

import torch

from backward_twice.checks.networks import LAYERS, descended, leaves, output_of, two_layers
from backward_twice.checks.task import Task


def _draw(draws):
    width = draws.integer(2, 4)
    steps = 2 * width + draws.integer(1, 2)
    return {
        "weights": draws.layers(3, 4, 2),
        "inputs": [draws.normal(3) for _ in range(steps)],
        "width": width,
        "rate": draws.uniform(0.1, 0.2),
    }


def _run(answer, weights, inputs, width, rate):
    net = two_layers(weights, leftover=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    window = answer(net, optimizer, list(inputs), width)
    return {**dict(net.named_parameters()), "window": window}


def _expect(weights, inputs, width, rate):
    weights = leaves(weights)
    rows = [torch.zeros(2).double() for _ in range(width)]
    for n, x in enumerate(inputs):
        rows[n % width] = row = output_of(weights, x.double())
        loss = (torch.stack(rows).sum(0) - 1).square().mean()
        rows[n % width] = row.detach()
        weights = descended(weights, loss, rate)
    return {**dict(zip(LAYERS, weights, strict=True)), "window": torch.stack(rows)}


train = Task("train", _draw, _expect, _run)
