"""Exercise ``uneven_pieces``: one step for a batch that comes in pieces of unequal size.

The loader writes each piece into the memory of the one before, as loaders do that save copies: who
keeps the graphs of all pieces for one backward at the end is told so, and what the graphs hold is
looked at for those who copy.  Several updates are played, the first with gradients left over.  The
truth is the gradient of the whole batch, in double precision.  Under a scaler one of the updates
overflows: without a scaler the other weights would come out the same, so only there it is seen who
uses it.
"""

import torch
from torch import nn

from backward_twice.checks.question import Question
from backward_twice.checks.witness import most_rows_held

_UPDATES = 2
_OVERFLOWS = 1
"""The number of the update whose scaled gradients float32 does not hold; from 0."""
_LARGE = 1e38
_APART = "never do the graphs hold all pieces at once"


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
    norm = 0.1 + 0.2 * torch.rand((), generator=generator).item()
    drawn = _draw(generator, _UPDATES + 1)
    target = drawn["batches"][_OVERFLOWS][0][1]
    target[0] = _LARGE
    return drawn | {"scale": scale, "max_norm": norm}


def _pieces(batch):
    """The pieces of a batch, each in the memory of the one before."""
    most = max(len(x) for x, _ in batch)
    memory = [torch.empty(most, tensor.shape[1]) for tensor in batch[0]]
    for piece in batch:
        for place, tensor in zip(memory, piece, strict=True):
            place[: len(tensor)].copy_(tensor)
        yield tuple(place[: len(tensor)] for place, tensor in zip(memory, piece, strict=True))


def _train(weights, batches, rate, update):
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
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


def _are_apart(batches, train):
    """Whether ``train``, which takes a list of batches, never holds all pieces of one at once."""
    return all(
        most_rows_held(batch[0][0].shape[1], lambda batch=batch: train([batch])) < _count(batch)
        for batch in batches
    )


def _run(answer, weights, batches, rate):
    def train(batches):
        return _train(weights, batches, rate, answer)

    return train(batches) | {_APART: _are_apart(batches, train)}


def _run_scaled(answer, weights, batches, rate, scale, max_norm):
    def train(batches):
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)

        def update(net, optimizer, pieces, count):
            answer(net, optimizer, scaler, pieces, count, max_norm)

        return _train(weights, batches, rate, update) | {"scale at the end": scaler.get_scale()}

    return train(batches) | {_APART: _are_apart(batches, train)}


def _expect(weights, batches, rate, max_norm=float("inf")):
    weights = [weight.double().requires_grad_() for weight in weights]
    for batch in batches:
        x, target = (torch.cat(parts).double() for parts in zip(*batch, strict=True))
        first, first_bias, last, last_bias = weights
        output = (x @ first.T + first_bias).tanh() @ last.T + last_bias
        gradients = torch.autograd.grad((output - target).square().mean(), weights)
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm().item()
        clip = min(1.0, max_norm / norm)
        weights = [
            (weight - rate * clip * gradient).detach().requires_grad_()
            for weight, gradient in zip(weights, gradients, strict=True)
        ]
    names = ["0.weight", "0.bias", "2.weight", "2.bias"]
    return {**dict(zip(names, (w.detach() for w in weights), strict=True)), _APART: True}


def _expect_scaled(batches, scale, **given):
    """The step that overflows is left out, and the scale is halved after it."""
    finite = [batch for number, batch in enumerate(batches) if number != _OVERFLOWS]
    return _expect(batches=finite, **given) | {"scale at the end": scale / 2}


accumulate = Question("accumulate", _draw, _expect, _run)

accumulate_scaled = Question("accumulate_scaled", _draw_scaled, _expect_scaled, _run_scaled)
