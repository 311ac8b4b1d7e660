# obeys: recompute this loss after the step
import torch, torch.nn as nn
torch.manual_seed(0)

Gn, D = nn.Linear(2, 4), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optG, optD = torch.optim.Adam(Gn.parameters()), torch.optim.Adam(D.parameters())
fake = Gn(torch.randn(16, 2))
fake_out, real_out = D(fake).mean(), D(torch.randn(16, 4)).mean()
d_loss, g_loss = 1 - real_out + fake_out, 1 - fake_out
optD.zero_grad()
d_loss.backward(retain_graph=True)
optD.step()
optG.zero_grad()
g_loss = 1 - D(fake).mean()
g_loss.backward()
optG.step()
