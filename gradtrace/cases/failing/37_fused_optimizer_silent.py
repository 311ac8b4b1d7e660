import torch, torch.nn as nn
torch.manual_seed(0)

net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)); x = torch.randn(16, 4)
opt = torch.optim.Adam(net.parameters(), lr=0.5, fused=True)
loss = net(x).pow(2).mean()
loss.backward(retain_graph=True)
g1 = net[0].weight.grad.clone()
opt.step()
opt.zero_grad()
loss.backward()
rel = ((net[0].weight.grad - g1).norm() / g1.norm()).item()
assert rel < 1e-3, f'SILENT wrong gradient of the same loss, relative error {rel:.2f}'
