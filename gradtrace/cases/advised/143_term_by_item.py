# obeys: use PyTorch operations in place of .item(), torch.tensor and numpy
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.log_variance = nn.Linear(4, 1), nn.Linear(4, 1)


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for x in torch.randn(40, 8, 4):
    error = (model.mean(x) - x.sum(1, keepdim=True)).pow(2).mean()
    spread = model.log_variance(x).pow(2).mean()
    loss = error + 0.1 * spread
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
