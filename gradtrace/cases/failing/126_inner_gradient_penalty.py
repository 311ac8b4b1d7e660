import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
w = nn.Parameter(torch.randn(3, 1)); alpha = nn.Parameter(torch.tensor(0.1))
meta = torch.optim.Adam([alpha], 1e-2)
for t in range(3):
    x, y = torch.randn(5, 3), torch.randn(5, 1)
    g = torch.autograd.grad(((x @ w - y) ** 2).mean(), w)[0]
    penalty = (g ** 2).sum()
    meta.zero_grad()
    (alpha.detach() * penalty).backward()
    meta.step()
