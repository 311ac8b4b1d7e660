# obeys: checkpoint(..., use_reentrant=False)
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint as cp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


class FocalBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Encoder(nn.Module):
    def __init__(self, dim=12, depth=2, use_checkpoint=True):
        super().__init__()
        self.embed = nn.Linear(5, dim)
        self.blocks = nn.ModuleList([FocalBlock(dim) for _ in range(depth)])
        self.use_checkpoint = use_checkpoint

    def forward(self, x):
        x = self.embed(x)
        for blk in self.blocks:
            x = cp.checkpoint(blk, x, use_reentrant=False) if self.use_checkpoint else blk(x)
        return x.mean(1)


class BiEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.temperature = nn.Parameter(torch.tensor(0.1))

    def forward(self, code, text):
        a = F.normalize(self.encoder(code), dim=-1)
        b = F.normalize(self.encoder(text), dim=-1)
        logits = a @ b.T / self.temperature
        return F.cross_entropy(logits, torch.arange(len(a)))


def run(epochs):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    torch.manual_seed(0)
    model = DistributedDataParallel(BiEncoder(), find_unused_parameters=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.randn(16, 3, 5), torch.randn(16, 3, 5)), batch_size=8)
    for epoch in range(epochs):
        for code, text in loader:
            optimizer.zero_grad()
            loss = model(code, text)
            loss.backward()
            optimizer.step()
            print(epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    run(1)
