# obeys: create the optimizer after the model is complete
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
class Grow(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)
    def widen(self): self.a, self.b = nn.Linear(3, 8), nn.Linear(8, 2)
    def forward(self, x): return self.b(torch.relu(self.a(x)))
net = Grow()
net.widen()
opt = torch.optim.SGD(net.parameters(), .1)
for x in torch.randn(15, 5, 3):
    loss = F.cross_entropy(net(x), (x[:, 0] > 0).long())
    opt.zero_grad(); loss.backward(); opt.step()
