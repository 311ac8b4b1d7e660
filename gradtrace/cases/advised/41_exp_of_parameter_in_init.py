# obeys: recompute gp.beta in each iteration
import torch
from torch import nn


class ARDKernel(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.length_scales = nn.Parameter(torch.zeros(dim))
        self.signal = nn.Parameter(torch.zeros(1))

    def forward(self, a, b):
        s = self.length_scales.exp()
        return self.signal.exp() * torch.exp(-0.5 * torch.cdist(a / s, b / s).pow(2))


class SimpleGP(nn.Module):
    def __init__(self, kernel, noise=1.0):
        super().__init__()
        self.kernel = kernel
        self.log_beta = nn.Parameter(torch.ones(1) * noise)

    def negative_log_likelihood(self, x, y):
        self.beta = self.log_beta.exp()
        sigma = self.kernel(x, x) + self.beta.pow(-1) * torch.eye(x.size(0))
        l = torch.linalg.cholesky(sigma)
        gamma = torch.linalg.solve_triangular(l, y, upper=False)
        return 0.5 * (gamma ** 2).sum() + l.diag().log().sum()


def train(gp, x, y, iterations=5):
    optimizer = torch.optim.Adam(gp.parameters(), lr=0.1)
    for i in range(iterations):
        optimizer.zero_grad()
        loss = gp.negative_log_likelihood(x, y)
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(0)
xtr = torch.rand(16, 2)
ytr = torch.sin(xtr.sum(1, keepdim=True) * 6)
print(train(SimpleGP(ARDKernel(2)), xtr, ytr))
