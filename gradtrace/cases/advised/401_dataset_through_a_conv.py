# obeys: detach training_seq once, directly after the computation
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Sequences(Dataset):
    def __init__(self, tensor):
        self.tensor = tensor

    def __len__(self):
        return len(self.tensor)

    def __getitem__(self, index):
        return self.tensor[index]


class Diffusion(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.model = nn.Sequential(nn.Conv1d(channels, 8, 3, padding=1), nn.SiLU(), nn.Conv1d(8, channels, 3, padding=1))

    def forward(self, x):
        noise = torch.randn_like(x)
        return (self.model(x + noise) - noise).pow(2).mean()


class Trainer:
    def __init__(self, diffusion, dataset, steps):
        self.diffusion, self.steps = diffusion, steps
        self.loader = DataLoader(dataset, batch_size=4, shuffle=True)
        self.opt = torch.optim.Adam(diffusion.parameters(), lr=1e-3)

    def train(self):
        step = 0
        while step < self.steps:
            for data in self.loader:
                loss = self.diffusion(data)
                loss.backward()
                self.opt.step()
                self.opt.zero_grad()
                step += 1


torch.manual_seed(0)
raw = torch.rand(8, 5, 16)
to_channels = nn.Conv1d(5, 4, 1)
training_seq = to_channels(raw).detach()
Trainer(Diffusion(4), Sequences(training_seq), steps=4).train()
