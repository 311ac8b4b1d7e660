"""Exercise ``uneven_pieces``: one step for a batch that comes in pieces of unequal size.

The loader writes each piece into the memory of the one before, as loaders do that save copies: who
keeps the graphs of all pieces for one backward at the end is told so, and what the graphs hold is
counted, on wide data, for those who copy.  Several updates are played, the first with gradients
left over.  The truth is the gradient of the whole batch, in double precision.  Under a scaler one
of the updates overflows: without a scaler the other weights would come out the same, so only there
it is seen who uses it.  Of the other two one is clipped and one is not.
"""

import torch
from torch import nn

from backward_twice.checks.question import Task
from backward_twice.checks.witness import most_held

_UPDATES = 2
_OVERFLOWS = 1
"""The number of the update whose scaled gradients float32 does not hold; from 0."""
_LARGE = 1e38
_NAMES = ("0.weight", "0.bias", "2.weight", "2.bias")
_APART = "the graphs never hold more than two pieces at once"
_WIDE, _ROWS = 32, (20, 24, 18, 24, 22, 10)
"""Columns of the data, and rows of the pieces, where it is counted what the graphs hold: the data
is most of it, in whatever shape it is saved."""


def _draw(generator, updates=_UPDATES):
    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    def sizes():
        low, high = (torch.randint(*ends, (), generator=generator) for ends in ((1, 4), (5, 9)))
        middle = torch.randint(2, 8, (2,), generator=generator).tolist()
        return [int(high), *middle, int(low)]

    return {
        "weights": [normal(4, 3), normal(4), normal(1, 4), normal(1)],
        "batches": [[[normal(n, 3), normal(n, 1)] for n in sizes()] for _ in range(updates)],
        "rate": 0.05 + 0.1 * torch.rand((), generator=generator).item(),
    }


def _draw_scaled(generator):
    scale = 2.0 ** torch.randint(8, 15, (), generator=generator).item()
    while True:
        inputs = _draw(generator, _UPDATES + 1)
        finite = [batch for n, batch in enumerate(inputs["batches"]) if n != _OVERFLOWS]
        _, [first, _] = _trained(inputs["weights"], finite, inputs["rate"])
        max_norm = first * (0.5 + torch.rand((), generator=generator).item())
        _, norms = _trained(inputs["weights"], finite, inputs["rate"], max_norm)
        # One update is clipped and one is not, so both the norm and the mean decide.
        if min(norms) < 0.8 * max_norm and max(norms) > 1.2 * max_norm:
            break
    inputs["batches"][_OVERFLOWS][0][1][0] = _LARGE
    return inputs | {"scale": scale, "max_norm": max_norm}


def _pieces(batch):
    """The pieces of a batch, each in the memory of the one before."""
    peak = max(len(x) for x, _ in batch)
    memory = [torch.empty(peak, tensor.shape[1]) for tensor in batch[0]]
    for piece in batch:
        for place, tensor in zip(memory, piece, strict=True):
            place[: len(tensor)].copy_(tensor)
        yield tuple(place[: len(tensor)] for place, tensor in zip(memory, piece, strict=True))


def _train(weights, batches, rate, update):
    net = nn.Sequential(nn.Linear(weights[0].shape[1], 4), nn.Tanh(), nn.Linear(4, 1))
    with torch.no_grad():
        for parameter, weight in zip(net.parameters(), weights, strict=True):
            parameter.copy_(weight)
            parameter.grad = weight.cos()  # of an earlier update
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    for batch in batches:
        update(net, optimizer, _pieces(batch), _count(batch))
    return dict(net.named_parameters())


def _count(batch):
    return sum(len(x) for x, _ in batch)


def _are_apart(weights, train):
    """Whether ``train``, which takes weights and batches, holds the data of few pieces at once."""
    wide = weights[0][:, :1] * torch.linspace(0.1, 0.2, _WIDE)
    batch = [[torch.ones(rows, _WIDE), torch.ones(rows, 1)] for rows in _ROWS]
    peak = most_held(lambda: train([wide, *weights[1:]], [batch]))
    return peak < 3 * max(_ROWS) * _WIDE


def _run(answer, weights, batches, rate):
    def train(weights, batches):
        return _train(weights, batches, rate, answer)

    return train(weights, batches) | {_APART: _are_apart(weights, train)}


def _run_scaled(answer, weights, batches, rate, scale, max_norm):
    def train(weights, batches):
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)

        def update(net, optimizer, pieces, count):
            answer(net, optimizer, scaler, pieces, count, max_norm)

        return _train(weights, batches, rate, update) | {"scale at the end": scaler.get_scale()}

    return train(weights, batches) | {_APART: _are_apart(weights, train)}


def _trained(weights, batches, rate, max_norm=float("inf")):
    """The weights after an update for each batch, and the norm of each batch's gradient."""
    weights = [weight.double().requires_grad_() for weight in weights]
    norms = []
    for batch in batches:
        x, target = (torch.cat(parts).double() for parts in zip(*batch, strict=True))
        first, first_bias, last, last_bias = weights
        output = (x @ first.T + first_bias).tanh() @ last.T + last_bias
        gradients = torch.autograd.grad((output - target).square().mean(), weights)
        norms.append(torch.stack([gradient.norm() for gradient in gradients]).norm().item())
        clip = min(1.0, max_norm / norms[-1])
        weights = [
            (weight - rate * clip * gradient).detach().requires_grad_()
            for weight, gradient in zip(weights, gradients, strict=True)
        ]
    return [weight.detach() for weight in weights], norms


def _expect(weights, batches, rate, max_norm=float("inf")):
    trained, _ = _trained(weights, batches, rate, max_norm)
    return dict(zip(_NAMES, trained, strict=True)) | {_APART: True}


def _expect_scaled(batches, scale, **given):
    """The step that overflows is left out, and the scale is halved after it."""
    finite = [batch for number, batch in enumerate(batches) if number != _OVERFLOWS]
    return _expect(batches=finite, **given) | {"scale at the end": scale / 2}


accumulate = Task("accumulate", _draw, _expect, _run)

accumulate_scaled = Task("accumulate_scaled", _draw_scaled, _expect_scaled, _run_scaled)
