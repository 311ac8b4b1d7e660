import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for x in torch.randn(5, 6, 3):
    x.requires_grad_(True)
    score = critic(x)
    scaled = torch.autograd.grad(scaler.scale(score.sum()), [x, *critic.parameters()], create_graph=True)
    slope = scaled[0].reshape(6, -1) * (1.0 / scaler.get_scale())
    sizes = torch.cat([one.flatten() for one in scaled[1:]]) / scaler.get_scale()
    loss = score.mean() + (slope.norm(dim=1) - 1).pow(2).mean() + 0.01 * sizes.norm()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
