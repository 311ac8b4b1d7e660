import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 2); opt = torch.optim.SGD(net.parameters(), .1)
import numpy as np
def smooth(t):
    return torch.from_numpy(np.convolve(t.detach().numpy().ravel(), np.ones(3) / 3, "same").astype("float32")).view_as(t)
for x in torch.randn(2, 4, 3):
    loss = smooth(net(x)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
