# obeys: checkpoint(..., use_reentrant=False)
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


class LoraLinear(nn.Module):
    def __init__(self, base, r=4, alpha=8):
        super().__init__()
        self.base, self.scale = base, alpha / r
        self.lora_A = nn.Parameter(torch.randn(r, base.in_features) / math.sqrt(r))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.lora_A.T @ self.lora_B.T)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.v, self.o = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, h):
        a = F.scaled_dot_product_attention(self.q(h), h, self.v(h), is_causal=True)
        h = h + self.o(a)
        return h + self.mlp(h)


class CausalLM(nn.Module):
    def __init__(self, vocab=32, d=16, n=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList([Block(d) for _ in range(n)])
        self.lm_head = nn.Linear(d, vocab, bias=False)
        self.gradient_checkpointing = False

    def gradient_checkpointing_enable(self):
        self.gradient_checkpointing = True

    def forward(self, ids, labels):
        h = self.embed_tokens(ids)
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                h = checkpoint(layer, h, use_reentrant=False)
            else:
                h = layer(h)
        logits = self.lm_head(h)
        return F.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:])


def get_peft_model(model, target_modules):
    model.requires_grad_(False)
    for layer in model.layers:
        for name in target_modules:
            setattr(layer, name, LoraLinear(getattr(layer, name)))
    return model


def train(model, loader, epochs=1):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    model.train()
    for epoch in range(epochs):
        for (ids,) in loader:
            loss = model(ids, labels=ids)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(loss.item())


if __name__ == "__main__":
    torch.manual_seed(0)
    model = get_peft_model(CausalLM(), ["q", "v"])
    model.gradient_checkpointing_enable()
    train(model, DataLoader(TensorDataset(torch.randint(0, 32, (16, 10))), batch_size=4))
