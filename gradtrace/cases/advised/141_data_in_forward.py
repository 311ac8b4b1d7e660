# obeys: remove what detaches these parameters from the loss
import torch
import torch.nn.functional as F
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.body(x) * self.scale


torch.manual_seed(0)
model = Scaled()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for x in torch.randn(40, 8, 4):
    loss = (model(x) - 2 * x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
