# obeys: recompute this loss after the step
import torch, torch.nn as nn
torch.manual_seed(0)

net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)); x = torch.randn(16, 4)
opt = torch.optim.Adam(net.parameters(), lr=0.5, fused=True)
loss = net(x).pow(2).mean()
loss.backward(retain_graph=True)
opt.step()
opt.zero_grad()
loss = net(x).pow(2).mean()
loss.backward()
right, = torch.autograd.grad(net(x).pow(2).mean(), net[0].weight)
off = ((net[0].weight.grad - right).norm() / right.norm()).item()
assert off < 1e-3, f'SILENT wrong gradient, relative error {off:.2f}'
