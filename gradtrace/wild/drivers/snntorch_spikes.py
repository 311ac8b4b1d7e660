# /// script
# dependencies = ["snntorch"]
# ///
"""snnTorch: leaky neurons with a surrogate gradient, through the steps of time."""

import snntorch
import torch
import trial
from torch import nn


class Spiking(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.leaky = nn.Linear(8, 16), snntorch.Leaky(beta=0.9)
        self.second, self.out = nn.Linear(16, 2), snntorch.Leaky(beta=0.8, reset_mechanism="none")

    def forward(self, x):
        inner, outer = self.leaky.init_leaky(), self.out.init_leaky()
        potentials = []
        for _ in range(12):
            spikes, inner = self.leaky(self.first(x), inner)
            _, outer = self.out(self.second(spikes), outer)
            potentials.append(outer)
        return torch.stack(potentials)


trial.begin()
x = torch.rand(64, 8)
label = (x[:, 0] > x[:, 1]).long()
model = Spiking()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
with trial.training():
    for step in range(60):
        loss = nn.functional.cross_entropy(model(x).sum(0), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(loss.item())
trial.end(model)
