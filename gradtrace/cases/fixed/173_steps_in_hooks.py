import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 1))
optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1, fused=True) for parameter in model.parameters()}


def step_at_once(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(step_at_once)
for x in torch.randn(12, 6, 4):
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
