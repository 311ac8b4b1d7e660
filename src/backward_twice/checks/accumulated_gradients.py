"""Exercise ``accumulated_gradients``: which gradients add up, and a mean over unequal pieces.

The losses of a program have unit vectors as gradients, so the result counts how often each was
added.
"""

import torch
from torch import nn

from backward_twice.checks.cases import task_of_cases
from backward_twice.checks.networks import two_layers
from backward_twice.checks.task import Task
from backward_twice.checks.witness import most_held, rows_of_runs

# How often each program clears the gradient: first, somewhere in its middle, and last.
_CLEARINGS = (1, 0, 0), (0, 0, 0), (1, 0, 1), (0, 1, 0)

_ADDING = (
    "loss1.backward(retain_graph=True)",
    "loss2.backward(retain_graph=True)",
    "(loss1 + loss2).backward(retain_graph=True)",
    "(loss1 - 3 * loss2).backward(retain_graph=True)",
)
_CLEAR, _ASK = "x.grad = None", "torch.autograd.grad(loss1, x, retain_graph=True)"


def _draw_programs(draws):
    programs = []
    for early, between_calls, late in _CLEARINGS:
        first, *between, last = (draws.one_of(_ADDING) for _ in range(5))
        # Gradients are added before and after each clearing; one call only returns a gradient.
        middle = draws.shuffled([*between, *[_CLEAR] * between_calls, _ASK])
        programs.append([first, *[_CLEAR] * early, *middle, *[_CLEAR] * late, last])
    return programs


def _program(lines):
    """Return a program that defines two losses with unit gradients, and then runs these lines."""
    return "\n".join(["x = torch.ones(2, requires_grad=True)", "loss1, loss2 = x**2 / 2", *lines])


def _shown(value, lines):
    return f"{_program(lines)}\nprint(x.grad.tolist())"


times_added = task_of_cases("times_added", "program", _draw_programs, program=_shown)

_PARAMETERS = ("trunk's weight", "trunk's bias", "head's weight", "head's bias")


def _draw_step(draws):
    sizes = draws.shuffled(range(1, 6))[:3]
    rows = sum(sizes)
    return {
        "weights": draws.layers(3, 4, 2),
        "batches": draws.batches([rows] * 2, 3, 2),
        "sizes": sizes,
        "rate": draws.uniform(0.1, 0.3),
    }


_RUNS, _PIECES, _APART = (
    "runs of the trunk, in both steps",
    "the head received all rows, and never more than one piece at once",
    "the graphs never hold the head's outputs of more than a few pieces",
)
_WIDE, _ROWS = 32, (16, 18, 14, 20, 12, 18, 16, 14, 20, 16, 12, 18)
"""Columns of the head and rows of the pieces in the run that counts the numbers that graphs save:
most of them are the head's outputs."""


def _run_step(answer, weights, batches, sizes, rate):
    net = two_layers(weights)
    trunk, head = net[:2], net[2]
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    runs, rows = rows_of_runs(trunk[0]), rows_of_runs(head)
    for x, target in batches:
        answer(trunk, head, optimizer, x, target, sizes)
    by_pieces = {
        _RUNS: len(runs),
        _PIECES: sum(rows) >= len(batches) * sum(sizes) and max(rows) <= max(sizes),
        _APART: _are_apart(answer),
    }
    return dict(zip(_PARAMETERS, net.parameters(), strict=True)) | by_pieces


def _are_apart(answer):
    trunk, head = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), nn.Linear(4, _WIDE)
    optimizer = torch.optim.SGD([*trunk.parameters(), *head.parameters()], lr=0.1)
    rows = sum(_ROWS)
    x, target = torch.ones(rows, 3), torch.ones(rows, _WIDE)
    peak = most_held(lambda: answer(trunk, head, optimizer, x, target, list(_ROWS)))
    of_trunk = (3 + 4 + 4) * rows  # its input and its output; another 4 for a copy of the output
    return peak < of_trunk + target.numel() + rows * _WIDE / 2


piecewise_step = Task("piecewise_step", _draw_step, run=_run_step)
