"""Exercise ``hessian_vector``: products with a Hessian, from one graph that must live long enough.

The function of the first question has so many inputs that each product costs 3 to 6 times the
operations of a call, and the whole Hessian 16 times or more.  The second question passes a loss
with its graph, which an answer cannot recompute, in float64, because the terms of a curvature may
nearly cancel.
"""

import torch
from torch.utils.flop_counter import FlopCounterMode

from backward_twice.checks.networks import two_layers
from backward_twice.checks.task import Task


def _draw_vectors(draws):
    normal, size, units = draws.normal, draws.integer(32, 40), draws.integer(2, 4)
    return {
        "quadratic": normal(size, size) / size**0.5,
        "inner": normal(units, size) / size**0.5,
        "outer": normal(units),
        "x": normal(size),
        "vectors": [normal(size) for _ in range(draws.integer(2, 4))],
    }


_FEW = "for each vector, computed at most as much as eight calls of f"


def _function(quadratic, inner, outer):
    def f(x):  # of matrix products, as others are not counted
        row = x[None]
        return (row @ quadratic @ row.T + (row @ inner.T).tanh() @ outer[:, None]).sum()

    return f


def _run_vectors(answer, x, vectors, **weights):
    f = _function(**weights)
    with FlopCounterMode(display=False) as all_of_it:
        products = answer(f, x, vectors)
    with FlopCounterMode(display=False) as one_call:
        f(x)
    flop_limit = 8 * len(vectors) * one_call.get_total_flops()
    results = {f"product with vector {i}": product for i, product in enumerate(products, 1)}
    return results | {_FEW: all_of_it.get_total_flops() <= flop_limit}


hessian_vectors = Task("hessian_vectors", _draw_vectors, run=_run_vectors)


def _draw_curvatures(draws):
    inputs, hidden, rows = draws.integers(3, 2, 4)
    return {
        "parameters": draws.layers(inputs, hidden, 1, dtype=torch.float64),
        "start": draws.layers(inputs, hidden, 1, dtype=torch.float64),
        "x": draws.double(rows, inputs),
        "target": draws.double(rows, 1),
        "steps": draws.integer(3, 6),
    }


def _run_curvatures(answer, parameters, start, x, target, steps):
    net = two_layers(parameters)
    loss = (net(x) - target).square().mean()
    results = answer(loss, list(net.parameters()), start, steps)
    return {f"curvature in step {i}": number for i, number in enumerate(results, 1)}


curvatures = Task("curvatures", _draw_curvatures, run=_run_curvatures)
