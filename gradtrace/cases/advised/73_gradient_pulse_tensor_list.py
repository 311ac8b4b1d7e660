# obeys: combine tensors with torch.stack or torch.cat
import torch

from h73_grads import TrapGrad


def simulate(gradients, positions):
    k = sum(g.area() for g in gradients)
    return torch.cos(2 * torch.pi * k * positions).mean()


torch.manual_seed(0)
positions = torch.linspace(-0.5, 0.5, 21)
amplitudes = torch.tensor([0.3, -0.2, 0.5], requires_grad=True)
optimizer = torch.optim.Adam([amplitudes], lr=0.01)
for i in range(3):
    optimizer.zero_grad()
    seq = [TrapGrad(a) for a in amplitudes]
    loss = (simulate(seq, positions) - 0.2) ** 2
    loss.backward()
    optimizer.step()
