# obeys: model.centre = model.centre.detach()
import torch
import torch.nn.functional as F
from torch import nn

class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 3)
        self.register_buffer("centre", torch.zeros(3))

    def forward(self, x):
        z = self.embed(x)
        self.centre = 0.9 * self.centre + 0.1 * z.mean(0)
        return z - self.centre


torch.manual_seed(0)
model = Centred()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.randn(4, 16, 4):
    loss = model(x).pow(2).mul(torch.randn(3)).mean()
    optimizer.zero_grad()
    loss.backward()
    model.centre = model.centre.detach()
    optimizer.step()
