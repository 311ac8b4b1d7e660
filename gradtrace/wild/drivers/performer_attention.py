# /// script
# dependencies = ["performer-pytorch"]
# ///
"""performer-pytorch: attention by random features, redrawn as it trains; reversible blocks."""

import torch
import trial
from performer_pytorch import PerformerLM
from torch import nn

trial.begin()
tokens = torch.randint(16, (4, 24))
model = PerformerLM(
    num_tokens=16, max_seq_len=24, dim=16, depth=2, heads=2, dim_head=8, causal=False,
    reversible=True, feature_redraw_interval=5,
)  # fmt: skip
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
with trial.training():
    for step in range(24):
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 6 == 0:
            print(loss.item())
trial.end(model)
