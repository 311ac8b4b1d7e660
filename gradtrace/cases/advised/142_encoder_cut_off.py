# obeys: remove what detaches these parameters from the loss
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 2)
optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-2)
for x in torch.randn(40, 8, 4):
    z = encoder(x)
    loss = F.cross_entropy(head(z), (x.sum(1) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
