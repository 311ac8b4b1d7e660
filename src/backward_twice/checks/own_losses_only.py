"""Exercise ``own_losses_only``: an actor and its critic, each by the gradient of its own loss.

The actor's loss goes through the critic.  Three updates are run, the first with gradients left over
from before, so that a gradient in the wrong ``.grad`` changes the weights.  The critic has a batch
norm, whose running mean moves with each forward pass, and its runs are counted, which shows how
often it has rated.
"""

import torch
from torch import nn

from backward_twice.checks.networks import fill, leave_gradients, weights_of
from backward_twice.checks.task import Task
from backward_twice.checks.witness import rows_of_runs

_UPDATES = 3
_RATINGS = "ratings of the critic, in all updates"


def _networks():
    actor = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    critic = nn.Sequential(
        nn.Linear(5, 4, bias=False), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)
    )
    return {"actor": actor.double(), "critic": critic.double()}


def _draw(draws):
    normal = draws.double
    return {
        "weights": draws.like(weights_of(**_networks())),
        "updates": [{"states": normal(8, 3), "rewards": normal(8, 1)} for _ in range(_UPDATES)],
        "rate": draws.uniform(0.1, 0.3),
    }


def _run(answer, weights, updates, rate):
    networks = _networks()
    fill(weights_of(**networks).values(), weights.values())
    optimizers = [torch.optim.SGD(module.parameters(), lr=rate) for module in networks.values()]
    leave_gradients(*networks.values())
    ratings = rows_of_runs(networks["critic"][0])
    for inputs in updates:
        answer(*networks.values(), *optimizers, **inputs)
    return {**weights_of(**networks), _RATINGS: len(ratings)}


update = Task("update", _draw, run=_run)

one_rating = Task("one_rating", _draw, run=_run)
