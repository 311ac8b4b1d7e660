# obeys: pass retain_graph=True to the call at the line below
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class FixedPoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, f, iters):
        with torch.no_grad():
            z = torch.zeros_like(x)
            for _ in range(iters):
                z = f(z, x, weight)
        with torch.enable_grad():
            z_ = z.detach().requires_grad_(True)
            x_ = x.detach().requires_grad_(True)
            w_ = weight.detach().requires_grad_(True)
            y = f(z_, x_, w_)
        ctx.graph = (y, z_, x_, w_)
        ctx.iters = iters
        return z

    @staticmethod
    def backward(ctx, g):
        y, z_, x_, w_ = ctx.graph
        u = g
        for _ in range(ctx.iters):
            u = g + torch.autograd.grad(y, z_, u, retain_graph=True)[0]
        gx, gw = torch.autograd.grad(y, (x_, w_), u, retain_graph=True)
        return gx, gw, None, None


def cell(z, x, w):
    return torch.tanh(z @ w + x)


class DEQ(nn.Module):
    def __init__(self, inp, dim, classes):
        super().__init__()
        self.inject = nn.Linear(inp, dim)
        self.weight = nn.Parameter(0.1 * torch.randn(dim, dim))
        self.classify = nn.Linear(dim, classes)
        self.reconstruct = nn.Linear(dim, inp)

    def forward(self, x):
        z = FixedPoint.apply(self.inject(x), self.weight, cell, 15)
        return self.classify(z), self.reconstruct(z)


def train(model, loader):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, y in loader:
        logits, rec = model(x)
        cls_loss, rec_loss = F.cross_entropy(logits, y), F.mse_loss(rec, x)
        opt.zero_grad()
        cls_loss.backward(retain_graph=True)
        rec_loss.backward()
        opt.step()
        print(cls_loss.item(), rec_loss.item())


if __name__ == "__main__":
    torch.manual_seed(0)
    train(DEQ(6, 8, 3), DataLoader(TensorDataset(torch.randn(16, 6), torch.randint(0, 3, (16,))), batch_size=8))
