# /// script
# dependencies = ["accelerate"]
# ///
"""Accelerate: a loop of one's own with ``prepare``, ``accumulate`` and ``backward``."""

import torch
import trial
from accelerate import Accelerator
from torch import nn

trial.begin()
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
x = torch.randn(512, 20)
rows = torch.utils.data.TensorDataset(x, (x[:, :5].sum(1) > 0).long())
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
loader = torch.utils.data.DataLoader(rows, batch_size=16, shuffle=True)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
with trial.training():
    for _ in range(30):
        total = 0.0
        for inputs, labels in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(inputs), labels)
                total += loss.detach()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        accelerator.print(total.item())
trial.end(model)
