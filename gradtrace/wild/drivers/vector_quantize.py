# /// script
# dependencies = ["vector-quantize-pytorch"]
# ///
"""vector-quantize-pytorch: autoencoders with a moving-average codebook, residual VQ and FSQ."""

import torch
import trial
from torch import nn
from vector_quantize_pytorch import FSQ, ResidualVQ, VectorQuantize

trial.begin()
x = torch.randn(512, 16)


class Quantized(nn.Module):
    def __init__(self, quantizer, width: int):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, width))
        self.quantizer = quantizer
        self.decoder = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x):
        quantized, indices, *losses = self.quantizer(self.encoder(x)[None])
        return self.decoder(quantized[0]), indices, sum(loss.sum() for loss in losses)


models = [
    Quantized(VectorQuantize(dim=8, codebook_size=32, decay=0.8, commitment_weight=1.0), 8),
    Quantized(VectorQuantize(dim=8, codebook_size=32, rotation_trick=True, kmeans_init=True), 8),
    Quantized(ResidualVQ(dim=8, num_quantizers=3, codebook_size=16), 8),
    Quantized(FSQ(levels=[8, 5, 5]), 3),
]
with trial.training():
    for model in models:
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for step in range(40):
            batch = x[torch.randint(0, 512, (64,))]
            out, indices, commitment = model(batch)
            loss = (out - batch).abs().mean() + commitment
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(step, loss.item(), indices.unique().numel())
trial.end(*models)
