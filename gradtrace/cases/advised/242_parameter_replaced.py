# obeys: copy the new values into the old parameter
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class LotteryGCN(nn.Module):
    def __init__(self, n_users, n_items, dim=8):
        super().__init__()
        n = n_users + n_items
        self.n_users = n_users
        self.user_embedding = nn.Embedding(n_users, dim)
        self.item_embedding = nn.Embedding(n_items, dim)
        adj = (torch.rand(n, n) > 0.6).float()
        self.register_buffer("norm_adj", adj / adj.sum(1, keepdim=True).clamp_min(1))
        self.adj_mask_train = nn.Parameter(torch.ones(n, n) + 0.05 * torch.randn(n, n))

    def update_norm_adj(self, ratio):
        flat = self.adj_mask_train.abs().flatten()
        thre = flat.kthvalue(max(1, int(ratio * flat.numel()))).values
        mask = torch.where(self.adj_mask_train.abs() >= thre, self.adj_mask_train, torch.zeros_like(self.adj_mask_train))
        self.adj_mask_train.data.copy_(mask)

    def forward(self):
        h = torch.cat([self.user_embedding.weight, self.item_embedding.weight])
        adj = self.norm_adj * self.adj_mask_train
        out = h + adj @ h
        return out[: self.n_users], out[self.n_users:]

    def calculate_loss(self, u, i, j):
        ue, ie = self()
        return -F.logsigmoid((ue[u] * ie[i]).sum(-1) - (ue[u] * ie[j]).sum(-1)).mean()


class Trainer:
    def __init__(self, model, prune_every=2):
        self.model, self.prune_every = model, prune_every
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def fit(self, loader, epochs):
        for epoch_idx in range(epochs):
            for u, i, j in loader:
                self.optimizer.zero_grad()
                loss = self.model.calculate_loss(u, i, j)
                loss.backward()
                self.optimizer.step()
            if epoch_idx % self.prune_every == 0:
                print("prune!")
                self.model.update_norm_adj(0.2)
            print(epoch_idx, loss.item())


if __name__ == "__main__":
    torch.manual_seed(0)
    data = TensorDataset(torch.randint(0, 6, (40,)), torch.randint(0, 9, (40,)), torch.randint(0, 9, (40,)))
    Trainer(LotteryGCN(6, 9)).fit(DataLoader(data, batch_size=10), epochs=4)
