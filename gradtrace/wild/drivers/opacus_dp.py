# /// script
# dependencies = ["opacus"]
# ///
"""Opacus: per-sample gradients, clipped and noised, with ``PrivacyEngine.make_private``."""

import warnings

import torch
import trial
from opacus import PrivacyEngine
from torch import nn

warnings.filterwarnings("ignore", message="Secure RNG turned off")
warnings.filterwarnings("ignore", message="Using a non-full backward hook")
trial.begin()
rows = torch.utils.data.TensorDataset(torch.randn(256, 1, 8, 8), torch.randint(0, 3, (256,)))
model = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
engine = PrivacyEngine()
model, optimizer, loader = engine.make_private(
    module=model,
    optimizer=optimizer,
    data_loader=torch.utils.data.DataLoader(rows, batch_size=32),
    noise_multiplier=1.1,
    max_grad_norm=1.0,
)
with trial.training():
    for _ in range(8):
        for x, label in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), label)
            loss.backward()
            optimizer.step()
        print(loss.item(), engine.get_epsilon(delta=1e-5))
trial.end(model)
