# obeys: y = y.detach()
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
cell, head = nn.GRUCell(3, 8), nn.Linear(8, 3)
optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
h, y = torch.zeros(2, 8), torch.zeros(2, 3)
for step in range(4):
    h = h.detach()
    target = torch.randn(2, 3)
    h = cell(y, h)
    y = head(h)
    loss = F.mse_loss(y, target)
    optimizer.zero_grad()
    loss.backward()
    y = y.detach()
    optimizer.step()
