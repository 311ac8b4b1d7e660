# obeys: compute the result from params
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F


class MetaModule(nn.Module):
    def meta_named_parameters(self):
        return self.named_parameters()


class SinusoidNet(MetaModule):
    def __init__(self, hidden):
        super().__init__()
        self.l1 = nn.Linear(1, hidden)
        self.l2 = nn.Linear(hidden, 1)

    def forward(self, x, params=None):
        if params is None:
            params = OrderedDict(self.named_parameters())
        h = torch.relu(F.linear(x, params["l1.weight"], params["l1.bias"]))
        return F.linear(h, params["l2.weight"], params["l2.bias"])


def gradient_update_parameters(model, loss, params=None, step_size=0.1, first_order=False):
    if params is None:
        params = OrderedDict(model.meta_named_parameters())
    grads = torch.autograd.grad(loss, params.values(), create_graph=not first_order)
    updated = OrderedDict()
    for (name, param), grad in zip(params.items(), grads):
        updated[name] = param - step_size * grad
    return updated


class Metalearner:
    def __init__(self, model, lr, num_steps):
        self.model, self.num_steps = model, num_steps
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def adapt(self, x, y):
        params = None
        for _ in range(self.num_steps):
            loss = F.mse_loss(self.model(x, params=params), y)
            params = gradient_update_parameters(self.model, loss, params=params, step_size=0.05)
        return params

    def train_batch(self, tasks):
        outer = torch.tensor(0.0)
        for (xs, ys), (xq, yq) in tasks:
            params = self.adapt(xs, ys)
            outer = outer + F.mse_loss(self.model(xq, params=params), yq)
        outer = outer / len(tasks)
        self.optimizer.zero_grad()
        outer.backward()
        self.optimizer.step()
        return outer.item()


def sinusoid_tasks(n, shots):
    for _ in range(n):
        amp, phase = 1 + torch.rand(1), torch.rand(1) * 3
        x = torch.rand(2 * shots, 1) * 10 - 5
        y = amp * torch.sin(x + phase)
        yield (x[:shots], y[:shots]), (x[shots:], y[shots:])


if __name__ == "__main__":
    torch.manual_seed(0)
    learner = Metalearner(SinusoidNet(20), lr=1e-3, num_steps=2)
    for i in range(3):
        print(i, learner.train_batch(list(sinusoid_tasks(2, 5))))
