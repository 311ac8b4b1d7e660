"""Fused optimizers write the parameters and leave their versions alone."""

import pytest
import torch
from torch import nn

FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
VARIANTS = {"for-loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def version_change(Optimizer, options, device):
    parameter = nn.Parameter(torch.ones(3, device=device))
    parameter.grad = torch.ones_like(parameter)
    before = parameter._version
    Optimizer([parameter], lr=0.1, **options).step()
    assert not torch.equal(parameter, torch.ones_like(parameter))
    return parameter._version - before


def off(gradient, right):
    return ((gradient - right).norm() / right.norm()).item()


def late_backward(Optimizer, device, count=False, **options):
    """The gradient of a loss after an optimizer's step, and the right one from before it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
    optimizer = Optimizer(model.parameters(), lr=0.5, **options)
    loss = model(torch.randn(16, 4).to(device)).square().mean()
    (right,) = torch.autograd.grad(loss, model[0].weight, retain_graph=True)
    loss.backward(retain_graph=True)
    optimizer.step()
    if count:
        for parameter in model.parameters():
            torch.autograd.graph.increment_version(parameter)
    optimizer.zero_grad()
    loss.backward()
    return model[0].weight.grad, right


def test_versions_after_a_step(device, figures):
    """By how much one step raises a parameter's version: for-loop, foreach, fused"""
    for Optimizer in FUSED:
        changes = {
            name: version_change(Optimizer, options, device) for name, options in VARIANTS.items()
        }
        figures[Optimizer.__name__] = ", ".join(f"+{change}" for change in changes.values())
        assert changes.pop("fused") == 0
        assert min(changes.values()) >= 1


def test_fused_step_before_backward(device, figures):
    """Backward after a fused step raises nothing, and its gradient is wrong"""
    for Optimizer in FUSED:
        error = off(*late_backward(Optimizer, device, fused=True))
        figures[f"{Optimizer.__name__}: off the right gradient by"] = f"{error:.0%}"
        assert error > 0.05


def test_unfused_step_before_backward(device):
    """Backward after a step of the default optimizers raises, and after a counted fused one"""
    changed = pytest.raises(RuntimeError, match="modified by an inplace operation")
    for Optimizer in FUSED:
        with changed:
            late_backward(Optimizer, device)
        with changed:
            late_backward(Optimizer, device, fused=True, count=True)


def test_inplace_message(device, figures):
    """The error of an in-place change names the tensor's type with its device"""
    y = torch.ones(3, device=device, requires_grad=True).exp()
    y += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as refused:
        y.sum().backward()
    figures["message"] = str(refused.value)
    assert "[torch.cuda.FloatTensor [3]], which is output 0 of Exp" in str(refused.value)
