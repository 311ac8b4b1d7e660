"""Exercise ``cached_tensor``: a layer whose cache must be fresh in training and kept in evaluation.

Normalising the weight also moves the estimate ``u`` by one step of power iteration.  So the results
show how often it was done: a cache kept too long is stale, and without a cache ``u`` moves too far.
"""

import torch
from torch.nn import functional as F

from backward_twice.checks.task import Task


def _draw(draws):
    inputs, outputs = draws.integers(2, 2, 4)
    # The estimate begins far from the truth and comes nearer slowly, so each of its steps is seen.
    rank = min(inputs, outputs)
    left_basis, right = (torch.linalg.qr(draws.normal(size, rank)).Q for size in (outputs, inputs))
    values = draws.uniform(0.8, 1.2) * 0.8 ** torch.arange(rank)
    phases = []
    for i in range(draws.integer(3, 5)):
        sizes = draws.integers(draws.integer(2, 3), 1, 4)
        batches = [draws.normal(size, inputs) for size in sizes]
        phases.append({"training": i % 2 == 1, "batches": batches})
    return {
        "weight": left_basis * values @ right.T,
        "bias": draws.normal(outputs),
        "u": F.normalize(left_basis @ (0.5 + torch.rand(rank, generator=draws)), dim=0),
        "phases": phases,
        "rate": draws.uniform(0.1, 0.2),
    }


_CONSTANT = "in evaluation no gradient reaches the weight"


def _run(answer, weight, bias, u, phases, rate):
    layer = answer(weight.clone(), bias.clone(), u.clone())
    optimizer = torch.optim.SGD(layer.parameters(), lr=rate)
    results, trained = {}, False
    for i, phase in enumerate(phases, 1):
        layer.train() if phase["training"] else layer.eval()
        for j, batch in enumerate(phase["batches"], 1):
            x = batch.clone().requires_grad_(not phase["training"])
            optimizer.zero_grad()
            output = layer(x)
            (output - 1).square().mean().backward()
            if phase["training"]:
                optimizer.step()
            else:
                results[f"output in evaluation, phase {i}, batch {j}"] = output
                results[f"gradient of the input, phase {i}, batch {j}"] = x.grad
                trained |= layer.weight.grad is not None and bool(layer.weight.grad.any())
    results[_CONSTANT] = not trained
    return {**results, "weight": layer.weight, "bias": layer.bias, "u": layer.u}


spectral_linear = Task("SpectralLinear", _draw, run=_run)
