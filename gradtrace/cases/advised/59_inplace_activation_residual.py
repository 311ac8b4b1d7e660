# obeys: set inplace=False in the layer that changes
import torch
import torch.nn.functional as F
from torch import nn

from h59_blocks import ActFirstResBlock


class Discriminator(nn.Module):
    def __init__(self, nf=4):
        super().__init__()
        self.cnn_f = nn.Sequential(nn.Conv2d(3, nf, 3, padding=1), ActFirstResBlock(nf, 2 * nf))
        self.cnn_c = nn.Conv2d(2 * nf, 2, 1)

    def forward(self, x):
        return self.cnn_c(self.cnn_f(x))


torch.manual_seed(0)
dis = Discriminator()
opt = torch.optim.RMSprop(dis.parameters(), lr=1e-4)
for it in range(2):
    real = torch.randn(2, 3, 8, 8)
    resp = dis(real)
    loss = F.relu(1.0 - resp).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
