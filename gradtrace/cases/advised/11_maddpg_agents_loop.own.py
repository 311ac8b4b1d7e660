# obeys: let each backward() call reach its own parameters only, loss.backward(inputs=list(own.parameters()))
# differs: this loss is that of the weights before the step
import torch, torch.nn as nn
torch.manual_seed(0)

actors = [nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)) for _ in range(2)]
critics = [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)) for _ in range(2)]
opts = [torch.optim.Adam(m.parameters()) for m in actors]
obs = torch.randn(16, 3)
joint = torch.cat([m(obs) for m in actors], 1)        # shared by both agents
for i in range(2):
    actor_loss = -critics[i](joint).mean()
    opts[i].zero_grad()
    actor_loss.backward(inputs=list(actors[i].parameters()), retain_graph=True)
for opt in opts:
    opt.step()
