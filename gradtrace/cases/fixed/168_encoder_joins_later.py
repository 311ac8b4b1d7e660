import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Linear(4, 8), nn.Linear(8, 2)
optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-2)


def update(features, x):
    loss = F.cross_entropy(head(F.relu(features)), (x.sum(1) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


for x in torch.randn(40, 8, 4):
    update(encoder(x).detach(), x)
for x in torch.randn(40, 8, 4):
    update(encoder(x), x)
