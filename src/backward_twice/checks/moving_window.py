"""Exercise ``moving_window``: a buffer overwritten in place, whose older rows enter the loss.

The older rows are constants of the loss; only the new row has a gradient.
"""

import torch

from backward_twice.checks.networks import two_layers
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


train = Task("train", _draw, run=_run)
