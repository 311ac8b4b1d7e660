# /// script
# dependencies = ["torchsde"]
# ///
"""torchsde: fit a stochastic differential equation, directly and by the adjoint method."""

import torch
import trial
from torch import nn
from torchsde import BrownianInterval, sdeint, sdeint_adjoint


class SDE(nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self):
        super().__init__()
        self.drift = nn.Sequential(nn.Linear(2, 16), nn.Softplus(), nn.Linear(16, 2))
        self.diffusion = nn.Sequential(nn.Linear(2, 16), nn.Softplus(), nn.Linear(16, 2))

    def f(self, t, y):
        return self.drift(y)

    def g(self, t, y):
        return torch.sigmoid(self.diffusion(y))


trial.begin()
times = torch.linspace(0, 1, 8)
target = torch.stack([torch.cos(times), torch.sin(times)], -1)[:, None]
models = []
with trial.training():
    for solve, steps in ((sdeint, 25), (sdeint_adjoint, 8)):
        sde = SDE()
        models.append(sde)
        optimizer = torch.optim.Adam(sde.parameters(), lr=1e-2)
        for step in range(steps):
            start = torch.tensor([[1.0, 0.0]]).repeat(16, 1)
            noise = BrownianInterval(
                0.0, 1.0, size=(16, 2), entropy=step, levy_area_approximation="space-time"
            )
            path = solve(sde, start, times, bm=noise, dt=0.1)
            loss = (path - target).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 5 == 0:
                print(step, loss.item())
trial.end(*models)
