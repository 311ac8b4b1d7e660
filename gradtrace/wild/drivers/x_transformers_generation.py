# /// script
# dependencies = ["x-transformers"]
# ///
"""x-transformers: an autoregressive decoder with rotary positions, trained and sampled."""

import torch
import trial
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

trial.begin()
model = AutoregressiveWrapper(
    TransformerWrapper(
        num_tokens=64,
        max_seq_len=64,
        attn_layers=Decoder(dim=64, depth=3, heads=4, rotary_pos_emb=True, ff_glu=True),
    )
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
with trial.training():
    for step in range(40):
        tokens = (torch.randint(0, 64, (8, 1)) + 5 * torch.arange(49)) % 64
        loss = model(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(step, loss.item())
    model.eval()
    print(model.generate(tokens[:1, :8], 16).tolist())
trial.end(model)
