# obeys: take torch.autograd.grad(loss, parameters, create_graph=True), which leaves .grad alone
import torch
import torch.nn.functional as F
from torch import nn


class CurvatureMonitor:
    """Hutchinson estimate of the Hessian trace from the gradients that are in .grad"""

    def __init__(self, model):
        self.params = list(model.parameters())
        self.last = 0.0

    def __call__(self, grads):
        v = [torch.randint_like(g, 2) * 2 - 1 for g in grads]
        hv = torch.autograd.grad(grads, self.params, grad_outputs=v, retain_graph=True)
        self.last = sum((a * b).sum().item() for a, b in zip(hv, v))


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    monitor = CurvatureMonitor(model)
    for step in range(12):
        x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
        loss = F.cross_entropy(model(x), y)
        monitor(torch.autograd.grad(loss, list(model.parameters()), create_graph=True))
    print(monitor.last)


main()
