# obeys: add them and call backward() once
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
for batch in torch.randn(3, 16, 3):
    batch.requires_grad_()
    out = critic(batch)
    loss = -out.mean()
    slope, = torch.autograd.grad(out.sum(), batch, create_graph=True)
    penalty = (slope.norm(dim=1) - 1).pow(2).mean()
    optimizer.zero_grad()
    (loss + penalty).backward()
    optimizer.step()
