# obeys: let each loss train its own network only: loss.backward(inputs=list(own.parameters())), the first with retain_graph=True, too
import torch
from torch import nn

from h45_td3_loss import TD3Loss


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 32), nn.ReLU(), nn.Linear(32, o))


torch.manual_seed(0)
actor, qvalue = mlp(4, 2), mlp(6, 1)
loss_module = TD3Loss(actor, qvalue)
optim_actor = torch.optim.Adam(actor.parameters(), lr=1e-3)
optim_q = torch.optim.Adam(qvalue.parameters(), lr=1e-3)
for i in range(3):
    td = {"observation": torch.randn(8, 4), "action": torch.randn(8, 2), "reward": torch.randn(8, 1)}
    loss = loss_module(td)
    optim_actor.zero_grad()
    loss["loss_actor"].backward(inputs=list(actor.parameters()), retain_graph=True)
    optim_q.zero_grad()
    loss["loss_qvalue"].backward(inputs=list(qvalue.parameters()))
    optim_actor.step()
    optim_q.step()
