# obeys: use an out-of-place operation
import torch
import torch.nn as nn


class GatedUnit(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.value, self.gate = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        gates = torch.exp(self.gate(x))
        gates = gates / gates.sum(-1, keepdim=True)
        return gates * self.value(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([GatedUnit(6) for _ in range(2)])
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters())
for _ in range(2):
    optimizer.zero_grad()
    loss = net(torch.randn(4, 6)).pow(2).mean()
    loss.backward()
    optimizer.step()
