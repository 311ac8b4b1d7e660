# /// script
# dependencies = ["ema-pytorch"]
# ///
"""ema-pytorch: a moving average of the weights teaches the network that it follows."""

import torch
import trial
from ema_pytorch import EMA
from torch import nn

trial.begin()
x = torch.randn(64, 6)
y = x[:, :1].sin()
model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 1))
teacher = EMA(model, beta=0.95, update_after_step=10, update_every=2)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
with trial.training():
    for step in range(200):
        noisy = x + 0.1 * torch.randn_like(x)
        with torch.no_grad():
            taught = teacher(x)
        loss = (model(noisy) - y).pow(2).mean() + 0.1 * (model(noisy) - taught).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        teacher.update()
        if step % 40 == 0:
            print(loss.item())
trial.end(model, teacher)
