# obeys: compute a new tensor in backward(): grad_output * x in place of grad_output.mul_(x)
import torch
from torch import nn

from h85_fused import ScaledSoftmax


class Attention(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.q, self.k = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        scores = self.q(x) @ self.k(x).t()
        probs = ScaledSoftmax.apply(scores, 0.4)
        return probs + scores


torch.manual_seed(0)
model = Attention()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(3):
    x = torch.randn(6, 6)
    loss = model(x).mul(torch.randn(6, 6)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(model.q.weight.grad.norm().item())
