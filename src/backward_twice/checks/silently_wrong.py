"""Exercise ``silently_wrong``: gradients that autograd gets wrong without an error."""

import torch

from backward_twice.checks.question import Question

_FUNCTIONS = ("tanh", "sigmoid", "exp", "sin", "square")
_RIGHT = ("plain", "add to what was not saved", "unused", "clone, then double")
_WRONG = ("scale the result", "add to what was saved", "scale under no_grad", "detach")


def _below(generator, low, high):
    return torch.randint(low, high, (1,), generator=generator).item()


def _draw_detector(generator):
    """Functions of three tensors, each tensor with a habit of its own.

    Every habit occurs, and each function has an input that backward reaches.
    """
    habits = list(_RIGHT + _WRONG)
    habits += [habits[_below(generator, 0, len(habits))] for _ in range(4)]
    habits = iter([habits[i] for i in torch.randperm(12, generator=generator).tolist()])
    functions = []
    for _ in range(6):
        three = [_RIGHT[_below(generator, 0, 2)], next(habits), next(habits)]
        functions.append(
            {
                "habits": [three[i] for i in torch.randperm(3, generator=generator).tolist()],
                "names": [_FUNCTIONS[_below(generator, 0, 5)] for _ in range(3)],
                "sizes": [1.5 + torch.rand(1, generator=generator).item() for _ in range(3)],
            }
        )
    values = [
        (torch.rand(_below(generator, 2, 5), generator=generator) + 0.2).double() for _ in range(3)
    ]
    return {"functions": functions, "values": values}


def _part(x, habit, name, size, honest):
    """What one input gives; ``honest`` does with plain operations what the habit hides."""
    if habit == "unused":
        return torch.ones((), dtype=x.dtype)
    if habit == "plain":
        return (size * getattr(x, name)()).mean()
    if habit == "detach":
        return getattr(x if honest else x.detach(), name)().mean() + x.mean()
    if habit == "scale under no_grad":
        y = x + size
        if honest:
            return (y * size).mean()
        with torch.no_grad():
            y.mul_(size)
        return y.mean()
    if habit == "clone, then double":
        y = getattr(x, name)().clone()
        y *= 2
        return y.mean()
    y = x.sin() if habit == "add to what was not saved" else x.tanh()
    scaled = habit == "scale the result"
    if honest:
        return (y * size if scaled else y + size).mean()
    if scaled:
        y.data.mul_(size)
    else:
        y.data.add_(size)
    return y.mean()


def _function(habits, names, sizes, honest):
    def function(*inputs):
        result = torch.ones((), dtype=inputs[0].dtype)
        for parts in zip(inputs, habits, names, sizes, strict=True):
            result = result * _part(*parts, honest)
        return result

    return function


def _run_detector(answer, functions, values):
    found = {}
    for number, described in enumerate(functions, 1):
        inputs = [value.clone() for value in values]
        wrong = answer(_function(**described, honest=False), inputs)
        found[f"function {number}"] = [bool(truth) for truth in wrong]
    return found


def _gradients(function, values):
    inputs = [value.clone().requires_grad_() for value in values]
    gradients = torch.autograd.grad(function(*inputs), inputs, allow_unused=True)
    return [
        torch.zeros_like(value) if gradient is None else gradient
        for value, gradient in zip(values, gradients, strict=True)
    ]


def _expect_detector(functions, values):
    """By autograd through the same values, made without the hidden changes."""
    found = {}
    for number, described in enumerate(functions, 1):
        given = _gradients(_function(**described, honest=False), values)
        right = _gradients(_function(**described, honest=True), values)
        found[f"function {number}"] = [
            not torch.allclose(a, b, rtol=1e-6) for a, b in zip(given, right, strict=True)
        ]
    return found


wrong_gradients = Question("wrong_gradients", _draw_detector, _expect_detector, _run_detector)


def _draw_loss(generator):
    rows, inputs, classes = (_below(generator, 3, 7) for _ in range(3))

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    return {
        "x": normal(rows, inputs),
        "weight": normal(inputs, classes),
        "bias": normal(classes),
        "target": [_below(generator, 0, classes) for _ in range(rows)],
        "share": 0.1 + 0.3 * torch.rand(1, generator=generator).item(),
    }


def _run_loss(answer, x, weight, bias, target, share):
    leaves = {"x": x, "weight": weight, "bias": bias}
    for leaf in leaves.values():
        leaf.requires_grad_()
    loss = answer(x @ weight + bias, torch.tensor(target), share)
    loss.backward()
    return {"loss": loss, **{f"gradient of {name}": leaves[name].grad for name in leaves}}


def _expect_loss(x, weight, bias, target, share):
    """By the formulas of the chain rule, without autograd, in double precision."""
    x, weight, bias = x.double(), weight.double(), bias.double()
    rows, classes = x.shape[0], weight.shape[1]
    p = (x @ weight + bias).softmax(-1)
    hit = torch.nn.functional.one_hot(torch.tensor(target), classes).double()
    mixed = ((1 - share) * p + share / classes)[hit.bool()]
    of_p = -hit * (1 - share) / mixed[:, None] / rows
    of_logits = p * (of_p - (of_p * p).sum(-1, keepdim=True))
    return {
        "loss": -mixed.log().mean(),
        "gradient of x": of_logits @ weight.T,
        "gradient of weight": x.T @ of_logits,
        "gradient of bias": of_logits.sum(0),
    }


mixed_loss = Question("mixed_loss", _draw_loss, _expect_loss, _run_loss)
