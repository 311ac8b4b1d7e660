"""Exercise ``retained_bytes``: predict what a graph holds, measure it, and say how long it stays.

Whatever is asked, the truth is measured: the drawn network is built, run, and its graph read by
``gradtrace``.  Where the answer is to predict, the batch has more rows than any machine holds, and
the truth is that of two rows, multiplied.
"""

import torch
from torch import nn

from backward_twice.checks.question import Task
from gradtrace import snapshot

_NETWORKS = 4
_FUNCTIONS = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
    "abs": torch.abs,
    "none": lambda values: values,
}
_METHODS = ("sin", "cos", "square", "exp", "neg", "round", "tanh", "abs")
_BACKWARD = ("none", "plain", "retained")
_KEPT = ("the last loss", "all losses", "all numbers")


def _sizes(generator, number, low=2, high=12):
    return torch.randint(low, high, (number,), generator=generator).tolist()


def _one_of(values, generator):
    return values[torch.randint(len(values), (), generator=generator)]


def _described(batch, inputs, layers, squared, itemsize):
    description = ", ".join(f"{width} {function}" for width, function in layers)
    end = "mean of squares" if squared else "mean"
    return f"batch {batch}, {inputs} inputs, layers {description}, {end}, {itemsize} bytes a value"


def _draw_saved(generator):
    networks = []
    for number in range(_NETWORKS):
        (batch,) = _sizes(generator, 1, 10**10, 10**12)
        inputs, *widths = _sizes(generator, 1 + _one_of([2, 3, 4], generator))
        functions = [_one_of(list(_FUNCTIONS), generator) for _ in widths]
        # In every draw: one that saves what comes out, one that saves what goes in, and none.
        functions[0] = ("tanh", "gelu", "none", _one_of(list(_FUNCTIONS), generator))[number]
        networks.append(
            {
                "batch": batch,
                "inputs": inputs,
                "layers": [list(pair) for pair in zip(widths, functions, strict=True)],
                "squared": number % 2 == 1,
                "itemsize": _one_of([4, 8], generator),
            }
        )
    return {"networks": networks}


def _run_saved(answer, networks):
    return {_described(**network): answer(**network) for network in networks}


def _expect_saved(networks):
    expected = {}
    for network in networks:
        bytes_per_row, remainder = divmod(_measured(**{**network, "batch": 2}), 2)
        assert remainder == 0
        expected[_described(**network)] = bytes_per_row * network["batch"]
    return expected


def _measured(batch, inputs, layers, squared, itemsize):
    dtype = torch.float32 if itemsize == 4 else torch.float64
    x = torch.ones(batch, inputs, dtype=dtype)
    values = x
    for width, function in layers:
        weight = torch.ones(width, values.shape[1], dtype=dtype, requires_grad=True)
        bias = torch.ones(width, dtype=dtype, requires_grad=True)
        values = _FUNCTIONS[function](nn.functional.linear(values, weight, bias))
    loss = (values**2 if squared else values).mean()
    return snapshot(loss, inputs=[x]).held.activations


saved_bytes = Task("saved_bytes", _draw_saved, _expect_saved, _run_saved)


def _draw_measure(generator):
    networks = []
    for number in range(_NETWORKS):
        batch, inputs, *widths = _sizes(generator, 2 + _one_of([2, 3], generator))
        kinds = ["Tanh", "GELU", "Softmax", "LayerNorm", "Sigmoid", "ReLU"]
        between = [_one_of(kinds, generator) for _ in widths]
        between[0] = ("Tanh", "LayerNorm", "GELU", "Softmax")[number]
        # A module whose kind says nothing: who knows by heart what the others save must measure it.
        between[-1] = " ".join(_one_of(_METHODS, generator) for _ in range(3))
        networks.append(
            {
                "batch": batch,
                "inputs": inputs,
                "layers": [list(pair) for pair in zip(widths, between, strict=True)],
            }
        )
    return {"networks": networks}


class Several(nn.Module):
    """Operations of a tensor, one after another, in a module."""

    def __init__(self, operations):
        super().__init__()
        self.operations = operations

    def forward(self, x):
        for operation in self.operations:
            x = getattr(x, operation)()
        return x


def _module(kind, width):
    if (module := getattr(nn, kind, None)) is None:
        return Several(kind.split())
    return module(*{"LayerNorm": (width,), "Softmax": (1,)}.get(kind, ()))


def _built(batch, inputs, layers):
    modules = []
    for width, kind in layers:
        modules += [nn.Linear(inputs, width), _module(kind, width)]
        inputs = width
    return nn.Sequential(*modules)


def _named(batch, inputs, layers):
    description = ", ".join(f"Linear({width}), {kind}" for width, kind in layers)
    return f"batch {batch}, {inputs} inputs, {description}"


def _x(network):
    return torch.ones(network["batch"], network["inputs"])


def _run_measure(answer, networks):
    return {_named(**network): answer(_built(**network), _x(network)) for network in networks}


def _expect_measure(networks):
    truth = {}
    for network in networks:
        x = _x(network)
        loss = _built(**network)(x).mean()
        truth[_named(**network)] = snapshot(loss, inputs=[x]).held.activations
    return truth


measured_bytes = Task("measured_bytes", _draw_measure, _expect_measure, _run_measure)


def _draw_loop(generator):
    (steps,) = _sizes(generator, 1, 3, 8)
    batch, width = _sizes(generator, 2)
    return {"steps": steps, "batch": batch, "width": width}


def _cases(**sizes):
    for backward in _BACKWARD:
        for reference in _KEPT:
            case = {"backward": backward, "kept": reference}
            yield f"backward {backward}, kept: {reference}", sizes | case


def _run_loop(answer, **sizes):
    return {name: answer(**case) for name, case in _cases(**sizes)}


def _expect_loop(**sizes):
    return {name: _held_after(**case) for name, case in _cases(**sizes)}


def _held_after(steps, batch, width, backward, kept):
    layer, x, losses = nn.Linear(3, width), torch.ones(batch, 3), []
    for _ in range(steps):
        loss = torch.tanh(layer(x)).mean()
        if backward != "none":
            loss.backward(retain_graph=(backward == "retained"))
        losses.append(loss.item() if kept == "all numbers" else loss)
    alive = losses if kept == "all losses" else [loss]
    return snapshot(*alive, inputs=[x]).held.activations


held_after_loop = Task("held_after_loop", _draw_loop, _expect_loop, _run_loop)
