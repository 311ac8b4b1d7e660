"""Exercise ``running_total``: a loss divided by its running mean, and the graph of a total.

The loss is divided by its own running mean.  An answer that leaves the mean in the graph raises
because of its old part, or, if only that is detached, trains other weights because of the new part.
"""

from functools import partial
from itertools import pairwise

import torch
from torch import nn

from backward_twice.checks.networks import PARAMETERS, two_layers
from backward_twice.checks.task import Task
from gradtrace import snapshot


def _draw_training(draws):
    features, hidden = draws.integer(2, 4), draws.integer(3, 5)
    sizes = draws.integers(draws.integer(4, 7), 3, 6)
    return {
        "layers": draws.layers(features, hidden, 1),
        "batches": [[draws.normal(size, features), 2 * draws.normal(size, 1)] for size in sizes],
        "decay": draws.uniform(0.6, 0.9),
        "rate": draws.uniform(0.05, 0.1),
    }


def _run_training(answer, layers, batches, decay, rate):
    net = two_layers(layers)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    history = answer(net, optimizer, [tuple(batch) for batch in batches], decay)
    by_batch = {f"running mean after batch {i}": value for i, value in enumerate(history, 1)}
    return dict(zip(PARAMETERS, net.parameters(), strict=True)) | by_batch


normalised_training = Task("normalised_training", _draw_training, run=_run_training)


def _draw_validation(draws):
    hidden = draws.integers(draws.integer(1, 4), 2, 12)
    return {
        "batch_sizes": draws.integers(draws.integer(2, 6), 1, 20),
        "widths": [draws.integer(2, 9), *hidden, draws.integer(1, 3)],
    }


def _run_bytes(answer, batch_sizes, widths):
    all_batches, last_batch = answer(batch_sizes, widths)
    return {"bytes saved for total": all_batches, "bytes saved for the last loss": last_batch}


def _held(batch_sizes, widths):
    layers = [nn.Linear(*pair) for pair in pairwise(widths)]
    between = [module for layer in layers for module in (nn.Tanh(), layer)][1:]
    net, total = nn.Sequential(*between), 0
    for size in batch_sizes:
        loss = net(torch.ones(size, widths[0])).square().mean()
        total = total + loss
    return snapshot(total).held.activations, snapshot(loss).held.activations


bytes_held = Task("bytes_held", _draw_validation, partial(_run_bytes, _held), _run_bytes)
