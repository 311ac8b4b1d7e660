# /// script
# dependencies = ["torchjd"]
# ///
"""TorchJD: several losses descend together, through one network and through shared features."""

import torch
import trial
from torch import nn
from torchjd.aggregation import MGDA
from torchjd.autojac import backward, jac_to_grad, mtl_backward

trial.begin()
x = torch.randn(128, 10)
first, second = x[:, :1].sin(), x[:, 1:3].sum(1, keepdim=True)
whole = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2))
shared = nn.Sequential(nn.Linear(10, 16), nn.ReLU())
heads = nn.ModuleList([nn.Linear(16, 1), nn.Linear(16, 1)])
aggregator = MGDA()
with trial.training():
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    for step in range(40):
        out = whole(x)
        losses = [(out[:, :1] - first).pow(2).mean(), (out[:, 1:] - second).pow(2).mean()]
        optimizer.zero_grad()
        backward(losses)
        jac_to_grad(whole.parameters(), aggregator)
        optimizer.step()
        if step % 10 == 0:
            print(step, [loss.item() for loss in losses])
    optimizer = torch.optim.SGD([*shared.parameters(), *heads.parameters()], lr=0.1)
    for step in range(40):
        features = shared(x)
        targets = zip(heads, (first, second), strict=True)
        losses = [(head(features) - target).pow(2).mean() for head, target in targets]
        optimizer.zero_grad()
        mtl_backward(losses, features=features)
        jac_to_grad(shared.parameters(), aggregator)
        optimizer.step()
        if step % 10 == 0:
            print(step, [loss.item() for loss in losses])
trial.end(whole, shared, heads)
