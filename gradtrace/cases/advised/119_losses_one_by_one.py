# obeys: add the losses and call backward() once
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
heads = nn.ModuleList(nn.Linear(8, 1) for _ in range(3))
optimizer = torch.optim.Adam([*trunk.parameters(), *heads.parameters()], lr=1e-3)
for x in torch.randn(3, 16, 4):
    features = trunk(x)
    losses = [head(features).sub(i).pow(2).mean() for i, head in enumerate(heads)]
    optimizer.zero_grad()
    sum(losses).backward()
    optimizer.step()
