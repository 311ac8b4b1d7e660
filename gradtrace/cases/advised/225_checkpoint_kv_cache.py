# obeys: do not change past_key_values in DecoderLayer
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


class DynamicCache:
    def __init__(self):
        self.keys, self.values = {}, {}

    def update(self, k, v, layer):
        if layer in self.keys:
            k = torch.cat([self.keys[layer], k], dim=1)
            v = torch.cat([self.values[layer], v], dim=1)
        self.keys[layer], self.values[layer] = k, v
        return k, v


class DecoderLayer(nn.Module):
    def __init__(self, d, idx):
        super().__init__()
        self.idx = idx
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d, d) for _ in range(4))
        self.norm = nn.LayerNorm(d)

    def forward(self, h, past_key_values=None):
        x = self.norm(h)
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if past_key_values is not None:
            k, v = past_key_values.update(k, v, self.idx)
        attn = torch.softmax(q @ k.transpose(1, 2) / 4, dim=-1)
        return h + self.o_proj(attn @ v)


class Qwen(nn.Module):
    def __init__(self, vocab=40, d=16, n=2, use_cache=False):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList([DecoderLayer(d, i) for i in range(n)])
        self.lm_head = nn.Linear(d, vocab)
        self.use_cache = use_cache

    def forward(self, ids):
        h = self.embed(ids)
        cache = DynamicCache() if self.use_cache else None
        for layer in self.layers:
            h = checkpoint(layer, h, cache, use_reentrant=False)
        return self.lm_head(h)


def training_step(model, ids, optimizer):
    logits = model(ids)
    loss = F.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Qwen()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for i, (ids,) in enumerate(DataLoader(TensorDataset(torch.randint(0, 40, (8, 9))), batch_size=4)):
        print(i, training_step(model, ids, optimizer))
