# obeys: before the forward pass, call requires_grad_(True) on model.2.weight, model.2.bias
import torch
import torch.nn.functional as F
from torch import nn

def pretrained():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 10))


model = pretrained()
model[2] = nn.Linear(8, 2)
for parameter in model.parameters():
    parameter.requires_grad = False
optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
model[2].requires_grad_(True)
for x in torch.randn(3, 16, 4):
    loss = F.cross_entropy(model(x), (x.sum(1) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
