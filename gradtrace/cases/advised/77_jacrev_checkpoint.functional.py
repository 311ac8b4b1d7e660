# obeys: or use torch.autograd.functional
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class FlowField(nn.Module):
    def __init__(self, dim=3):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim + 1, 16), nn.SiLU(), nn.Linear(16, dim))

    def forward(self, t, x):
        return self.net(torch.cat([x, t.expand(1)]))


class Sampler(nn.Module):
    def __init__(self, field, steps=4, use_checkpoint=True):
        super().__init__()
        self.field, self.steps, self.use_checkpoint = field, steps, use_checkpoint

    def forward(self, x):
        for t in torch.linspace(0, 1, self.steps):
            if self.use_checkpoint:
                dx = checkpoint(self.field, t, x, use_reentrant=False)
            else:
                dx = self.field(t, x)
            x = x + dx / self.steps
        return x


torch.manual_seed(0)
sampler = Sampler(FlowField())
x0 = torch.randn(3)
jacobian = torch.autograd.functional.jacobian(sampler, x0, create_graph=True)
print(jacobian.shape)
loss = (jacobian - torch.eye(3)).pow(2).sum()
loss.backward()
