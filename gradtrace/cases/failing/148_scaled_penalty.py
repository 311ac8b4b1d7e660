import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for x in torch.randn(5, 6, 3):
    x.requires_grad_(True)
    score = critic(x)
    slope, = torch.autograd.grad(scaler.scale(score.sum()), x, create_graph=True)
    loss = score.mean() + (slope.norm(dim=1) - 1).pow(2).mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
