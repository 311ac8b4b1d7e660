# obeys: states = {key: tensor.detach() for key, tensor in states.items()}
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
cell, head = nn.GRUCell(3, 6), nn.Linear(6, 1)
optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
states = {}
for step in range(6):
    environment = step % 2
    observation = torch.randn(1, 3)
    state = cell(observation, states.get(environment))
    loss = (head(state) - observation.sum()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    states[environment] = state
    states = {key: tensor.detach() for key, tensor in states.items()}
