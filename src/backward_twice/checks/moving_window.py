"""Exercise ``moving_window``: a buffer that is written into again, and whose old rows count.

The older rows are numbers in the loss and train nothing; the new row does.  The truth goes without
a buffer: the rows are a list, and the gradient is that of the newest alone, in double precision.
"""

import torch
from torch import nn

from backward_twice.checks.question import Task


def _draw(generator):
    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    width = int(torch.randint(2, 5, (), generator=generator))
    steps = 2 * width + int(torch.randint(1, 3, (), generator=generator))
    return {
        "weights": [normal(4, 3), normal(4), normal(2, 4), normal(2)],
        "inputs": [normal(3) for _ in range(steps)],
        "width": width,
        "rate": 0.1 + 0.1 * torch.rand((), generator=generator).item(),
    }


def _run(answer, weights, inputs, width, rate):
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    with torch.no_grad():
        for parameter, weight in zip(net.parameters(), weights, strict=True):
            parameter.copy_(weight)
            parameter.grad = weight.cos()  # of something else
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    window = answer(net, optimizer, list(inputs), width)
    return {**dict(net.named_parameters()), "window": window}


def _expect(weights, inputs, width, rate):
    weights = [weight.double().requires_grad_() for weight in weights]
    rows = [torch.zeros(2).double() for _ in range(width)]
    for n, x in enumerate(inputs):
        first, first_bias, last, last_bias = weights
        row = (x.double() @ first.T + first_bias).tanh() @ last.T + last_bias
        rows[n % width] = row
        loss = (torch.stack(rows).sum(0) - 1).square().mean()
        rows[n % width] = row.detach()
        gradients = torch.autograd.grad(loss, weights)
        weights = [
            (weight - rate * gradient).detach().requires_grad_()
            for weight, gradient in zip(weights, gradients, strict=True)
        ]
    names = ["0.weight", "0.bias", "2.weight", "2.bias"]
    trained = dict(zip(names, (weight.detach() for weight in weights), strict=True))
    return {**trained, "window": torch.stack(rows)}


train = Task("train", _draw, _expect, _run)
