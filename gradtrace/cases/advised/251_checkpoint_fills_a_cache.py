# obeys: do not change s.cache in M
import torch, torch.nn as nn
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
class M(nn.Module):
    def __init__(s): super().__init__(); s.l=nn.Linear(4,4); s.cache=None
    def forward(s,x):
        s.cache=s.l.weight.exp().sum()
        return torch.tanh(s.l(x))*s.cache
m=M(); loss=checkpoint(m,torch.randn(3,4),use_reentrant=False).sum(); loss.backward()
