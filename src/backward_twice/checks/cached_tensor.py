"""Exercise ``cached_tensor``: a layer whose cache must be fresh in training and kept in evaluation.

Normalising the weight also moves the estimate ``u`` by one step of power iteration.  So the values
tell how often it was done: a cache kept too long is stale, and none at all moves ``u`` too far.
"""

import torch
from torch.nn import functional as F

from backward_twice.checks.question import Task


def _number(generator, low, high):
    return int(torch.randint(low, high + 1, (), generator=generator))


def _draw(generator):
    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    inputs, outputs = _number(generator, 2, 4), _number(generator, 2, 4)
    # The estimate begins far from the truth and comes nearer slowly, so each of its steps is seen.
    rank = min(inputs, outputs)
    left_basis, right = (torch.linalg.qr(normal(size, rank)).Q for size in (outputs, inputs))
    values = (0.8 + 0.4 * torch.rand((), generator=generator)) * 0.8 ** torch.arange(rank)
    phases = []
    for i in range(_number(generator, 3, 5)):
        sizes = [_number(generator, 1, 4) for _ in range(_number(generator, 2, 3))]
        phases.append({"training": i % 2 == 1, "batches": [normal(size, inputs) for size in sizes]})
    return {
        "weight": left_basis * values @ right.T,
        "bias": normal(outputs),
        "u": F.normalize(left_basis @ (0.5 + torch.rand(rank, generator=generator)), dim=0),
        "phases": phases,
        "rate": 0.1 + 0.1 * torch.rand((), generator=generator).item(),
    }


def _loss(output):
    return (output - 1).square().mean()


def _run(answer, weight, bias, u, phases, rate):
    layer = answer(weight.clone(), bias.clone(), u.clone())
    optimizer = torch.optim.SGD(layer.parameters(), lr=rate)
    results = {}
    for i, phase in enumerate(phases, 1):
        layer.train() if phase["training"] else layer.eval()
        for j, batch in enumerate(phase["batches"], 1):
            x = batch.clone().requires_grad_(not phase["training"])
            optimizer.zero_grad()
            output = layer(x)
            _loss(output).backward()
            if phase["training"]:
                optimizer.step()
            else:
                results[f"output in evaluation, phase {i}, batch {j}"] = output
                results[f"gradient of the input, phase {i}, batch {j}"] = x.grad
    return {**results, "weight": layer.weight, "bias": layer.bias, "u": layer.u}


def _expect(weight, bias, u, phases, rate):
    """Without a module, in float64, and with a gradient by formula."""
    weight, bias, u = weight.double(), bias.double(), u.double()
    results = {}
    for i, phase in enumerate(phases, 1):
        normalised = None
        for j, batch in enumerate(phase["batches"], 1):
            if phase["training"] or normalised is None:
                v = F.normalize(weight.T @ u, dim=0)
                u = F.normalize(weight @ v, dim=0)
                sigma = u @ weight @ v
                normalised = weight / sigma
            x = batch.double()
            output = x @ normalised.T + bias
            of_output = 2 * (output - 1) / output.numel()
            if phase["training"]:
                of_normalised = of_output.T @ x
                of_sigma = -(of_normalised * normalised).sum() / sigma
                weight = weight - rate * (of_normalised / sigma + of_sigma * u.outer(v))
                bias = bias - rate * of_output.sum(0)
            else:
                results[f"output in evaluation, phase {i}, batch {j}"] = output
                results[f"gradient of the input, phase {i}, batch {j}"] = of_output @ normalised
    return {**results, "weight": weight, "bias": bias, "u": u}


spectral_linear = Task("SpectralLinear", _draw, _expect, _run)
