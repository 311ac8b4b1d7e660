# obeys: compute the gradient with torch.autograd.grad(..., create_graph=True)
import torch, torch.nn as nn
torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
loss = net(torch.randn(8, 3)).pow(2).mean()
g = torch.autograd.grad(loss, net.parameters(), create_graph=True)
penalty = sum(x.pow(2).sum() for x in g)
penalty.backward()
