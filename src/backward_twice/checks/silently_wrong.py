"""Exercise ``silently_wrong``: gradients that autograd gets wrong without an error."""

import torch

from backward_twice.checks.question import Task

_FUNCTIONS = ("tanh", "sigmoid", "exp", "sin", "square")
_RIGHT = ("plain", "add to what was not saved", "unused", "clone, then double")
_DOUBTFUL = ("scale the result", "add to what was saved", "scale under no_grad", "detach")


def _below(generator, low, high):
    return torch.randint(low, high, (1,), generator=generator).item()


def _draw_detector(generator):
    """Functions of three tensors, each tensor with a habit of its own.

    Every habit occurs, and each function has an input that backward reaches.  Of the doubtful
    habits at least two do harm and two do none, with the numbers that are drawn for them: the truth
    is in the numbers and not in a habit's name, which an answer could look up.
    """

    def shuffled(items):
        return [items[i] for i in torch.randperm(len(items), generator=generator).tolist()]

    harms = shuffled([True, True, False, False])
    habits = [*((habit, False) for habit in _RIGHT), *zip(_DOUBTFUL, harms, strict=True)]
    repeats = [habits[_below(generator, 0, len(habits))][0] for _ in range(4)]
    habits = iter(shuffled(habits + [(habit, bool(_below(generator, 0, 2))) for habit in repeats]))
    values = [
        (torch.rand(_below(generator, 2, 5), generator=generator) + 0.2).double() for _ in range(3)
    ]
    functions = []
    for _ in range(6):
        three = shuffled([(_RIGHT[_below(generator, 0, 2)], False), next(habits), next(habits)])
        functions.append(
            {
                "habits": [habit for habit, _ in three],
                "names": [_FUNCTIONS[_below(generator, 0, 5)] for _ in range(3)],
                "sizes": [
                    _draw_size(generator, *habit, x) for habit, x in zip(three, values, strict=True)
                ],
            }
        )
    return {"functions": functions, "values": values}


def _draw_size(generator, habit, harms, x):
    """What a habit does its change by; whether a doubtful one does harm at ``x`` depends on it."""
    size = 1.5 + torch.rand(1, generator=generator).item() if harms else 1.0
    if habit == "scale the result":  # 1 - (s y)^2 = s (1 - y^2) for s = -1 / y^2
        return -size / x.tanh() ** 2
    if habit == "add to what was saved":  # 1 - (y + s)^2 = 1 - y^2 for s = -2 y
        return -2 * size * x.tanh()
    return size * x  # where a parabola is flat


def _part(x, habit, name, size):
    """What one input gives."""
    if habit == "unused":
        return torch.ones((), dtype=x.dtype)
    if habit == "plain":
        return (size * getattr(x, name)()).mean()
    if habit == "detach":
        return (x.detach() - size).square().mean() + x.mean()
    if habit == "scale under no_grad":
        y = (x - size).square() + 1
        with torch.no_grad():
            y.mul_(2)
        return y.mean()
    if habit == "clone, then double":
        y = getattr(x, name)().clone()
        y *= 2
        return y.mean()
    y = x.sin() if habit == "add to what was not saved" else x.tanh()
    if habit == "scale the result":
        y.data.mul_(size)
    else:
        y.data.add_(size)
    return y.mean()


def _honest_part(x, habit, name, size):
    """The same values by plain operations.  Nothing that is asked refers to this."""
    if habit == "detach":
        return (x - size).square().mean() + x.mean()
    if habit == "scale under no_grad":
        return (2 * ((x - size).square() + 1)).mean()
    if habit == "scale the result":
        return (x.tanh() * size).mean()
    if habit == "add to what was saved":
        return (x.tanh() + size).mean()
    if habit == "add to what was not saved":
        return (x.sin() + size).mean()
    return _part(x, habit, name, size)


def _function(part, habits, names, sizes):
    def function(*inputs):
        result = torch.ones((), dtype=inputs[0].dtype)
        for parts in zip(inputs, habits, names, sizes, strict=True):
            result = result * part(*parts)
        return result

    return function


_BACKWARD = "of every function a backward was run, with each input requiring grad"
_MOVED = "every function was called with each input a little moved, and no other"
_LITTLE = 0.1


def _run_detector(answer, functions, values):
    """What an answer says of each function, and whether it asked them for it.

    From the numbers that a function holds formulas could tell, too, and measure nothing.  They lie
    in the same process; that to read them is no shorter way than to ask is all that can be had.
    """
    results, records = {}, []
    for number, description in enumerate(functions, 1):
        inputs = [value.clone() for value in values]
        records.append(_CallRecord(_function(_part, **description), values))
        wrong = answer(records[-1].function, inputs)
        results[f"function {number}"] = [bool(truth) for truth in wrong]
    results[_BACKWARD] = all(all(record.backward) for record in records)
    results[_MOVED] = all(moved.all().item() for record in records for moved in record.moved)
    return results


class _CallRecord:
    """A function of several inputs, and what was asked of it: which of their numbers were moved."""

    def __init__(self, function, values):
        self.backward = [False] * len(values)
        self.moved = [torch.zeros_like(value, dtype=torch.bool) for value in values]

        def recorded(*inputs):
            moves = [x.detach().double() - value for x, value in zip(inputs, values, strict=True)]
            places = [i for i, move in enumerate(moves) if move.any()]
            if len(places) == 1 and (move := moves[places[0]]).abs().max() < _LITTLE:
                self.moved[places[0]] |= move != 0
            result = function(*inputs)
            through = [x.requires_grad for x in inputs]
            if result.requires_grad:
                result.register_hook(lambda _: self._went_backward(through))
            else:  # there is no graph to go through, and so nothing left to ask
                self._went_backward(through)
            return result

        self.function = recorded

    def _went_backward(self, through):
        self.backward = [a or b for a, b in zip(self.backward, through, strict=True)]


def _gradients(function, values):
    inputs = [value.clone().requires_grad_() for value in values]
    gradients = torch.autograd.grad(function(*inputs), inputs, allow_unused=True)
    return [
        torch.zeros_like(value) if gradient is None else gradient
        for value, gradient in zip(values, gradients, strict=True)
    ]


def _expect_detector(functions, values):
    """By autograd through the same values, made without the hidden changes."""
    expected = {}
    for number, description in enumerate(functions, 1):
        gradients = _gradients(_function(_part, **description), values)
        right = _gradients(_function(_honest_part, **description), values)
        expected[f"function {number}"] = [
            not torch.allclose(a, b, rtol=1e-6) for a, b in zip(gradients, right, strict=True)
        ]
    return expected | {_BACKWARD: True, _MOVED: True}


wrong_gradients = Task("wrong_gradients", _draw_detector, _expect_detector, _run_detector)


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


mixed_loss = Task("mixed_loss", _draw_loss, _expect_loss, _run_loss)
