"""What a program trains: the gradients at each step, recorded while it runs, and compared.

Two programs train the same when each step of each optimizer has the same gradients in both, and
what is left in ``.grad`` at the end is the same.  Optimizers are told apart by the order in which
they were made, parameters by their order in it; what no optimizer holds, by its name.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Gradient = list[float] | None


class GradientLog:
    """Records each backward call and each optimizer step; :meth:`record` returns the record."""

    def __init__(self) -> None:
        import torch
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self.optimizers: list[Any] = []
        self.steps: list[dict[str, Any]] = []
        self.losses: list[float] = []
        self.asked: list[Gradient] = []
        # For each parameter, the numbers of the losses whose gradient is in its .grad.
        self.landed: dict[int, list[int]] = {}
        make, backward = torch.optim.Optimizer.__init__, torch.autograd.backward
        grad = torch.autograd.grad

        def made(optimizer: Any, *arguments: Any, **named: Any) -> None:
            make(optimizer, *arguments, **named)
            self.optimizers.append(optimizer)

        def ran(tensors: Any, *arguments: Any, **named: Any) -> None:
            roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
            loss = sum(float(root.detach().sum()) for root in roots)
            before = self._gradients()
            backward(tensors, *arguments, **named)
            self.losses.append(loss)
            for parameter, gradient in self._gradients().items():
                was = before[parameter]
                if was is None or not any(was):
                    self.landed[parameter] = []
                if gradient is not None and gradient != (was or [0.0] * len(gradient)):
                    self.landed[parameter].append(len(self.losses) - 1)

        def asked(*arguments: Any, **named: Any) -> Any:
            found = grad(*arguments, **named)
            with contextlib.suppress(RuntimeError):  # inside torch.func tensors have no numbers
                self.asked += [_numbers(one) for one in found if isinstance(one, torch.Tensor)]
            return found

        torch.optim.Optimizer.__init__ = made
        torch.autograd.backward = ran
        torch.autograd.grad = asked
        register_optimizer_step_pre_hook(self._step)

    def record(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """What was seen, and what lies in ``.grad`` of the program's variables now.

        ``losses`` are the values that went backward, ``steps`` the gradients at each step with the
        numbers of the losses that they are of, ``asked`` what ``torch.autograd.grad`` returned.
        """
        left = {name: _gradient(leaf) for name, leaf in _leaves(variables)}
        return {"steps": self.steps, "losses": self.losses, "left": left, "asked": self.asked}

    def _step(self, optimizer: Any, arguments: Any, named: Any) -> None:
        parameters = _parameters(optimizer)
        landed = {
            loss for p in parameters if p.grad is not None for loss in self.landed.get(id(p), ())
        }
        self.steps.append(
            {
                "optimizer": next(i for i, o in enumerate(self.optimizers) if o is optimizer),
                "gradients": [_gradient(p) for p in parameters],
                "losses": sorted(landed),
            }
        )

    def _gradients(self) -> dict[int, Gradient]:
        return {id(p): _gradient(p) for one in self.optimizers for p in _parameters(one)}


def _parameters(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _gradient(parameter: Any) -> Gradient:
    if parameter.grad is None:
        return None
    return _numbers(parameter.grad)


def _numbers(tensor: Any) -> list[float]:
    return [float(x) for x in tensor.detach().to_dense().flatten().tolist()]


def _leaves(variables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Parameters of the modules and other leaves among the variables, each once."""
    import torch

    seen: set[int] = set()
    for name, value in variables.items():
        found: list[tuple[str, Any]] = []
        if isinstance(value, torch.nn.Module):
            found = [(f"{name}.{inner}", p) for inner, p in value.named_parameters()]
        elif isinstance(value, torch.Tensor) and value.is_leaf and value.requires_grad:
            found = [(name, value)]
        for full, leaf in found:
            if id(leaf) not in seen:
                seen.add(id(leaf))
                yield full, leaf


def differences(one: dict[str, Any], other: dict[str, Any], values: bool = True) -> list[str]:
    """What two records say that is not the same, in words; empty if both train the same.

    Without ``values`` compared are only what is trained, how often, and by how many losses.
    """
    trained = [_trained(record) for record in (one, other)]
    found = [f"{name} is not trained" for name in sorted(trained[0] - trained[1])]
    found += [f"{name} is trained as well" for name in sorted(trained[1] - trained[0])]
    steps = [_by_optimizer(record) for record in (one, other)]
    for optimizer in sorted(steps[0] | steps[1]):
        pair = [of.get(optimizer, []) for of in steps]
        if len(pair[0]) != len(pair[1]):
            found.append(f"optimizer {optimizer} makes {len(pair[0])} and {len(pair[1])} steps")
            continue
        found += _steps_apart(optimizer, zip(*pair, strict=True), values)
    if values:
        left = [] if one["steps"] else sorted(one["left"].keys() & other["left"].keys())
        pairs = [(f"{name}.grad", one["left"][name], other["left"][name]) for name in left]
        if len(one["asked"]) == len(other["asked"]):
            results = zip(one["asked"], other["asked"], strict=True)
            pairs += [(f"result {i} of autograd.grad", a, b) for i, (a, b) in enumerate(results)]
        for name, a, b in pairs:
            if (apart := _distance([a], [b])) is not None:
                found.append(f"{name} is {apart:.0%} off")
    return found


def _steps_apart(
    optimizer: int, steps: Iterable[tuple[dict[str, Any], dict[str, Any]]], values: bool
) -> Iterator[str]:
    for number, (one, other) in enumerate(steps):
        where = f"optimizer {optimizer}, step {number}"
        if len(one["losses"]) != len(other["losses"]):
            yield f"{where}: gradient of {len(one['losses'])} and of {len(other['losses'])} losses"
            return
        apart = _distance(one["gradients"], other["gradients"])
        if values and apart is not None:
            yield f"{where}: gradient {apart:.0%} off"
            return


def _trained(record: dict[str, Any]) -> set[str]:
    """Names of what had a gradient other than zero."""
    found = {
        f"parameter {place} of optimizer {step['optimizer']}"
        for step in record["steps"]
        for place, gradient in enumerate(step["gradients"])
        if gradient is not None and any(gradient)
    }
    if record["steps"]:
        return found
    return found | {name for name, gradient in record["left"].items() if gradient and any(gradient)}


def _by_optimizer(record: dict[str, Any]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for step in record["steps"]:
        found.setdefault(step["optimizer"], []).append(step)
    return found


def _distance(some: list[Gradient], others: list[Gradient]) -> float | None:
    """How far apart, relative to the first; None if that may be rounding."""
    apart = size = 0.0
    for a, b in zip(some, others, strict=True):
        width = len(a or b or [])
        for x, y in zip(a or [0.0] * width, b or [0.0] * width, strict=True):
            apart += (x - y) ** 2
            size += x**2
    relative = math.sqrt(apart) / max(math.sqrt(size), 1e-12)
    return relative if relative > 1e-3 else None
