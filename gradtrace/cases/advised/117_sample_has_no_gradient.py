# obeys: for a distribution rsample(), not sample()
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
actor, critic = nn.Linear(3, 2), nn.Linear(5, 1).requires_grad_(False)
optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
for states in torch.randn(3, 16, 3):
    normal = torch.distributions.Normal(actor(states), 1.0)
    action = normal.rsample()
    loss = -critic(torch.cat([states, action], 1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
