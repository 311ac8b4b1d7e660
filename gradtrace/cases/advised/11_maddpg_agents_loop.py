# obeys: recompute this loss after the step
import torch, torch.nn as nn
torch.manual_seed(0)

actors = [nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)) for _ in range(2)]
critics = [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)) for _ in range(2)]
opts = [torch.optim.Adam(m.parameters()) for m in actors]
obs = torch.randn(16, 3)
for i in range(2):
    joint = torch.cat([m(obs) for m in actors], 1)
    actor_loss = -critics[i](joint).mean()
    opts[i].zero_grad()
    actor_loss.backward(retain_graph=True)
    opts[i].step()
