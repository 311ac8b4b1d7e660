# obeys: detach target once, directly after the computation
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
vgg = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
img = nn.Parameter(torch.rand(1, 3, 8, 8))
style = torch.rand(1, 3, 8, 8)
opt = torch.optim.Adam([img], 0.05)


def gram(x):
    f = vgg(x).flatten(2)[0]
    return f @ f.t()


target = gram(style).detach()
for _ in range(3):
    opt.zero_grad()
    F.mse_loss(gram(img), target).backward()
    opt.step()
