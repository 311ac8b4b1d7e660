# obeys: add the losses and call backward() once
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class MappingNetwork(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, dim), nn.LeakyReLU(0.2), nn.Linear(dim, dim))

    def forward(self, z):
        return self.net(z)


class Generator(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.mapping = MappingNetwork(dim)
        self.synthesis = nn.Sequential(nn.Linear(dim, 32), nn.LeakyReLU(0.2), nn.Linear(32, 48))

    def forward(self, z):
        stylecode = self.mapping(z)
        return self.synthesis(stylecode), stylecode


class Model(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.generator = Generator(args.dim)
        self.encoder = nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, args.dim))
        self.discriminator = nn.Sequential(nn.Linear(48, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
        self.args = args

    def forward(self, real, mode):
        z = torch.randn(self.args.batch, self.args.dim)
        fake, stylecode = self.generator(z)
        if mode == "D":
            d_loss = F.softplus(self.discriminator(fake.detach())) + F.softplus(-self.discriminator(real))
            return d_loss
        adv_loss = F.softplus(-self.discriminator(fake))
        w_rec_loss = F.mse_loss(self.encoder(fake), stylecode, reduction="none")
        return adv_loss, w_rec_loss


def requires_grad(model, flag=True):
    for p in model.parameters():
        p.requires_grad = flag


def train(args, loader, model):
    g_optim = torch.optim.Adam(list(model.generator.parameters()) + list(model.encoder.parameters()), lr=args.lr)
    d_optim = torch.optim.Adam(model.discriminator.parameters(), lr=args.lr)
    for i, (real,) in enumerate(loader):
        requires_grad(model.discriminator, True)
        d_loss = model(real, "D").mean()
        d_optim.zero_grad()
        d_loss.backward()
        d_optim.step()

        requires_grad(model.discriminator, False)
        adv_loss, w_rec_loss = model(None, "G")
        adv_loss = adv_loss.mean()
        w_rec_loss = w_rec_loss.mean()
        g_optim.zero_grad()
        (adv_loss * args.lambda_adv_loss + w_rec_loss * args.lambda_w_rec_loss).backward()
        g_optim.step()
        print(i, d_loss.item(), adv_loss.item(), w_rec_loss.item())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--lambda_adv_loss", type=float, default=1.0)
    parser.add_argument("--lambda_w_rec_loss", type=float, default=1.0)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(48, 48))
    train(args, DataLoader(data, batch_size=args.batch), Model(args))
