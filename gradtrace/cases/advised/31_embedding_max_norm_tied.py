# obeys: let the earlier operation use a clone
import torch, torch.nn as nn
torch.manual_seed(0)

emb = nn.Embedding(3, 5, max_norm=1.0)
W = torch.randn(7, 5, requires_grad=True)
a = emb.weight.clone() @ W.t()                       # tied use: saves emb.weight
b = emb(torch.tensor([1, 2])) @ W.t()
loss = (a.unsqueeze(0) + b.unsqueeze(1)).sigmoid().mean()
loss.backward()
