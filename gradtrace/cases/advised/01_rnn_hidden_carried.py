# obeys: at the end of each iteration: h = h.detach()
import torch, torch.nn as nn
torch.manual_seed(0)

rnn, out = nn.GRU(1, 8), nn.Linear(8, 1)
opt = torch.optim.SGD([*rnn.parameters(), *out.parameters()], lr=0.01)
h = None
for step in range(3):
    x = torch.randn(5, 2, 1)
    y, h = rnn(x, h)
    loss = (out(y) - x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    h = h.detach()
    opt.step()
