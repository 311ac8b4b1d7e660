"""A whole training program: random data, dropout, optimizers, checkpoints, files."""

import copy
import random
import sys

import end_state  # noqa: F401
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

inputs = torch.from_numpy(np.random.randn(32, 6).astype("float32"))
targets = (inputs.sum(1, keepdim=True) + torch.randn(32, 1)).tanh()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.cell = nn.GRUCell(8, 8)
        self.drop = nn.Dropout(0.3)
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(8, 1))

    def forward(self, x, reentrant):
        h = self.norm(self.embed(x))
        state = torch.zeros_like(h)
        for _ in range(3):
            state = self.cell(h, state)
        return self.head(checkpoint(self.drop, state, use_reentrant=reentrant))


net = Net()
average = torch.optim.swa_utils.AveragedModel(net)
optimizers = [torch.optim.AdamW(net.parameters(), lr=0.01), torch.optim.SGD(net.parameters(), 0.1)]
schedule = torch.optim.lr_scheduler.StepLR(optimizers[0], 2, 0.5)
calls = []
net.embed.register_forward_hook(lambda module, inputs, output: calls.append(output.shape))
net.embed.weight.register_hook(lambda gradient: gradient * 0.9)
net.head.register_full_backward_hook(lambda module, ins, outs: calls.append(outs[0].norm().item()))
for epoch in range(3):
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=8, shuffle=True)
    for number, (x, y) in enumerate(loader):
        optimizer = optimizers[epoch % 2]
        loss = F.mse_loss(net(x, reentrant=bool(number % 2)), y)
        weights = list(net.cell.parameters())
        if number == 0:  # a gradient penalty, and two losses over one graph
            first = torch.autograd.grad(loss, weights, create_graph=True)
            loss = loss + 0.1 * sum(g.pow(2).sum() for g in first)
            loss.backward(retain_graph=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=bool(epoch))
        print(
            epoch, number, loss.item().hex(), norm.item().hex(), random.random(), np.random.rand()
        )
    schedule.step()
    average.update_parameters(net)


def closure():
    optimizer.zero_grad()
    loss = F.mse_loss(net(inputs, False), targets)
    loss.backward()
    return loss


optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)
print(optimizer.step(closure).item().hex())
twin = copy.deepcopy(net)
with torch.no_grad():
    twin.embed.weight.mul_(0.5)
    twin.eval()(inputs, False).sum()
torch.save({"net": net.state_dict(), "optimizer": optimizers[0].state_dict()}, "net.pt")
net.load_state_dict(torch.load("net.pt")["net"])
torch.save(average.state_dict(), "average.pt")
print(len(calls), calls[-1])
sys.exit(7)
