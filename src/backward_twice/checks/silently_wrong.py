"""Exercise ``silently_wrong``: gradients that autograd gets wrong without an error."""

import torch

from backward_twice.checks.task import Task

_FUNCTIONS = ("tanh", "sigmoid", "exp", "sin", "square")
_RIGHT = ("plain", "add to what was not saved", "unused", "clone, then double")
_DOUBTFUL = ("scale the result", "add to what was saved", "scale under no_grad", "detach")


def _draw_detector(draws):
    """Draw functions of three tensors, and for each tensor a habit: how the function uses it.

    Every right and every doubtful habit occurs, and each function has an input that backward
    reaches.  With the drawn numbers, at least two of the doubtful habits do harm and two do none,
    so that the name of a habit, which an answer could look up, does not decide.
    """
    harms = draws.shuffled([True, True, False, False])
    habits = [*((habit, False) for habit in _RIGHT), *zip(_DOUBTFUL, harms, strict=True)]
    repeats = [draws.one_of(habits)[0] for _ in range(4)]
    repeats = [(habit, draws.one_of([False, True])) for habit in repeats]
    habits = iter(draws.shuffled(habits + repeats))
    values = [(torch.rand(draws.integer(2, 4), generator=draws) + 0.2).double() for _ in range(3)]
    functions = []
    for _ in range(6):
        three = draws.shuffled([(draws.one_of(_RIGHT[:2]), False), next(habits), next(habits)])
        functions.append(
            {
                "habits": [habit for habit, _ in three],
                "names": [draws.one_of(_FUNCTIONS) for _ in range(3)],
                "sizes": [
                    _draw_size(draws, *habit, x) for habit, x in zip(three, values, strict=True)
                ],
            }
        )
    return {"functions": functions, "values": values}


def _draw_size(draws, habit, harms, x):
    """Draw the size of a change that makes the gradient at ``x`` wrong only if ``harms``."""
    size = draws.uniform(1.5, 2.5) if harms else 1.0
    if habit == "scale the result":  # 1 - (s y)^2 = s (1 - y^2) for s = -1 / y^2
        return -size / x.tanh() ** 2
    if habit == "add to what was saved":  # 1 - (y + s)^2 = 1 - y^2 for s = -2 y
        return -2 * size * x.tanh()
    return size * x  # where a parabola is flat


def _part(x, habit, name, size):
    """Return the factor that one input contributes to a function's result."""
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


def _function(habits, names, sizes):
    def function(*inputs):
        result = torch.ones((), dtype=inputs[0].dtype)
        for parts in zip(inputs, habits, names, sizes, strict=True):
            result = result * _part(*parts)
        return result

    return function


_BACKWARD = "a backward pass ran through every function, with each input requiring grad"
_MOVED = "every function was called with each input changed slightly, and the others unchanged"
_LITTLE = 0.1


def _run_detector(answer, functions, values):
    """Return the answer's verdicts, and whether it differentiated and varied each input.

    An answer could also read the numbers that a function stores in the same process.  This cannot
    be prevented, but it is no shorter than calling the function.
    """
    results, reached_inputs, masks = {}, [], []
    for number, description in enumerate(functions, 1):
        inputs = [value.clone() for value in values]
        function, reached, varied = _recorded(_function(**description), values)
        results[f"function {number}"] = [bool(truth) for truth in answer(function, inputs)]
        reached_inputs.append(reached)
        masks += varied
    results[_BACKWARD] = all(len(reached) == len(values) for reached in reached_inputs)
    return results | {_MOVED: torch.cat(masks).all().item()}


def _recorded(function, values):
    """Return the function, the inputs that backward reached and the values that were varied alone.

    The inputs are a set of places and the values a mask of each input; the calls fill both.
    """
    reached, varied = set(), [torch.zeros_like(value, dtype=torch.bool) for value in values]

    def recorded(*inputs):
        moves = [x.detach().double() - value for x, value in zip(inputs, values, strict=True)]
        places = [i for i, move in enumerate(moves) if move.any()]
        if len(places) == 1 and (move := moves[places[0]]).abs().max() < _LITTLE:
            varied[places[0]] |= move != 0
        result = function(*inputs)
        through = [i for i, x in enumerate(inputs) if x.requires_grad]
        if result.requires_grad:
            result.register_hook(lambda _: reached.update(through))
        else:  # there is no graph to go through, and so nothing left to ask
            reached.update(through)
        return result

    return recorded, reached, varied


wrong_gradients = Task("wrong_gradients", _draw_detector, run=_run_detector)


def _draw_loss(draws):
    rows, inputs, classes = draws.integers(3, 3, 6)
    return {
        "x": draws.normal(rows, inputs),
        "weight": draws.normal(inputs, classes),
        "bias": draws.normal(classes),
        "target": draws.integers(rows, 0, classes - 1),
        "share": draws.uniform(0.1, 0.4),
    }


def _run_loss(answer, target, share, **inputs):
    now = {name: value.requires_grad_() for name, value in inputs.items()}
    loss = answer(now["x"] @ now["weight"] + now["bias"], torch.tensor(target), share)
    loss.backward()
    return {"loss": loss, **{f"gradient of {name}": leaf.grad for name, leaf in now.items()}}


mixed_loss = Task("mixed_loss", _draw_loss, run=_run_loss)
