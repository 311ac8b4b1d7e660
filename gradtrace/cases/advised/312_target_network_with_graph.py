# obeys: detach each tensor that carries over
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class Byol:
    def __init__(self, tau=0.99):
        self.online = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
        self.target = [p.detach().clone() for p in self.online.parameters()]
        self.tau = tau
        self.optimizer = torch.optim.SGD(self.online.parameters(), lr=0.05)

    def project(self, x):
        w1, b1, w2, b2 = self.target
        with torch.no_grad():
            return F.linear(F.relu(F.linear(x, w1, b1)), w2, b2)

    def update_target(self):
        self.target = [self.tau * t + (1 - self.tau) * p.detach() for t, p in zip(self.target, self.online.parameters())]

    def step(self, a, b):
        loss = 2 - 2 * F.cosine_similarity(self.online(a), self.project(b)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.update_target()
        return loss.item()


torch.manual_seed(0)
byol = Byol()
for _ in range(12):
    x = torch.randn(8, 6)
    byol.step(x + 0.1 * torch.randn(8, 6), x + 0.1 * torch.randn(8, 6))
