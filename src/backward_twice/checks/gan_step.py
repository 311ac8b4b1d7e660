"""Exercise ``gan_step``: a generator behind a discriminator, and what reaches whom.

Several rounds are played, so that a gradient which is left over from one of them shows in the
weights of the next.  The generator has a batch norm, whose running mean moves with every forward
pass, and its runs are counted.  The truth is computed from weights as plain tensors, with
``torch.autograd.grad``: no modules, no optimizers, no ``.grad``.  All is in float64, since a batch
norm over few rows may divide by little.
"""

import torch
from torch import nn
from torch.nn import functional as F

from backward_twice.checks.question import Task
from backward_twice.checks.witness import rows_of_runs

_ROUNDS = 3
_RUNS = "runs of the generator, in all rounds"


def _draw(generator):
    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return {
        "weights": {
            "generator[0].weight": normal(4, 2),
            "generator[1].weight": normal(4),
            "generator[1].bias": normal(4),
            "generator[1].running_mean": normal(4),
            "generator[3].weight": normal(3, 4),
            "generator[3].bias": normal(3),
            "discriminator[0].weight": normal(5, 3),
            "discriminator[0].bias": normal(5),
            "discriminator[2].weight": normal(1, 5),
            "discriminator[2].bias": normal(1),
        },
        "rounds": [{"noise": normal(8, 2), "real": normal(8, 3)} for _ in range(_ROUNDS)],
        "rate": 0.1 + 0.2 * torch.rand((), generator=generator).item(),
    }


def _draw_several(generator):
    steps = torch.randint(2, 5, (), generator=generator).item()
    return _draw(generator) | {"critic_steps": steps}


def _run(answer, weights, rounds, rate, **critic_steps):
    networks = {
        "generator": nn.Sequential(
            nn.Linear(2, 4, bias=False), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3)
        ),
        "discriminator": nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)),
    }
    for module in networks.values():
        module.double()
    tensors = _tensors(networks)
    for name, value in weights.items():
        tensors[name].copy_(value)
    optimizers = [torch.optim.SGD(module.parameters(), lr=rate) for module in networks.values()]
    runs = rows_of_runs(networks["generator"][0])
    for inputs in rounds:
        answer(*networks.values(), *optimizers, **inputs, **critic_steps)
    tensors = _tensors(networks)
    return {**{name: tensors[name] for name in weights}, _RUNS: len(runs)}


def _tensors(networks):
    return {
        f"{network}[{name[0]}]{name[1:]}": tensor
        for network, module in networks.items()
        for name, tensor in module.state_dict().items()
    }


def _expect(weights, rounds, rate, critic_steps=1):
    now = {name: value.requires_grad_() for name, value in weights.items()}
    running_mean = now.pop("generator[1].running_mean").detach()

    def layer(name, x):
        return F.linear(x, now[f"{name}.weight"], now.get(f"{name}.bias"))

    def score(sample):
        return layer("discriminator[2]", layer("discriminator[0]", sample).tanh())

    def descend(network, loss):
        names = [name for name in now if name.startswith(network)]
        gradients = torch.autograd.grad(loss, [now[name] for name in names])
        for name, gradient in zip(names, gradients, strict=True):
            now[name] = (now[name] - rate * gradient).detach().requires_grad_()

    for inputs in rounds:
        real = inputs["real"]
        hidden = layer("generator[0]", inputs["noise"])
        mean, variance = hidden.mean(0), hidden.var(0, correction=0)
        running_mean = 0.9 * running_mean + 0.1 * mean.detach()
        normal = (hidden - mean) / (variance + 1e-5).sqrt()
        scaled = normal * now["generator[1].weight"] + now["generator[1].bias"]
        fake = layer("generator[3]", scaled.tanh())

        for _ in range(critic_steps):
            of_fake = F.softplus(score(fake.detach())).mean()
            descend("discriminator", F.softplus(-score(real)).mean() + of_fake)
        descend("generator", F.softplus(-score(fake)).mean())

    now["generator[1].running_mean"] = running_mean
    return {**{name: now[name].detach() for name in weights}, _RUNS: len(rounds)}


gan_step = Task("gan_step", _draw, _expect, _run)

several_critic_steps = Task("several_critic_steps", _draw_several, _expect, _run)
