# obeys: create_graph=True
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
weight = torch.randn(4, 1, requires_grad=True)
x, y = torch.randn(16, 4), torch.randn(16, 1)
inner, = torch.autograd.grad(F.mse_loss(x @ weight, y), weight, create_graph=True)
curvature = inner.pow(2).sum()
curvature.backward()
