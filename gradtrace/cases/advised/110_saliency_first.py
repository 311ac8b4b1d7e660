# obeys: pass retain_graph=True instead, if this loss does not contain that gradient
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.randn(3, 16, 4):
    x.requires_grad_()
    out = model(x)
    saliency, = torch.autograd.grad(out.max(1).values.sum(), x, retain_graph=True)
    weight = saliency.norm(dim=1)
    loss = (weight * F.cross_entropy(out, (x.sum(1) > 0).long(), reduction="none")).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
