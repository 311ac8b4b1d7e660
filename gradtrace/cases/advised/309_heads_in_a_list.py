# obeys: make model.heads an nn.ModuleList
import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiHead(nn.Module):
    def __init__(self, tasks):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(16, 2) for _ in range(tasks)])

    def forward(self, x):
        h = self.trunk(x)
        return [head(h) for head in self.heads]


def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        x, y = torch.randn(8, 8), torch.randint(0, 2, (8,))
        loss = sum(F.cross_entropy(out, y) for out in model(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(0)
print(train(MultiHead(3), 6))
