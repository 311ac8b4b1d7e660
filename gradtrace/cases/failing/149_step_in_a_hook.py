import torch
from torch import nn

torch.manual_seed(0)
weight, start = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.ones(1, 4))
of_weight = torch.optim.SGD([weight], lr=0.5, fused=True)
of_start = torch.optim.SGD([start], lr=0.1)


def step_at_once(parameter):
    of_weight.step()
    of_weight.zero_grad()


weight.register_post_accumulate_grad_hook(step_at_once)
for x in torch.randn(3, 1, 4):
    hidden = torch.tanh((start + x) @ weight.detach())
    loss = (hidden @ weight).square().sum()
    of_start.zero_grad()
    loss.backward()
    of_start.step()
