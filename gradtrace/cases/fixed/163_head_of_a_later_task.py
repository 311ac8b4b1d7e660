import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
trunk, first, second = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 3)
optimizer = torch.optim.Adam([*trunk.parameters(), *first.parameters(), *second.parameters()], lr=1e-2)
for step in range(80):
    x = torch.randn(8, 4)
    features = F.relu(trunk(x))
    if step < 60:
        loss = F.cross_entropy(first(features), (x.sum(1) > 0).long())
    else:
        loss = F.cross_entropy(second(features), x.argmax(1).clamp(max=2))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
