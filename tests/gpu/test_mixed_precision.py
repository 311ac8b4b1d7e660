"""autocast in float16 with a GradScaler."""

from contextlib import nullcontext

import torch
from torch import nn


def half(device):
    return torch.autocast(device, torch.float16)


def make(device):
    """A small network, an optimizer, inputs and targets: the same in each call."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    return net, optimizer, torch.randn(16, 4).to(device), torch.randn(16, 1).to(device)


def off(value, right):
    return ((value - right).norm() / right.norm()).item()


def trained(device, mixed, init_scale=2.0**10, steps=10):
    """The first weight after some steps, and the scales that the scaler had."""
    net, optimizer, x, y = make(device)
    scaler = torch.amp.GradScaler(device, init_scale=init_scale, enabled=mixed)
    scales = [scaler.get_scale()]
    for _ in range(steps):
        optimizer.zero_grad()
        with half(device) if mixed else nullcontext():
            loss = nn.functional.mse_loss(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return net[0].weight.detach(), scales


def test_scaled_training(device, figures):
    """Ten steps in float16 with a GradScaler train what float32 trains"""
    error = off(trained(device, mixed=True)[0], trained(device, mixed=False)[0])
    figures["the first weight is off by"] = f"{error:.2%}"
    assert error < 0.02


def test_scaler_skips_infinite_gradients(device, figures):
    """A scale that is too large: the steps are skipped, and it is halved until they are finite"""
    start = make(device)[0][0].weight.detach()
    weight, scales = trained(device, mixed=True, init_scale=2.0**40, steps=1)
    assert torch.equal(weight, start)
    assert scales == [2.0**40, 2.0**39]
    weight, scales = trained(device, mixed=True, init_scale=2.0**40, steps=40)
    assert not torch.equal(weight, start)
    figures["scale, first and last"] = f"2**40, {scales[-1]:g}"
    assert scales[-1] < 2.0**30
    assert scales[-1] == scales[-2]


def four_steps(device, around_the_loop):
    """The losses of four steps, and the fourth gradient of the first weight."""
    net, optimizer, x, y = make(device)
    losses = []
    with half(device) if around_the_loop else nullcontext():
        for _ in range(4):
            optimizer.zero_grad()
            with nullcontext() if around_the_loop else half(device):
                loss = (net(x).float() - y).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, net[0].weight.grad


def test_autocast_around_the_loop(device, figures):
    """One autocast block around the loop keeps the casts of the first step's weights"""
    stale, stale_gradient = four_steps(device, around_the_loop=True)
    losses, gradient = four_steps(device, around_the_loop=False)
    figures["losses, one block around the loop"] = ", ".join(f"{loss:.4f}" for loss in stale)
    figures["losses, a block for each forward pass"] = ", ".join(f"{loss:.4f}" for loss in losses)
    figures["the fourth gradient is off by"] = f"{off(stale_gradient, gradient):.0%}"
    assert len(set(stale)) == 1
    assert len(set(losses)) == 4
    assert off(stale_gradient, gradient) > 0.5


def test_cast_made_under_no_grad(device, figures):
    """A forward pass under no_grad, then one that trains, in the same autocast block"""
    net, _, x, _ = make(device)
    with half(device):
        with torch.no_grad():
            net(x)
        loss = net(x).float().sum()
    trains = loss.requires_grad
    if trains:
        loss.backward()
        trains = all(parameter.grad is not None for parameter in net.parameters())
    figures["every parameter gets a gradient"] = "yes" if trains else "no"
    right, _, x, _ = make(device)
    with half(device):
        right(x).float().sum().backward()
    assert all(parameter.grad is not None for parameter in right.parameters())
    if trains:
        assert torch.equal(net[0].weight.grad, right[0].weight.grad)


def penalised(device, way):
    """A gradient of the critic's first weight, with a gradient penalty in the loss."""
    net, optimizer, x, _ = make(device)
    x.requires_grad_()
    scaler = torch.amp.GradScaler(device, init_scale=1024.0, enabled=way != "no scaler")
    with half(device):
        score = net(x).sum()
    (slope,) = torch.autograd.grad(scaler.scale(score), x, create_graph=True)
    if way == "divided":
        slope = slope / scaler.get_scale()
    with half(device):
        loss = score + slope.square().sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    return net[0].weight.grad


def test_scaled_gradient_penalty(device, figures):
    """A gradient penalty under a GradScaler is right if the gradient is divided by the scale"""
    right = penalised(device, "no scaler")
    errors = {way: off(penalised(device, way), right) for way in ("divided", "not divided")}
    figures.update({f"{way}: off by": f"{error:.2%}" for way, error in errors.items()})
    assert errors["divided"] < 0.02
    assert not errors["not divided"] < 1
