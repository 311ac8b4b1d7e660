"""Exercise ``outside_the_loop``: what is computed from a parameter belongs in a loop, and in which.

With one loop a weight made too early raises, and one returned too early is a step old.  With two
loops the sample is drawn from a generator, so one drawn too often trains to other values.  What the
graphs hold of wide chunks tells whether each goes backward by itself.
"""

import torch
from torch.nn import functional as F

from backward_twice.checks.question import Task
from backward_twice.checks.witness import most_held


def _number(generator, low, high):
    return int(torch.randint(low, high + 1, (), generator=generator))


def _pairs(generator, count, inputs, outputs):
    """Batches of drawn length: inputs and targets."""
    sizes = [_number(generator, 2, 5) for _ in range(count)]
    return [
        [torch.randn(size, width, generator=generator) for width in (inputs, outputs)]
        for size in sizes
    ]


def _draw_unit_rows(generator):
    inputs, outputs = _number(generator, 2, 4), _number(generator, 2, 3)
    return {
        "direction": torch.randn(outputs, inputs, generator=generator) + 0.5,
        "scale": 0.5 + torch.rand((), generator=generator).item(),
        "batches": _pairs(generator, _number(generator, 3, 6), inputs, outputs),
        "rate": 0.1 + 0.1 * torch.rand((), generator=generator).item(),
    }


def _run_unit_rows(answer, direction, scale, batches, rate):
    direction.requires_grad_()
    scale = torch.tensor(scale, requires_grad=True)
    optimizer = torch.optim.SGD([direction, scale], lr=rate)
    weight = answer(direction, scale, optimizer, [tuple(batch) for batch in batches])
    return {"direction": direction, "scale": scale, "returned weight": weight}


def _expect_unit_rows(direction, scale, batches, rate):
    """By the formulas, in float64: a row's gradient is what is at right angles to the row."""
    direction = direction.double()
    for x, target in batches:
        length = direction.norm(dim=1, keepdim=True)
        weight = direction / length
        product = x.double() @ weight.T
        of_output = 2 * (scale * product - target) / target.numel()
        of_weight = scale * of_output.T @ x.double()
        along = (of_weight * weight).sum(dim=1, keepdim=True) * weight
        direction = direction - rate * (of_weight - along) / length
        scale -= rate * (of_output * product).sum().item()
    weight = direction / direction.norm(dim=1, keepdim=True)
    return {"direction": direction, "scale": scale, "returned weight": weight}


train_unit_rows = Task("train_unit_rows", _draw_unit_rows, _expect_unit_rows, _run_unit_rows)


def _draw_sampled(generator):
    inputs = _number(generator, 2, 4)
    return {
        "mean": torch.randn(inputs, 1, generator=generator),
        # Near zero, where the spread bends: a sample that is a step old trains it otherwise.
        "rho": torch.randn(inputs, 1, generator=generator) / 2,
        "chunks": _pairs(generator, _number(generator, 3, 5), inputs, 1),
        "updates": _number(generator, 3, 5),
        "seed": _number(generator, 0, 10**6),
        "rate": 0.05 + 0.05 * torch.rand((), generator=generator).item(),
    }


_APART = "the graphs never hold more than two chunks at once"
_WIDE, _LONG, _MANY = 16, 32, 5
"""Columns and rows of a chunk, and chunks, where it is counted what the graphs hold: the data is
most of it, in whatever shape it is saved."""


def _run_sampled(answer, mean, rho, chunks, seed, **given):
    trained = _trained(answer, mean, rho, chunks, seed=seed, **given)
    generator = torch.Generator().manual_seed(seed)
    mean, rho = (torch.randn(_WIDE, 1, generator=generator) for _ in range(2))
    chunks = [
        [torch.randn(_LONG, width, generator=generator) for width in (_WIDE, 1)]
        for _ in range(_MANY)
    ]
    peak = most_held(lambda: _trained(answer, mean, rho, chunks, seed=seed, **given))
    return trained | {_APART: peak < 3 * _LONG * _WIDE}


def _trained(answer, mean, rho, chunks, updates, seed, rate):
    parameters = {"mean": mean.requires_grad_(), "rho": rho.requires_grad_()}
    optimizer = torch.optim.SGD(parameters.values(), lr=rate)
    generator = torch.Generator().manual_seed(seed)
    answer(mean, rho, optimizer, [tuple(chunk) for chunk in chunks], updates, generator)
    return parameters


def _expect_sampled(mean, rho, chunks, updates, seed, rate):
    """By the formulas, in float64."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.cat([x.double() for x, _ in chunks])
    target = torch.cat([target.double() for _, target in chunks])
    rows = torch.cat([torch.full_like(target, len(target)) for _, target in chunks]).double()
    mean, rho = mean.double(), rho.double()
    for _ in range(updates):
        noise = torch.randn(mean.shape, generator=generator).double()
        of_output = 2 * (x @ (mean + F.softplus(rho) * noise) - target) / rows
        of_weight = x.T @ of_output
        mean = mean - rate * of_weight
        rho = rho - rate * of_weight * noise * rho.sigmoid()
    return {"mean": mean, "rho": rho, _APART: True}


train_sampled = Task("train_sampled", _draw_sampled, _expect_sampled, _run_sampled)
