import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 12), nn.Linear(12, 3)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


def train_epoch(model, optimizer, batches):
    total = 0.0
    for x, y in batches:
        loss = F.cross_entropy(model(x).float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
batches = [(torch.randn(16, 6), torch.randint(0, 3, (16,))) for _ in range(4)]
with torch.autocast("cpu", dtype=torch.bfloat16):
    print(train_epoch(model, optimizer, batches))
