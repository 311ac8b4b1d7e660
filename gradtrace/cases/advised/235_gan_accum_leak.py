# obeys: freeze self.model.discriminator
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Tokenizer(nn.Module):
    def __init__(self, dim=20, z=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim, 16), nn.ReLU(), nn.Linear(16, z))
        self.decoder = nn.Sequential(nn.Linear(z, 16), nn.ReLU(), nn.Linear(16, dim))
        self.discriminator = nn.Sequential(nn.Linear(dim, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def forward(self, x, optimizer_idx):
        rec = self.decoder(self.encoder(x))
        if optimizer_idx == 0:
            recon_loss = F.l1_loss(rec, x)
            g_loss = -self.discriminator(rec).mean()
            return recon_loss + 0.5 * g_loss
        real, fake = self.discriminator(x), self.discriminator(rec.detach())
        return 0.5 * (F.relu(1 - real).mean() + F.relu(1 + fake).mean())


class Trainer:
    def __init__(self, model, accumulate=2):
        self.model, self.accumulate = model, accumulate
        ae = list(model.encoder.parameters()) + list(model.decoder.parameters())
        self.opt_ae = torch.optim.Adam(ae, lr=1e-3, betas=(0.5, 0.9))
        self.opt_disc = torch.optim.Adam(model.discriminator.parameters(), lr=1e-3, betas=(0.5, 0.9))

    def training_step(self, x, cur):
        self.model.discriminator.requires_grad_(False)
        loss_ae = self.model(x, optimizer_idx=0) / self.accumulate
        loss_ae.backward()
        if (cur + 1) % self.accumulate == 0:
            self.opt_ae.step()
            self.opt_ae.zero_grad()
        self.model.discriminator.requires_grad_(True)
        loss_disc = self.model(x, optimizer_idx=1) / self.accumulate
        loss_disc.backward()
        if (cur + 1) % self.accumulate == 0:
            self.opt_disc.step()
            self.opt_disc.zero_grad()
        return loss_ae.item(), loss_disc.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    trainer = Trainer(Tokenizer())
    for i, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(48, 20)), batch_size=8)):
        print(i, trainer.training_step(x, i))
