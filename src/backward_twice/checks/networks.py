"""The small networks of the questions.

A question with a batch norm computes in float64, because over few rows it may divide by a small
number.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

PARAMETERS = tuple(f"{name} of layer {layer}" for layer in (1, 2) for name in ("weight", "bias"))
"""The names of the parameters of :func:`two_layers`, in words."""


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


def weights_of(**networks: nn.Module) -> dict[str, Tensor]:
    """Return parameters and running means of networks by names such as ``actor[0].weight``."""
    return {
        f"{network}[{name[0]}]{name[1:]}": tensor
        for network, module in networks.items()
        for name, tensor in module.state_dict().items()
        if not name.endswith(("running_var", "num_batches_tracked"))
    }
