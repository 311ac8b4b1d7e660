# /// script
# dependencies = ["torchopt"]
# ///
"""TorchOpt: MAML with a differentiable Adam, and functional updates."""

import torch
import torchopt
import trial
from torch import nn

trial.begin()
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
outer = torchopt.Adam(model.parameters(), lr=1e-2)
inner = torchopt.MetaAdam(model, lr=1e-2)
linear = nn.Linear(5, 1)
optimizer = torchopt.adam(lr=0.05)
x = torch.randn(64, 5)
with trial.training():
    for step in range(25):
        total = 0.0
        weights = torchopt.extract_state_dict(model, by="reference")
        moments = torchopt.extract_state_dict(inner, by="reference")
        outer.zero_grad()
        for _ in range(3):
            phase = torch.rand(1) * 3
            points = torch.rand(20, 1) * 10 - 5
            values = torch.sin(points + phase)
            for _ in range(2):
                inner.step(nn.functional.mse_loss(model(points[:10]), values[:10]))
            loss = nn.functional.mse_loss(model(points[10:]), values[10:])
            loss.backward()
            total += loss.item()
            torchopt.recover_state_dict(model, weights)
            torchopt.recover_state_dict(inner, moments)
        outer.step()
        if step % 5 == 0:
            print(step, total / 3)
    parameters = tuple(linear.parameters())
    state = optimizer.init(parameters)
    for _ in range(60):
        predicted = nn.functional.linear(x, *parameters)
        loss = (predicted - x.sum(1, keepdim=True)).pow(2).mean()
        gradients = torch.autograd.grad(loss, parameters)
        updates, state = optimizer.update(gradients, state, inplace=False)
        parameters = torchopt.apply_updates(parameters, updates)
    print(loss.item())
trial.end(model, *parameters)
