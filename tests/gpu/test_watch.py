"""A watch of training programs on the GPU."""

import torch
from torch import nn

from gradtrace import watch


def train_critic(device, steps=3):
    """A critic with a gradient penalty, as it should be; the gradient of its first weight."""
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
    optimizer = torch.optim.Adam(critic.parameters())
    for _ in range(steps):
        x = torch.randn(16, 4).to(device).requires_grad_()
        score = critic(x)
        (slope,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        loss = score.mean() + (slope.square().sum(dim=1).sqrt() - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return critic[0].weight.grad


def test_watch_of_a_gradient_penalty(device, figures):
    """A watch, plain or strict, changes nothing of a right gradient penalty and says nothing"""
    right = train_critic(device)
    said = {}
    for strict in (False, True):
        with watch(strict=strict) as watched:
            gradient = train_critic(device)
        assert torch.equal(gradient, right)
        said[strict] = [finding.cause for finding in watched.findings]
        figures["strict" if strict else "plain"] = ", ".join(said[strict]) or "nothing"
    assert said == {False: [], True: []}
