# obeys: under torch.enable_grad()
import torch
import torch.nn.functional as F
from torch import nn

def evaluate(model, data):
    torch.set_grad_enabled(False)
    return sum(model(x).pow(2).mean().item() for x in data) / len(data)


def train(model, optimizer, data):
    for x in data:
        with torch.enable_grad():
            loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(3, 8, 4)
for epoch in range(2):
    train(model, optimizer, data)
    print(evaluate(model, data))
