"""Exercise ``uneven_pieces``: one step for a batch that comes in pieces of unequal size.

The loader writes each piece into the memory of the previous one, as loaders do that avoid copies.
So an answer that keeps the graphs of all pieces for one backward call at the end raises; an answer
that copies the pieces is found by the amount of data that its graphs save.  Several updates are
played, the first with gradients left over.  Under a scaler one of the updates overflows, because
the weights alone would not show whether an answer uses the scaler.  Of the other two updates one is
clipped.
"""

import torch

from backward_twice.checks.generator import drawn_until
from backward_twice.checks.networks import two_layers
from backward_twice.checks.task import Task
from backward_twice.checks.witness import most_held

_UPDATES = 2
_OVERFLOWS = 1
"""The number of the update whose scaled gradients float32 does not hold; from 0."""
_LARGE = 1e38
_APART = "the graphs never hold more than two pieces at once"
_WIDE, _ROWS = 32, (20, 24, 18, 24, 22, 10)
"""Columns of the data and rows of the pieces in the run that counts the numbers that graphs save:
most of them are the data."""


def _draw(draws, updates=_UPDATES):
    def sizes():
        low, high = draws.integer(1, 3), draws.integer(5, 8)
        return [high, *draws.integers(2, 2, 7), low]

    return {
        "weights": draws.layers(3, 4, 1),
        "batches": [draws.batches(sizes(), 3, 1) for _ in range(updates)],
        "rate": draws.uniform(0.05, 0.15),
    }


def _norms(weights, batches, rate, max_norm=float("inf")):
    """Train without the batch that overflows; return the norm of each other batch's gradient."""
    net, norms = two_layers(weights), []
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    for batch in batches[:_OVERFLOWS] + batches[_OVERFLOWS + 1 :]:
        x, target = map(torch.cat, zip(*batch, strict=True))
        optimizer.zero_grad()
        (net(x) - target).square().mean().backward()
        norms.append(torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm).item())
        optimizer.step()
    return norms


def _draw_clipped(draws):
    inputs = _draw(draws, _UPDATES + 1)
    first, _ = _norms(**inputs)
    return inputs | {"max_norm": first * draws.uniform(0.5, 1.5)}


def _one_of_two_is_clipped(inputs):
    """Whether one update is clearly clipped and another clearly not."""
    norms = _norms(**inputs)
    return min(norms) < 0.8 * inputs["max_norm"] and max(norms) > 1.2 * inputs["max_norm"]


def _draw_scaled(draws):
    scale = 2.0 ** draws.integer(8, 14)
    inputs = drawn_until(_one_of_two_is_clipped, lambda: _draw_clipped(draws))
    inputs["batches"][_OVERFLOWS][0][1][0] = _LARGE
    return inputs | {"scale": scale}


def _pieces(batch):
    """Yield the pieces of a batch, each of which overwrites the memory of the previous one."""
    peak = max(len(x) for x, _ in batch)
    memory = [torch.empty(peak, tensor.shape[1]) for tensor in batch[0]]
    for piece in batch:
        for place, tensor in zip(memory, piece, strict=True):
            place[: len(tensor)].copy_(tensor)
        yield tuple(place[: len(tensor)] for place, tensor in zip(memory, piece, strict=True))


def _run(answer, weights, batches, rate, scale=None, **clip):
    """Return the trained weights, and whether the data of three pieces is never saved at once."""

    def train(weights, batches):
        net = two_layers(weights, leftover=True)
        optimizer = torch.optim.SGD(net.parameters(), lr=rate)
        scalers = [torch.amp.GradScaler("cpu", init_scale=scale)] if scale else []
        for batch in batches:
            count = sum(len(x) for x, _ in batch)
            answer(net, optimizer, *scalers, _pieces(batch), count, *clip.values())
        results = dict(net.named_parameters())
        for scaler in scalers:
            results["scale at the end"] = scaler.get_scale()
        return results

    results = train(weights, batches)
    wide = weights[0][:, :1] * torch.linspace(0.1, 0.2, _WIDE)
    batch = [[torch.ones(rows, _WIDE), torch.ones(rows, 1)] for rows in _ROWS]
    peak = most_held(lambda: train([wide, *weights[1:]], [batch]))
    return results | {_APART: peak < 3 * max(_ROWS) * _WIDE}


accumulate = Task("accumulate", _draw, run=_run)

accumulate_scaled = Task("accumulate_scaled", _draw_scaled, run=_run)
