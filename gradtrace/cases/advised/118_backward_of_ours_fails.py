# obeys: correct that method
import torch
import torch.nn.functional as F
from torch import nn

class Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return grad_output @ weight.t(), x.t() @ grad_output


torch.manual_seed(0)
weight = nn.Parameter(torch.randn(4, 3))
optimizer = torch.optim.SGD([weight], lr=0.1)
inputs = nn.Linear(4, 4)
for x in torch.randn(2, 8, 4):
    loss = Project.apply(inputs(x), weight).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
