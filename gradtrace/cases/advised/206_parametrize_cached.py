# obeys: in each iteration, before it is used
import torch
import torch.nn as nn
import torch.nn.utils.parametrize as parametrize
from torch.utils.data import DataLoader, TensorDataset


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


class Exponential(nn.Module):
    def forward(self, w):
        return torch.linalg.matrix_exp(0.1 * w)


class SiameseNet(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.embed = nn.Linear(dim, dim)
        self.flow = nn.Linear(dim, dim, bias=False)
        parametrize.register_parametrization(self.flow, "weight", Symmetric())
        parametrize.register_parametrization(self.flow, "weight", Exponential())

    def branch(self, x, iters):
        h = self.embed(x)
        for _ in range(iters):
            h = torch.tanh(self.flow(h))
        return h

    def forward(self, a, b, solver_num_iters=3):
        return self.branch(a, solver_num_iters) - self.branch(b, solver_num_iters)


class LitModel:
    def __init__(self):
        self.model = SiameseNet()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def training_step(self, batch):
        img0, img1, target = batch
        pred = self.model(img0, img1)
        return ((pred.norm(dim=-1) - target) ** 2).mean()


def fit(lit, loader, epochs):
    for epoch in range(epochs):
        for batch in loader:
            with parametrize.cached():
                loss = lit.training_step(batch)
            lit.optimizer.zero_grad()
            loss.backward()
            lit.optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    ds = TensorDataset(torch.randn(24, 8), torch.randn(24, 8), torch.rand(24))
    fit(LitModel(), DataLoader(ds, batch_size=8), epochs=2)
