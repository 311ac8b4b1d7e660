# obeys: detach ds, once
import torch, torch.nn as nn
torch.manual_seed(0)

from torch.utils.data import DataLoader, TensorDataset
emb = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
ds = TensorDataset(emb(torch.randn(8, 3)).detach(), torch.randn(8, 1))
net = nn.Linear(4, 1)
for x, y in DataLoader(ds, batch_size=4, num_workers=0):
    loss = (net(x) - y).pow(2).mean()
    loss.backward()
