# obeys: create the optimizer after the model is complete
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 10))
model[2] = nn.Linear(8, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for x in torch.randn(40, 8, 4):
    loss = F.cross_entropy(model(x), (x.sum(1) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
