# obeys: y_hat = y_hat.detach(); latent = latent.detach()
from types import SimpleNamespace

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class FaceDataset(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(0)
        self.x = torch.randn(n, 24, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.x[i]


class pSp(nn.Module):
    def __init__(self, opts):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(48, 32), nn.PReLU(), nn.Linear(32, opts.n_styles))
        self.decoder = nn.Sequential(nn.Linear(opts.n_styles, 32), nn.LeakyReLU(0.2), nn.Linear(32, 24))
        self.register_buffer("latent_avg", torch.zeros(opts.n_styles))

    def forward(self, x, latent=None, return_latents=False):
        codes = self.encoder(x)
        codes = codes + (latent if latent is not None else self.latent_avg)
        images = self.decoder(codes)
        return (images, codes) if return_latents else images


class Coach:
    def __init__(self, opts):
        self.opts = opts
        self.net = pSp(opts)
        for p in self.net.decoder.parameters():
            p.requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.net.encoder.parameters(), lr=opts.learning_rate)
        self.avg_image = torch.zeros(24)

    def calc_loss(self, x, y_hat, latent):
        loss = F.mse_loss(y_hat, x) * self.opts.l2_lambda
        loss = loss + latent.norm(dim=-1).mean() * self.opts.w_norm_lambda
        return loss

    def perform_train_iteration_on_batch(self, x, y):
        y_hat, latent = None, None
        losses = []
        for it in range(self.opts.n_iters_per_batch):
            if it == 0:
                x_input = torch.cat([x, self.avg_image.expand_as(x)], dim=1)
            else:
                y_hat, latent = y_hat.detach(), latent.detach()
                x_input = torch.cat([x, y_hat], dim=1)
            y_hat, latent = self.net(x_input, latent=latent, return_latents=True)
            loss = self.calc_loss(y, y_hat, latent)
            loss.backward()
            losses.append(loss.item())
        return losses

    def train(self):
        loader = DataLoader(FaceDataset(32), batch_size=8)
        for step, (x, y) in enumerate(loader):
            self.optimizer.zero_grad()
            losses = self.perform_train_iteration_on_batch(x, y)
            self.optimizer.step()
            print(step, losses)


if __name__ == "__main__":
    torch.manual_seed(0)
    Coach(SimpleNamespace(n_styles=8, learning_rate=1e-3, l2_lambda=1.0, w_norm_lambda=0.01, n_iters_per_batch=3)).train()
