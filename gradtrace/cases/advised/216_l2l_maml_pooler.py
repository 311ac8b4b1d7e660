# obeys: pass allow_unused=True, and skip the gradients that are None
import copy

import torch
from torch import nn
import torch.nn.functional as F


class ViTModel(nn.Module):
    def __init__(self, d=16, patches=4):
        super().__init__()
        self.proj = nn.Linear(6, d)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.qk, self.v = nn.Linear(d, d), nn.Linear(d, d)
        self.layernorm = nn.LayerNorm(d)
        self.pooler = nn.Sequential(nn.Linear(d, d), nn.Tanh())

    def forward(self, x):
        h = self.proj(x)
        h = torch.cat([self.cls.expand(len(h), -1, -1), h], 1)
        attn = torch.softmax(self.qk(h) @ h.transpose(1, 2) / 4, -1)
        h = self.layernorm(h + attn @ self.v(h))
        return h, self.pooler(h[:, 0])


class ViTForClassification(nn.Module):
    def __init__(self, ways):
        super().__init__()
        self.vit = ViTModel()
        self.classifier = nn.Linear(16, ways)

    def forward(self, x):
        sequence_output, pooled = self.vit(x)
        return self.classifier(sequence_output[:, 0])


class MAML:
    def __init__(self, model, lr, first_order=False):
        self.module, self.lr, self.first_order = model, lr, first_order

    def clone(self):
        return dict(self.module.named_parameters())

    def __call__(self, params, x):
        return torch.func.functional_call(self.module, params, (x,))

    def adapt(self, params, loss):
        grads = torch.autograd.grad(loss, list(params.values()), create_graph=not self.first_order, allow_unused=True)
        return {k: p if g is None else p - self.lr * g for (k, p), g in zip(params.items(), grads)}


def sample_task(ways, shots):
    protos = torch.randn(ways, 4, 6)
    y = torch.arange(ways).repeat(shots)
    return (protos[y] + 0.3 * torch.randn(len(y), 4, 6), y), (protos[y] + 0.3 * torch.randn(len(y), 4, 6), y)


def fast_adapt(maml, task, steps):
    (xs, ys), (xq, yq) = task
    learner = maml.clone()
    for _ in range(steps):
        learner = maml.adapt(learner, F.cross_entropy(maml(learner, xs), ys))
    return F.cross_entropy(maml(learner, xq), yq)


def main(ways=3, shots=2, meta_batch=2, iterations=2):
    torch.manual_seed(0)
    maml = MAML(ViTForClassification(ways), lr=0.05)
    opt = torch.optim.Adam(maml.module.parameters(), lr=1e-3)
    for it in range(iterations):
        opt.zero_grad()
        total = 0.0
        for _ in range(meta_batch):
            error = fast_adapt(maml, sample_task(ways, shots), steps=1)
            error.backward()
            total += error.item()
        opt.step()
        print(it, total / meta_batch)


main()
