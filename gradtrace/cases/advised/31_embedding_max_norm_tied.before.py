# obeys: change emb.weight before it is used
# differs: the first use is of the weight as renormalised
import torch, torch.nn as nn
torch.manual_seed(0)

emb = nn.Embedding(3, 5, max_norm=1.0)
W = torch.randn(7, 5, requires_grad=True)
b = emb(torch.tensor([1, 2])) @ W.t()
a = emb.weight @ W.t()                       # tied use: saves emb.weight
loss = (a.unsqueeze(0) + b.unsqueeze(1)).sigmoid().mean()
loss.backward()
