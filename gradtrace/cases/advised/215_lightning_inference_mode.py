# obeys: run this code outside torch.inference_mode()
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class LitForceField(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(6, hidden), nn.SiLU(), nn.Linear(hidden, 1))

    def forward(self, pos):
        return self.energy(pos)

    def loss(self, batch):
        pos, e, f = batch
        with torch.set_grad_enabled(True):
            pos.requires_grad_(True)
            e_hat = self(pos)
            f_hat = -torch.autograd.grad(e_hat.sum(), pos, create_graph=True)[0]
        return F.mse_loss(e_hat, e) + F.mse_loss(f_hat, f)

    def training_step(self, batch):
        return self.loss(batch)

    def validation_step(self, batch):
        return self.loss(batch).detach()


class MiniTrainer:
    def __init__(self, max_epochs):
        self.max_epochs = max_epochs

    def fit(self, model, train_loader, val_loader):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for epoch in range(self.max_epochs):
            model.train()
            for batch in train_loader:
                optimizer.zero_grad()
                loss = model.training_step(batch)
                loss.backward()
                optimizer.step()
            self.validate(model, val_loader, epoch)

    def validate(self, model, loader, epoch):
        model.eval()
        losses = [model.validation_step(batch) for batch in loader]
        print(f"epoch {epoch} val_loss {torch.stack(losses).mean():.4f}")


def make(n):
    pos = torch.randn(n, 6)
    return TensorDataset(pos, pos.pow(2).sum(1, keepdim=True), -2 * pos)


if __name__ == "__main__":
    torch.manual_seed(0)
    MiniTrainer(2).fit(LitForceField(), DataLoader(make(32), batch_size=8), DataLoader(make(16), batch_size=8))
