# /// script
# dependencies = ["higher"]
# ///
"""higher: MAML on sine waves, gradients through the inner optimizer's steps."""

import higher
import torch
import trial
from torch import nn

trial.begin()
model = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
outer = torch.optim.Adam(model.parameters(), lr=1e-3)
inner = torch.optim.SGD(model.parameters(), lr=0.01)
with trial.training():
    for step in range(25):
        outer.zero_grad()
        total = 0.0
        for _ in range(4):
            amplitude, phase = torch.rand(1) * 4 + 1, torch.rand(1) * 3
            x = torch.rand(20, 1) * 10 - 5
            y = amplitude * torch.sin(x + phase)
            with higher.innerloop_ctx(model, inner, copy_initial_weights=False) as (fast, steps):
                for _ in range(3):
                    steps.step(nn.functional.mse_loss(fast(x[:10]), y[:10]))
                loss = nn.functional.mse_loss(fast(x[10:]), y[10:])
                total += loss.item()
                loss.backward()
        outer.step()
        if step % 5 == 0:
            print(step, total / 4)
trial.end(model)
