# obeys: pass retain_graph=True instead, if this loss does not contain that gradient
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
x, y = torch.randn(6, 5), torch.randint(0, 3, (6,))


def estimate_fisher(model, x, y):
    parameters = list(model.parameters())
    log_likelihoods = F.log_softmax(model(x), dim=1)[range(len(y)), y]
    fisher = [torch.zeros_like(p) for p in parameters]
    for log_likelihood in log_likelihoods.unbind():
        for f, gradient in zip(fisher, torch.autograd.grad(log_likelihood, parameters, retain_graph=True)):
            f += gradient**2 / len(y)
    return fisher


fisher = estimate_fisher(model, x, y)
old = [p.detach().clone() for p in model.parameters()]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.randn(2, 6, 5):
    penalty = sum((f * (p - o) ** 2).sum() for f, p, o in zip(fisher, model.parameters(), old))
    loss = F.cross_entropy(model(batch), y) + penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
