# obeys: use an out-of-place operation
import torch
import torch.nn.functional as F
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, width), nn.Tanh())

    def forward(self, x):
        out = self.body(x)
        out = out + x
        return out


torch.manual_seed(0)
model = nn.Sequential(Block(4), Block(4), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.randn(3, 16, 4):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
