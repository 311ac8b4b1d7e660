# obeys: use PyTorch operations for the whole computation
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 2); opt = torch.optim.SGD(net.parameters(), .1)
import numpy as np
def smooth(t):
    return F.conv1d(t.reshape(1, 1, -1), torch.full((1, 1, 3), 1 / 3), padding=1).view_as(t)
for x in torch.randn(2, 4, 3):
    loss = smooth(net(x)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
