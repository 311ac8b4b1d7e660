# obeys: run the forward pass outside torch.no_grad()
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class PINN(nn.Module):
    def __init__(self, omega=2.0):
        super().__init__()
        self.omega = omega
        self.model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, t):
        t = t.requires_grad_(True)
        u = self.model(t)
        u_t = torch.autograd.grad(u, t, grad_outputs=torch.ones_like(u), create_graph=True)[0]
        u_tt = torch.autograd.grad(u_t, t, grad_outputs=torch.ones_like(u_t), create_graph=True)[0]
        residual = u_tt + self.omega ** 2 * u
        return torch.cat([residual, u], dim=1)


class PhysicsLoss(nn.Module):
    def forward(self, out, target):
        residual, u = out[:, :1], out[:, 1:]
        return residual.pow(2).mean() + 10 * (u - target).pow(2).mean()


class DampedTrainer:
    """gradient step, accepted only where the loss went down"""

    def __init__(self, model, loss_fn, lr):
        self.model, self.loss_fn, self.lr = model, loss_fn, lr
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    def evaluate(self, x, y):
        return self.loss_fn(self.model(x), y).item()

    def training_step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        backup = [p.detach().clone() for p in self.model.parameters()]
        self.optimizer.step()
        new_loss = self.evaluate(x, y)
        if new_loss > loss.item():
            with torch.no_grad():
                for p, b in zip(self.model.parameters(), backup):
                    p.copy_(b)
            self.optimizer.param_groups[0]["lr"] *= 0.5
        return loss.item(), new_loss

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            for x, y in loader:
                losses = self.training_step(x, y)
            print(epoch, losses)


def main():
    torch.manual_seed(0)
    t = torch.linspace(0, math.pi, 64).unsqueeze(1)
    loader = DataLoader(TensorDataset(t, torch.cos(2 * t)), batch_size=32)
    DampedTrainer(PINN(), PhysicsLoss(), lr=1e-3).fit(loader, epochs=2)


if __name__ == "__main__":
    main()
