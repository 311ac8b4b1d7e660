# obeys: in each iteration
import functools

import torch
from torch import nn

torch.manual_seed(0)
points, targets = torch.rand(8, 1), torch.randn(8, 1)
log_scale, noise = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.ones(1))


@functools.cache
def kernel():
    return torch.exp(-torch.cdist(points, points) / log_scale.exp())


def negative_log_likelihood():
    kernel.cache_clear()
    covariance = kernel() + (0.1 + noise**2) * torch.eye(8)
    factor = torch.linalg.cholesky(covariance)
    whitened = torch.linalg.solve_triangular(factor, targets, upper=False)
    return 0.5 * whitened.pow(2).sum() + factor.diagonal().log().sum()


optimizer = torch.optim.Adam([log_scale, noise], lr=0.05)
for step in range(3):
    optimizer.zero_grad()
    loss = negative_log_likelihood()
    loss.backward()
    optimizer.step()
