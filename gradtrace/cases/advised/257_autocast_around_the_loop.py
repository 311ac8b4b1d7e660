# obeys: enter torch.autocast in each iteration
# For gradtrace: autocast around the loop; stale weights, no error.  python -m gradtrace --strict autocast_train.py
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), 0.5)
x, y = torch.randn(16, 4), torch.randn(16, 1)
for _ in range(4):
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = (net(x).float() - y).square().mean()
        loss.backward()
        opt.step()
        print(round(loss.item(), 4))
