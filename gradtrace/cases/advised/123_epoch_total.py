# obeys: call backward() on the loss of this iteration alone
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loader = [(x, x.sum(1, keepdim=True)) for x in torch.randn(3, 16, 4)]
for epoch in range(2):
    running_loss = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        running_loss += loss.item()
        optimizer.step()
    print(epoch, float(running_loss))
