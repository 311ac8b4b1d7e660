# /// script
# dependencies = ["e3nn"]
# ///
"""e3nn: an equivariant energy whose gradient is a force, trained on both."""

import torch
import trial
from e3nn import nn as enn
from e3nn import o3

trial.begin()
inputs, hidden = o3.Irreps("0e + 1o"), o3.Irreps("8x0e + 8x1o")
harmonics = o3.Irreps.spherical_harmonics(2)


class Energy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = o3.FullyConnectedTensorProduct("1x0e", harmonics, hidden)
        self.second = o3.FullyConnectedTensorProduct(hidden, harmonics, "8x0e")
        self.activation = enn.NormActivation(hidden, torch.tanh)
        self.out = torch.nn.Linear(8, 1)

    def forward(self, positions):
        edges = positions[:, None] - positions[None]
        edges = edges[~torch.eye(len(positions), dtype=torch.bool)]
        weights = torch.exp(-edges.norm(dim=1, keepdim=True))
        sphere = o3.spherical_harmonics(harmonics, edges, True, normalization="component")
        x = self.activation(self.first(weights, sphere))
        return self.out(torch.tanh(self.second(x, sphere)) * weights).sum()


model = Energy()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
with trial.training():
    for step in range(75):
        positions = torch.randn(6, 3, requires_grad=True)
        distances = torch.pdist(positions.detach())
        energy = model(positions)
        (force,) = torch.autograd.grad(-energy, positions, create_graph=True)
        loss = (energy - distances.reciprocal().sum()).pow(2) * 1e-2 + force.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(step, loss.item())
trial.end(model)
