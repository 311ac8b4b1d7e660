# obeys: detach each tensor that is put into bank
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
bank = deque(maxlen=4)
for batch in torch.randn(5, 8, 6):
    z = F.normalize(encoder(batch), dim=1)
    loss = (z @ z.t()).logsumexp(1).mean()
    for old in bank:
        loss = loss + 0.1 * (z @ old.t()).logsumexp(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    bank.append(z.detach())
