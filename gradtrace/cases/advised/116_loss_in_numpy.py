# obeys: use PyTorch operations for the whole computation
import numpy as np
import torch
from torch import nn

def weighted_error(prediction, target):
    difference = prediction - target
    return (difference.abs() ** 1.5).mean()


torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.randn(3, 16, 4):
    loss = weighted_error(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
