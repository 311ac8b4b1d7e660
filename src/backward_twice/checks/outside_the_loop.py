"""Exercise ``outside_the_loop``: which loop must contain a value computed from a parameter.

With one loop, a weight computed too early raises, and one returned too early is a step old.  With
two loops, the sample comes from a generator, so drawing it too often leads to other weights.  The
amount of data that the graphs of wide chunks save shows whether each chunk has a backward call.
"""

import torch

from backward_twice.checks.task import Task
from backward_twice.checks.witness import most_held


def _draw_unit_rows(draws):
    inputs, outputs = draws.integer(2, 4), draws.integer(2, 3)
    return {
        "direction": draws.normal(outputs, inputs) + 0.5,
        "scale": draws.uniform(0.5, 1.5),
        "batches": draws.batches(draws.integers(draws.integer(3, 6), 2, 5), inputs, outputs),
        "rate": draws.uniform(0.1, 0.2),
    }


def _run_unit_rows(answer, direction, scale, batches, rate):
    direction.requires_grad_()
    scale = torch.tensor(scale, requires_grad=True)
    optimizer = torch.optim.SGD([direction, scale], lr=rate)
    weight = answer(direction, scale, optimizer, [tuple(batch) for batch in batches])
    return {"direction": direction, "scale": scale, "returned weight": weight}


train_unit_rows = Task("train_unit_rows", _draw_unit_rows, run=_run_unit_rows)


def _draw_sampled(draws):
    inputs = draws.integer(2, 4)
    return {
        "mean": draws.normal(inputs, 1),
        # Near zero, where the spread bends: a sample that is a step old trains it otherwise.
        "rho": draws.normal(inputs, 1) / 2,
        "chunks": draws.batches(draws.integers(draws.integer(3, 5), 2, 5), inputs, 1),
        "updates": draws.integer(3, 5),
        "seed": draws.integer(0, 10**6),
        "rate": draws.uniform(0.05, 0.1),
    }


_APART = "the graphs never hold more than two chunks at once"
_WIDE, _LONG, _MANY = 16, 32, 5
"""Columns and rows of a chunk, and the number of chunks, in the run that counts the numbers that
graphs save: most of them are the data."""


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


train_sampled = Task("train_sampled", _draw_sampled, run=_run_sampled)
