"""Exercise ``accumulated_gradients``: what backward adds up, and a mean over unequal pieces.

How often a program adds each loss's gradient is found by running it, on losses whose gradients are
unit vectors.  The repaired step is compared with the gradient of the whole batch, in float64 and by
the chain rule: no pieces, no ``.grad``.
"""

import torch
from torch import nn

from backward_twice.checks.comparison import Finding
from backward_twice.checks.question import Task
from backward_twice.checks.witness import most_held, rows_of_runs

# How often each program clears the gradient: first, somewhere in its middle, and last.
_CLEARINGS = (1, 0, 0), (0, 0, 0), (1, 0, 1), (0, 1, 0)

_LINES = {
    "loss1.backward(retain_graph=True)": lambda x, a, b: a.backward(retain_graph=True),
    "loss2.backward(retain_graph=True)": lambda x, a, b: b.backward(retain_graph=True),
    "(loss1 + loss2).backward(retain_graph=True)": (
        lambda x, a, b: (a + b).backward(retain_graph=True)
    ),
    "(loss1 - 3 * loss2).backward(retain_graph=True)": (
        lambda x, a, b: (a - 3 * b).backward(retain_graph=True)
    ),
    "torch.autograd.grad(loss1, x, retain_graph=True)": (
        lambda x, a, b: torch.autograd.grad(a, x, retain_graph=True)
    ),
    "x.grad = None": lambda x, a, b: setattr(x, "grad", None),
}
_CLEAR, _ASK = "x.grad = None", "torch.autograd.grad(loss1, x, retain_graph=True)"


def _draw_programs(generator):
    def shuffled(values):
        return [values[i] for i in torch.randperm(len(values), generator=generator).tolist()]

    adding = [line for line in _LINES if line not in (_CLEAR, _ASK)]
    programs = []
    for early, between_calls, late in _CLEARINGS:
        picks = torch.randint(len(adding), (5,), generator=generator).tolist()
        first, *between, last = (adding[pick] for pick in picks)
        # Something is added on both sides of each clearing; once, for certain, asked for behind it.
        middle = shuffled([*between, *[_CLEAR] * between_calls, _ASK])
        programs.append([first, *[_CLEAR] * early, *middle, *[_CLEAR] * late, last])
    return {"programs": programs}


def _run_programs(answer, programs):
    return {f"program {n}": answer(lines) for n, lines in enumerate(programs, 1)}


def _added(lines):
    x = torch.ones(2, requires_grad=True)
    losses = x**2 / 2
    for line in lines:
        _LINES[line](x, losses[0], losses[1])
    return x.grad.tolist()


def _judge_programs(observed, programs):
    findings = []
    for name, lines in ((f"program {n}", lines) for n, lines in enumerate(programs, 1)):
        value, text = observed.get(name), "exact"
        if not isinstance(value, list) or [type(n) in (int, float) for n in value] != [True, True]:
            text = "not a list of two numbers"
        elif value != _added(lines):
            text = f"not how often each was added, after {'; '.join(lines)}"
        findings.append(Finding(name, text == "exact", text))
    return findings


def _program(property_name, value, programs):
    """The program on losses whose gradients are unit vectors; prints what is right."""
    lines = programs[int(property_name.removeprefix("program ")) - 1]
    begin = ["x = torch.ones(2, requires_grad=True)", "loss1, loss2 = x**2 / 2"]
    return "\n".join([*begin, *lines, "print(x.grad.tolist())"])


times_added = Task(
    "times_added", _draw_programs, run=_run_programs, judge=_judge_programs, program=_program
)


def _draw_step(generator):
    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    sizes = (1 + torch.randperm(5, generator=generator)[:3]).tolist()
    return {
        "weights": {
            "trunk's weight": normal(4, 3),
            "trunk's bias": normal(4),
            "head's weight": normal(2, 4),
            "head's bias": normal(2),
        },
        "batches": [[normal(sum(sizes), 3), normal(sum(sizes), 2)] for _ in range(2)],
        "sizes": sizes,
        "rate": 0.1 + 0.2 * torch.rand((), generator=generator).item(),
    }


_RUNS, _PIECES, _APART = (
    "runs of the trunk, in both steps",
    "the head was given all rows, and never more than a piece has",
    "the graphs never hold the head's outputs of more than a few pieces",
)
_WIDE, _ROWS = 32, (16, 18, 14, 20, 12, 18, 16, 14, 20, 16, 12, 18)
"""Columns that the head gives, and rows of the pieces, where it is counted what the graphs hold:
its outputs are most of it, in whatever shape they are saved."""


def _run_step(answer, weights, batches, sizes, rate):
    trunk, head = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), nn.Linear(4, 2)
    tensors = [trunk[0].weight, trunk[0].bias, head.weight, head.bias]
    for tensor, value in zip(tensors, weights.values(), strict=True):
        tensor.data.copy_(value)
    optimizer = torch.optim.SGD(tensors, lr=rate)
    runs, rows = rows_of_runs(trunk[0]), rows_of_runs(head)
    for x, target in batches:
        answer(trunk, head, optimizer, x, target, sizes)
    tensors = [trunk[0].weight, trunk[0].bias, head.weight, head.bias]
    by_pieces = {
        _RUNS: len(runs),
        _PIECES: sum(rows) >= len(batches) * sum(sizes) and max(rows) <= max(sizes),
    }
    by_pieces[_APART] = _are_apart(answer)
    return dict(zip(weights, tensors, strict=True)) | by_pieces


def _are_apart(answer):
    trunk, head = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), nn.Linear(4, _WIDE)
    optimizer = torch.optim.SGD([*trunk.parameters(), *head.parameters()], lr=0.1)
    rows = sum(_ROWS)
    x, target = torch.ones(rows, 3), torch.ones(rows, _WIDE)
    peak = most_held(lambda: answer(trunk, head, optimizer, x, target, list(_ROWS)))
    of_trunk = (3 + 4 + 4) * rows  # its input and what it gives; another 4 for a copy of that
    return peak < of_trunk + target.numel() + rows * _WIDE / 2


def _expect_step(weights, batches, sizes, rate):
    of_trunk, trunk_bias, of_head, head_bias = (value.double() for value in weights.values())
    for x, target in batches:
        x, target = x.double(), target.double()
        features = (x @ of_trunk.T + trunk_bias).tanh()
        of_output = 2 * (features @ of_head.T + head_bias - target) / target.numel()
        of_features = (of_output @ of_head) * (1 - features**2)
        of_head = of_head - rate * of_output.T @ features
        head_bias = head_bias - rate * of_output.sum(0)
        of_trunk = of_trunk - rate * of_features.T @ x
        trunk_bias = trunk_bias - rate * of_features.sum(0)
    tensors = [of_trunk, trunk_bias, of_head, head_bias]
    by_pieces = {_RUNS: len(batches), _PIECES: True, _APART: True}
    return dict(zip(weights, tensors, strict=True)) | by_pieces


piecewise_step = Task("piecewise_step", _draw_step, _expect_step, _run_step)
