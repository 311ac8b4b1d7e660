# /// script
# dependencies = ["neuraloperator"]
# ///
"""neuraloperator: a Fourier neural operator, complex weights, trained by its own relative loss."""

import torch
import trial
from neuralop.losses import LpLoss
from neuralop.models import FNO

trial.begin()
x = torch.randn(16, 1, 16, 16)
y = x.roll(1, -1) - x
model = FNO(n_modes=(6, 6), hidden_channels=8, in_channels=1, out_channels=1, n_layers=2)
loss_of = LpLoss(d=2)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
with trial.training():
    for step in range(20):
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(loss.item())
trial.end(model)
