"""Exercise ``custom_function``: a Function with its own ``backward``, differentiated again.

Value, gradient and gradient of the gradient are compared.  The Function is applied twice in one
graph, so the two calls must not share what they save.  The gradient that arrives depends on the
inputs, so a missing term is silent and does not raise.  In the graph it must be one node of a
Function, neither several operations that autograd records nor an operation of PyTorch that has one
node.
"""

from functools import partial

import torch
from torch.autograd.function import BackwardCFunction
from torch.utils.flop_counter import FlopCounterMode

from backward_twice.checks.task import Task


def _derivatives(function, inputs, outer, vectors):
    """Return the value ``v``, and gradients and Hessian-vector products of ``outer * v**2``."""
    leaves = {name: value.requires_grad_() for name, value in inputs.items()}
    value = function(*leaves.values())
    first = torch.autograd.grad((outer * value**2).sum(), leaves.values(), create_graph=True)
    along = sum((v * gradient).sum() for v, gradient in zip(vectors, first, strict=True))
    second = torch.autograd.grad(along, leaves.values())
    derivatives = {"value": value}
    for name, gradient in zip(leaves, first, strict=True):
        derivatives[f"first derivative for {name}"] = gradient
    for name, gradient in zip(leaves, second, strict=True):
        derivatives[f"second derivatives, for {name}"] = gradient
    return derivatives


def _is_one_node(function, inputs):
    """Whether a single node of a custom Function connects the result to all of the inputs."""
    leaves = [value.detach().clone().requires_grad_() for value in inputs.values()]
    value = function(*leaves)  # without it, PyTorch 2.4 does not tell of its node
    if not isinstance(value.grad_fn, BackwardCFunction):
        return False  # an operation of PyTorch's own
    variables = [getattr(node, "variable", None) for node, _ in value.grad_fn.next_functions]
    return all(any(leaf is variable for variable in variables) for leaf in leaves)


_ONE_NODE = "apply is one node of the graph, with its own backward method"


def _run_twice(answer, inputs, outer, vectors, twice):
    derivatives = _derivatives(partial(twice, answer.apply), inputs, outer, vectors)
    return derivatives | {_ONE_NODE: _is_one_node(answer.apply, inputs)}


def _draw(draws, *shapes):
    """Draw a list of inputs, factors of the result, whose shape is the first, and directions."""
    inputs = [draws.double(*shape) for shape in shapes]
    outer = draws.double(*shapes[0])
    return inputs, {"outer": outer, "vectors": [draws.double(*shape) for shape in shapes]}


def _draw_squash(draws):
    (x, slope), factors = _draw(draws, draws.integers(draws.integer(1, 2), 2, 4), ())
    return {"inputs": {"x": x, "slope": 0.5 + slope.abs()}, **factors}


squash = Task("Squash", _draw_squash, run=partial(_run_twice, twice=lambda f, x, s: f(f(x, s), s)))


def _draw_root(draws):
    (x, a), factors = _draw(draws, *[[draws.integer(2, 5)]] * 2)
    return {"inputs": {"x": 2 * x, "a": 0.2 + a.abs()}, **factors}


root = Task("Root", _draw_root, run=partial(_run_twice, twice=lambda f, x, a: f(1 + f(x, a), a)))


_IN_PLACE = "the result is the tensor that was passed in, changed in place"
_NEEDED = "backward computes no product for an input that requires no gradient"


def _draw_add_product(draws):
    rows, inner, outputs = draws.integers(3, 2, 5)
    shapes = {"total": (rows, outputs), "x": (rows, inner), "weight": (outputs, inner)}
    inputs, factors = _draw(draws, *shapes.values())
    return {"inputs": dict(zip(shapes, inputs, strict=True)), **factors}


def _run_add_product(answer, inputs, outer, vectors):
    def add_twice(total, x, weight):
        total = total.sin()
        result = answer.apply(answer.apply(total, x, weight), x.cos(), weight)
        return result + total.cos()  # the total itself is a result of the function, too

    derivatives = _derivatives(add_twice, inputs, outer, vectors)
    copies = [value.detach().clone() for value in inputs.values()]
    return derivatives | {
        _IN_PLACE: answer.apply(*copies) is copies[0],
        _NEEDED: [_products(answer, inputs, name) for name in inputs],
    }


def _products(answer, inputs, trained):
    """Return how many matrix products backward computes if only ``trained`` requires grad."""
    leaves = {name: value.detach().clone() for name, value in inputs.items()}
    leaves[trained].requires_grad_()
    total, x, weight = leaves.values()
    value = answer.apply(total + 0, x, weight).sum()
    with FlopCounterMode(display=False) as counter:
        value.backward()
    return round(counter.get_total_flops() / (2 * x.numel() * len(weight)))


add_product = Task("AddProduct", _draw_add_product, run=_run_add_product)
