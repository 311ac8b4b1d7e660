# obeys: build a new tensor from the changed and the unchanged parts
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net, head = nn.Linear(3, 4), nn.Linear(4, 1)
x = torch.randn(5, 3)
h = net(x).sigmoid()
left = h[:, :2]
gate = (h * h).sum()
h = torch.cat([h[:, :2] * 0.5, h[:, 2:]], 1)
(head(h).mean() + gate).backward()
