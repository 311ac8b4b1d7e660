import torch, torch.nn as nn
torch.manual_seed(0)

Gn, D = nn.Linear(2, 4), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optG, optD = torch.optim.Adam(Gn.parameters()), torch.optim.Adam(D.parameters())
fake = Gn(torch.randn(16, 2))
optD.zero_grad()
d_loss = 1 - D(torch.randn(16, 4)).mean() + D(fake.detach()).mean()
d_loss.backward()
optD.step()
optG.zero_grad()
g_loss = 1 - D(fake).mean()  # with the new D
g_loss.backward()
optG.step()
