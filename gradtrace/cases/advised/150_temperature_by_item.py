# obeys: use PyTorch operations in place of .item(), torch.tensor and numpy
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.t = nn.Linear(4, 4), nn.Linear(4, 1), nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return self.b(torch.softmax(self.a(x) / self.t, -1))


net = Mix()
opt = torch.optim.Adam(net.parameters(), 1e-2)
for x in torch.randn(30, 5, 4):
    loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
