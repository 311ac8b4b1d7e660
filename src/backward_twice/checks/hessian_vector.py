"""Exercise ``hessian_vector``: products with a Hessian, from one graph that must live long enough.

The first question hands over a function whose Hessian has a formula, of so many numbers that its
products take 3 to 6 times the operations of a call for each vector, and the Hessian itself 16 times
or more.  The second hands over a loss with its graph, which nobody can compute anew; all is
float64, since a curvature may nearly cancel.
"""

import torch
from torch.utils.flop_counter import FlopCounterMode

from backward_twice.checks.question import Task


def _number(generator, low, high):
    return int(torch.randint(low, high + 1, (), generator=generator))


def _draw_vectors(generator):
    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    size, units = _number(generator, 32, 40), _number(generator, 2, 4)
    return {
        "quadratic": normal(size, size) / size**0.5,
        "inner": normal(units, size) / size**0.5,
        "outer": normal(units),
        "x": normal(size),
        "vectors": [normal(size) for _ in range(_number(generator, 2, 4))],
    }


_FEW = "computed no more than eight calls of f do, for each vector"


def _run_vectors(answer, quadratic, inner, outer, x, vectors):
    def f(x):  # of matrix products, as others are not counted
        row = x[None]
        return (row @ quadratic @ row.T + (row @ inner.T).tanh() @ outer[:, None]).sum()

    with FlopCounterMode(display=False) as all_of_it:
        products = answer(f, x, vectors)
    with FlopCounterMode(display=False) as one_call:
        f(x)
    flop_limit = 8 * len(vectors) * one_call.get_total_flops()
    results = {f"product with vector {i}": product for i, product in enumerate(products, 1)}
    return results | {_FEW: all_of_it.get_total_flops() <= flop_limit}


def _expect_vectors(quadratic, inner, outer, x, vectors):
    """By the formula, in float64: the second derivative of tanh is -2 tanh (1 - tanh²)."""
    inner, quadratic = inner.double(), quadratic.double()
    bent = (inner @ x.double()).tanh()
    curved = outer.double() * -2 * bent * (1 - bent**2)
    hessian = quadratic + quadratic.T + inner.T @ torch.diag(curved) @ inner
    products = {f"product with vector {i}": hessian @ v.double() for i, v in enumerate(vectors, 1)}
    return products | {_FEW: True}


hessian_vectors = Task("hessian_vectors", _draw_vectors, _expect_vectors, _run_vectors)


def _draw_curvatures(generator):
    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    inputs, hidden, rows = (_number(generator, 2, 4) for _ in range(3))
    shapes = [(hidden, inputs), (hidden,), (1, hidden), (1,)]
    return {
        "parameters": [normal(*shape) for shape in shapes],
        "start": [normal(*shape) for shape in shapes],
        "x": normal(rows, inputs),
        "target": normal(rows, 1),
        "steps": _number(generator, 3, 6),
    }


def _loss(weight1, bias1, weight2, bias2, x, target):
    output = (x @ weight1.T + bias1).tanh() @ weight2.T + bias2
    return (output - target).square().mean()


def _run_curvatures(answer, parameters, start, x, target, steps):
    parameters = [parameter.requires_grad_() for parameter in parameters]
    results = answer(_loss(*parameters, x, target), parameters, start, steps)
    return {f"curvature in step {i}": number for i, number in enumerate(results, 1)}


def _expect_curvatures(parameters, start, x, target, steps):
    """With the whole Hessian as a matrix."""

    def loss(flat):
        parts = flat.split([parameter.numel() for parameter in parameters])
        shaped = [
            part.view(parameter.shape) for part, parameter in zip(parts, parameters, strict=True)
        ]
        return _loss(*shaped, x, target)

    def flat(tensors):
        return torch.cat([tensor.flatten() for tensor in tensors])

    hessian = torch.autograd.functional.hessian(loss, flat(parameters))
    v, results = flat(start), {}
    for i in range(1, steps + 1):
        v = v / v.norm()
        results[f"curvature in step {i}"] = (v @ hessian @ v).item()
        v = hessian @ v
    return results


curvatures = Task("curvatures", _draw_curvatures, _expect_curvatures, _run_curvatures)
