# obeys: checkpoint(..., use_reentrant=False)
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin, self.norm = nn.Linear(d, d), nn.LayerNorm(d)

    def forward(self, x):
        return self.norm(x + F.gelu(self.lin(x)))


class Encoder(nn.Module):
    def __init__(self, vocab=20, d=8, layers=2):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, d)
        self.layer = nn.ModuleList(Layer(d) for _ in range(layers))
        self.gradient_checkpointing = False

    def forward(self, ids):
        h = self.embeddings(ids)
        for layer_module in self.layer:
            if self.gradient_checkpointing and self.training:
                h = checkpoint(layer_module, h, use_reentrant=False)
            else:
                h = layer_module(h)
        return h


def freeze(module):
    for p in module.parameters():
        p.requires_grad_(False)


torch.manual_seed(0)
model = Encoder()
freeze(model.embeddings)
model.gradient_checkpointing = True
model.train()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
loss = model(torch.randint(0, 20, (2, 5))).pow(2).mean()
loss.backward()
optimizer.step()
