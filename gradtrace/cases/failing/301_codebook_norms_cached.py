import torch
import torch.nn as nn


class Quantizer(nn.Module):
    def __init__(self, codes, dim):
        super().__init__()
        self.codebook = nn.Parameter(torch.randn(codes, dim))
        self._norms = None

    def norms(self):
        if self._norms is None:
            self._norms = self.codebook.pow(2).sum(1)
        return self._norms

    def forward(self, z):
        return (z.pow(2).sum(1, keepdim=True) - 2 * z @ self.codebook.T + self.norms()).min(1).values


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 4)
        self.quantizer = Quantizer(6, 4)

    def training_step(self, batch):
        return self.quantizer(torch.tanh(self.encoder(batch))).mean()


def fit(model, batches, accumulate=2):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for i, batch in enumerate(batches):
        (model.training_step(batch) / accumulate).backward()
        if (i + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()


torch.manual_seed(0)
fit(Model(), torch.randn(6, 5, 8))
