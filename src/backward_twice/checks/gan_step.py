"""Exercise ``gan_step``: a generator that is trained through a discriminator, each by its own loss.

Several rounds are run, so that a gradient left over from one of them changes the weights of the
next.  The generator has a batch norm, whose running mean moves with every forward pass, and its
runs are counted.
"""

import torch
from torch import nn

from backward_twice.checks.networks import fill, weights_of
from backward_twice.checks.task import Task
from backward_twice.checks.witness import rows_of_runs

_ROUNDS = 3
_RUNS = "runs of the generator, in all rounds"


def _networks():
    generator = nn.Sequential(
        nn.Linear(2, 4, bias=False), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3)
    )
    discriminator = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    return {"generator": generator.double(), "discriminator": discriminator.double()}


def _draw(draws):
    normal = draws.double
    return {
        "weights": draws.like(weights_of(**_networks())),
        "rounds": [{"noise": normal(8, 2), "real": normal(8, 3)} for _ in range(_ROUNDS)],
        "rate": draws.uniform(0.1, 0.3),
    }


def _draw_several(draws):
    steps = draws.integer(2, 4)
    return _draw(draws) | {"critic_steps": steps}


def _run(answer, weights, rounds, rate, **critic_steps):
    networks = _networks()
    fill(weights_of(**networks).values(), weights.values())
    optimizers = [torch.optim.SGD(module.parameters(), lr=rate) for module in networks.values()]
    runs = rows_of_runs(networks["generator"][0])
    for inputs in rounds:
        answer(*networks.values(), *optimizers, **inputs, **critic_steps)
    return {**weights_of(**networks), _RUNS: len(runs)}


gan_step = Task("gan_step", _draw, run=_run)

several_critic_steps = Task("several_critic_steps", _draw_several, run=_run)
