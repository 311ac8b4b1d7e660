# obeys: at the end of each iteration: detach every tensor in history
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = deque([torch.zeros(1, 2), torch.zeros(1, 2)], maxlen=2)
for target in torch.randn(5, 1, 2):
    prediction = model(torch.cat(list(history), 1))
    loss = F.mse_loss(prediction, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(prediction)
    history = deque([one.detach() for one in history], maxlen=2)
