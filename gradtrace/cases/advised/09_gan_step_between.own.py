# obeys: let each backward() call reach its own parameters only, loss.backward(inputs=list(own.parameters()))
# differs: this loss is that of the weights before the step
import torch, torch.nn as nn
torch.manual_seed(0)

Gn, D = nn.Linear(2, 4), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optG, optD = torch.optim.Adam(Gn.parameters()), torch.optim.Adam(D.parameters())
fake = Gn(torch.randn(16, 2))
fake_out, real_out = D(fake).mean(), D(torch.randn(16, 4)).mean()
d_loss, g_loss = 1 - real_out + fake_out, 1 - fake_out
optD.zero_grad()
d_loss.backward(inputs=list(D.parameters()), retain_graph=True)
optG.zero_grad()
g_loss.backward(inputs=list(Gn.parameters()))
optD.step()
optG.step()
