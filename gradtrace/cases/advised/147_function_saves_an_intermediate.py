# obeys: save the inputs, and recompute the value from them in backward()
import torch
from torch import nn

class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        gate = torch.sigmoid(x)
        return grad * (gate + x * gate * (1 - gate))


torch.manual_seed(0)
first, second = nn.Linear(3, 8), nn.Linear(8, 1)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
for x in torch.randn(5, 6, 3):
    x.requires_grad_(True)
    score = second(Swish.apply(first(x)))
    slope, = torch.autograd.grad(score.sum(), x, create_graph=True)
    loss = score.mean() + (slope.norm(dim=1) - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
