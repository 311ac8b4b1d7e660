# /// script
# dependencies = ["torchdiffeq"]
# ///
"""torchdiffeq: learn the field of a spiral, backward by the adjoint method."""

import torch
import trial
from torchdiffeq import odeint, odeint_adjoint


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        layers = torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2)
        self.net = torch.nn.Sequential(*layers)

    def forward(self, t, y):
        return self.net(y**3)


trial.begin()
rotation = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
times = torch.linspace(0.0, 5.0, 40)
with torch.no_grad():
    truth = odeint(lambda t, y: (y**3) @ rotation, torch.tensor([[2.0, 0.0]]), times)
field = Field()
optimizer = torch.optim.RMSprop(field.parameters(), lr=1e-3)
with trial.training():
    for step in range(20):
        optimizer.zero_grad()
        starts = torch.randint(0, 30, (10,))
        target = torch.stack([truth[starts + offset] for offset in range(8)])
        predicted = odeint_adjoint(field, truth[starts], times[:8])
        loss = (predicted - target).abs().mean()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(step, loss.item())
trial.end(field)
