"""The small networks of the questions, and their formulas, which give the right results.

The formulas take weights as plain tensors: no modules, no optimizers, no ``.grad``.  A question
with a batch norm computes in float64, because over few rows it may divide by a small number.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LAYERS = ("0.weight", "0.bias", "2.weight", "2.bias")
PARAMETERS = tuple(f"{name} of layer {layer}" for layer in (1, 2) for name in ("weight", "bias"))
"""The names of the parameters of :func:`two_layers`, in PyTorch and in words."""


def two_layers(weights: Sequence[Tensor], *, leftover: bool = False) -> nn.Sequential:
    """Build two linear layers with a tanh between them; ``leftover`` gives them old gradients."""
    first, _, last, _ = weights
    net = nn.Sequential(
        nn.Linear(*reversed(first.shape)), nn.Tanh(), nn.Linear(*reversed(last.shape))
    )
    fill(net.to(first.dtype).parameters(), weights)
    if leftover:
        leave_gradients(net)
    return net


def fill(parameters: Iterable[Tensor], values: Iterable[Tensor]) -> None:
    """Copy the values into the parameters."""
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value)


def leave_gradients(*modules: nn.Module) -> None:
    """Give each parameter a gradient, as if something else had been trained before."""
    for module in modules:
        for parameter in module.parameters():
            parameter.grad = parameter.detach().cos()


def tensors_of(names: Iterable[str], **networks: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers of sequential networks by names such as ``actor[0].weight``."""
    tensors = {
        f"{network}[{name[0]}]{name[1:]}": tensor
        for network, module in networks.items()
        for name, tensor in module.state_dict().items()
    }
    return {name: tensors[name] for name in names}


def output_of(weights: Iterable[Tensor], x: Tensor) -> Tensor:
    """Return the output of :func:`two_layers` by its formula."""
    first, first_bias, last, last_bias = weights
    return (x @ first.T + first_bias).tanh() @ last.T + last_bias


def leaves(weights: Iterable[Tensor]) -> list[Tensor]:
    """Return the weights in float64, as new leaves that require a gradient."""
    return [weight.detach().double().requires_grad_() for weight in weights]


def descended(weights: Sequence[Tensor], loss: Tensor, rate: float) -> list[Tensor]:
    """Return the weights after one step of gradient descent on the loss, as new leaves."""
    # The bias of a score may cancel out of a loss: its gradient is zero, and autograd says None.
    gradients = torch.autograd.grad(loss, weights, retain_graph=True, materialize_grads=True)
    return leaves(w - rate * g for w, g in zip(weights, gradients, strict=True))


def normalised(hidden: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Return a batch norm's output in training mode for the rows of ``hidden``."""
    variance = hidden.var(0, correction=0)
    return (hidden - hidden.mean(0)) / (variance + 1e-5).sqrt() * scale + shift


class Weights(dict[str, Tensor]):
    """Weights by names such as ``actor[0].bias``, with the formulas of the layers ``actor[0]``."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__(weights)
        for name, weight in self.items():
            weight.requires_grad_(not name.endswith("running_mean"))

    def linear(self, layer: str, x: Tensor) -> Tensor:
        """Return a linear layer's output."""
        return F.linear(x, self[f"{layer}.weight"], self.get(f"{layer}.bias"))

    def batch_norm(self, layer: str, hidden: Tensor) -> Tensor:
        """Return a batch norm's output in training mode, and move its running mean."""
        mean = f"{layer}.running_mean"
        self[mean] = 0.9 * self[mean] + 0.1 * hidden.detach().mean(0)
        return normalised(hidden, self[f"{layer}.weight"], self[f"{layer}.bias"])

    def descend(self, network: str, loss: Tensor, rate: float) -> None:
        """Replace the weights of a network, such as ``actor``, by those after a step."""
        names = [name for name in self if name.startswith(network) and self[name].requires_grad]
        values = descended([self[name] for name in names], loss, rate)
        self.update(zip(names, values, strict=True))
