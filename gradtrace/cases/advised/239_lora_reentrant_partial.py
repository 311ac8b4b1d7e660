# obeys: call checkpoint(..., use_reentrant=False)
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
        self.attn, self.mlp = (
            nn.Linear(d, d),
            nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)),
        )

    def forward(self, h):
        w = torch.softmax(h @ h.transpose(1, 2), -1)
        h = h + self.attn(w @ h)
        return h + self.mlp(h)


class CausalLM(nn.Module):
    def __init__(self, vocab=32, d=16, n=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList([Block(d) for _ in range(n)])
        self.lm_head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        h = self.embed_tokens(ids)
        for layer in self.layers:
            h = checkpoint(layer, h, use_reentrant=False)
        return self.lm_head(h)


def get_peft_model(model):
    model.requires_grad_(False)
    for layer in model.layers:
        layer.attn = LoraLinear(layer.attn)
    model.lm_head = LoraLinear(model.lm_head)
    return model


def grad_diff(model, forget, retain, gamma=1.0, alpha=1.0):
    f = F.cross_entropy(model(forget)[:, :-1].transpose(1, 2), forget[:, 1:])
    r = F.cross_entropy(model(retain)[:, :-1].transpose(1, 2), retain[:, 1:])
    return -gamma * f + alpha * r


def main():
    torch.manual_seed(0)
    model = get_peft_model(CausalLM())
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    loader = DataLoader(
        TensorDataset(torch.randint(0, 32, (16, 8)), torch.randint(0, 32, (16, 8))), batch_size=4
    )
    for i, (forget, retain) in enumerate(loader):
        loss = grad_diff(model, forget, retain)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(i, loss.item())


main()
