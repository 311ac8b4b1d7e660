"""Exercise ``retained_bytes``: predict and measure a graph's bytes, and those held after a loop.

All right results are measured: the drawn network is built and run, and ``gradtrace`` reads its
graph.  For predictions, the batch is too large for any machine, and the bytes of two rows are
multiplied.
"""

from itertools import product

import torch
from torch import nn

from backward_twice.checks.cases import task_of_cases
from gradtrace import snapshot

_NETWORKS = 4
_FUNCTIONS = ("tanh", "sigmoid", "relu", "gelu", "abs", "none")
_METHODS = ("sin", "cos", "square", "exp", "neg", "round", "tanh", "abs")
_BACKWARD = ("none", "plain", "retained")
_KEPT = ("the last loss", "all losses", "all numbers")


def _described(batch, inputs, layers, squared, itemsize):
    description = ", ".join(f"{width} {function}" for width, function in layers)
    end = "mean of squares" if squared else "mean"
    return f"batch {batch}, {inputs} inputs, layers {description}, {end}, {itemsize} bytes a value"


def _draw_saved(draws):
    networks = []
    for number in range(_NETWORKS):
        batch = draws.integer(10**10, 10**12 - 1)
        inputs, *widths = draws.integers(1 + draws.integer(2, 4), 2, 11)
        functions = [draws.one_of(_FUNCTIONS) for _ in widths]
        # Each draw has one that saves its output, one that saves its input, one that saves nothing.
        functions[0] = ("tanh", "gelu", "none", draws.one_of(_FUNCTIONS))[number]
        networks.append(
            {
                "batch": batch,
                "inputs": inputs,
                "layers": [list(pair) for pair in zip(widths, functions, strict=True)],
                "squared": number % 2 == 1,
                "itemsize": draws.one_of([4, 8]),
            }
        )
    return networks


def _predicted(batch, **network):
    return _measured(batch=2, **network) * batch // 2


def _measured(batch, inputs, layers, squared=False, itemsize=4):
    x = torch.ones(batch, inputs, dtype=torch.float32 if itemsize == 4 else torch.float64)
    values = _built(inputs, layers).to(x.dtype)(x)
    loss = (values**2 if squared else values).mean()
    return snapshot(loss, inputs=[x]).held.activations


saved_bytes = task_of_cases("saved_bytes", "network", _draw_saved, _predicted, name=_described)


def _draw_measure(draws):
    networks = []
    for number in range(_NETWORKS):
        batch, inputs, *widths = draws.integers(2 + draws.integer(2, 3), 2, 11)
        kinds = ["Tanh", "GELU", "Softmax", "LayerNorm", "Sigmoid", "ReLU"]
        between = [draws.one_of(kinds) for _ in widths]
        between[0] = ("Tanh", "LayerNorm", "GELU", "Softmax")[number]
        # A module whose kind says nothing: who knows by heart what the others save must measure it.
        between[-1] = " ".join(draws.one_of(_METHODS) for _ in range(3))
        networks.append(
            {
                "batch": batch,
                "inputs": inputs,
                "layers": [list(pair) for pair in zip(widths, between, strict=True)],
            }
        )
    return networks


class Several(nn.Module):
    """A module that applies tensor methods, given by their names, one after another."""

    def __init__(self, operations):
        super().__init__()
        self.operations = operations

    def forward(self, x):
        for operation in self.operations:
            x = getattr(x, operation)()
        return x


def _module(kind, width):
    kind = {"gelu": "GELU", "none": "Identity"}.get(kind, kind)
    if (module := getattr(nn, kind, None)) is None:
        return Several(kind.split())
    return module(*{"LayerNorm": (width,), "Softmax": (1,)}.get(kind, ()))


def _built(inputs, layers):
    modules = []
    for width, kind in layers:
        modules += [nn.Linear(inputs, width), _module(kind, width)]
        inputs = width
    return nn.Sequential(*modules)


def _named(batch, inputs, layers):
    description = ", ".join(f"Linear({width}), {kind}" for width, kind in layers)
    return f"batch {batch}, {inputs} inputs, {description}"


def _ask_to_measure(answer, batch, inputs, layers):
    return answer(_built(inputs, layers), torch.ones(batch, inputs))


measured_bytes = task_of_cases(
    "measured_bytes", "network", _draw_measure, ask=_ask_to_measure, name=_named
)


def _draw_loop(draws):
    steps, (batch, width) = draws.integer(3, 7), draws.integers(2, 2, 11)
    sizes = {"steps": steps, "batch": batch, "width": width}
    pairs = product(_BACKWARD, _KEPT)
    return [sizes | {"backward": backward, "kept": kept} for backward, kept in pairs]


def _held_after(steps, batch, width, backward, kept):
    layer, x, losses = nn.Linear(3, width), torch.ones(batch, 3), []
    for _ in range(steps):
        loss = torch.tanh(layer(x)).mean()
        if backward != "none":
            loss.backward(retain_graph=(backward == "retained"))
        losses.append(loss.item() if kept == "all numbers" else loss)
    alive = losses if kept == "all losses" else [loss]
    return snapshot(*alive, inputs=[x]).held.activations


held_after_loop = task_of_cases(
    "held_after_loop",
    "loop",
    _draw_loop,
    _held_after,
    name=lambda backward, kept, **sizes: f"backward {backward}, kept: {kept}",
)
