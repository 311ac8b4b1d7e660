# /// script
# dependencies = ["entmax"]
# ///
"""entmax: sparse attention, whose derivative is a custom function's."""

import torch
import trial
from entmax import Entmax15Loss, entmax15, sparsemax
from torch import nn


class Attention(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, 3)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / x.shape[-1] ** 0.5
        weights = entmax15(scores, dim=-1) + sparsemax(scores, dim=-1)
        return self.out((weights @ self.value(x)).mean(1))


trial.begin()
x = torch.randn(64, 5, 8)
label = x.mean(1)[:, :3].argmax(1)
model, loss_of = Attention(), Entmax15Loss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
with trial.training():
    for step in range(80):
        loss = loss_of(model(x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 16 == 0:
            print(loss.item())
trial.end(model)
