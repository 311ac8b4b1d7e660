import torch
from torch import nn

class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = (x > 0).to(x.dtype)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, level):
        noise = 1 + level * torch.randn_like(x)
        ctx.save_for_backward(noise, level)
        return x * noise

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0], None


class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        y, = ctx.saved_tensors
        return grad * (1 - y * y)


class Weighted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return weight * x * x

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad * 2 * weight * x, None


torch.manual_seed(0)
first, second = nn.Linear(3, 8), nn.Linear(8, 1)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
for x in torch.randn(5, 6, 3):
    x.requires_grad_(True)
    hidden = Tanh.apply(first(x))
    hidden = Weighted.apply(hidden, hidden.detach().exp())
    score = second(Noisy.apply(Relu.apply(hidden), torch.tensor(0.1)))
    slope, = torch.autograd.grad(score.sum(), x, create_graph=True)
    loss = score.mean() + (slope.norm(dim=1) - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
