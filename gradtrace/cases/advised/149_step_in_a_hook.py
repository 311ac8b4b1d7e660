# obeys: step after the backward pass has ended
import torch
from torch import nn

torch.manual_seed(0)
weight, start = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.ones(1, 4))
of_weight = torch.optim.SGD([weight], lr=0.5, fused=True)
of_start = torch.optim.SGD([start], lr=0.1)
for x in torch.randn(3, 1, 4):
    hidden = torch.tanh((start + x) @ weight.detach())
    loss = (hidden @ weight).square().sum()
    of_start.zero_grad()
    loss.backward()
    of_weight.step()
    of_weight.zero_grad()
    of_start.step()
