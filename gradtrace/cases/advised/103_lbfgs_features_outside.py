# obeys: recompute features inside the closure
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Sequential(nn.Linear(3, 6), nn.Tanh()), nn.Linear(6, 1)
optimizer = torch.optim.LBFGS([*encoder.parameters(), *head.parameters()], lr=0.1, max_iter=3)
x, y = torch.randn(16, 3), torch.randn(16, 1)


def closure():
    optimizer.zero_grad()
    features = encoder(x)
    loss = F.mse_loss(head(features), y)
    loss.backward()
    return loss


optimizer.step(closure)
