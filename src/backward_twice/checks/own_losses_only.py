"""Exercise ``own_losses_only``: an actor and its critic, each by the gradient of its own loss.

The actor's loss goes through the critic.  Three updates are run, the first with gradients left over
from before, so that a gradient in the wrong ``.grad`` changes the weights.  The critic has a batch
norm, whose running mean moves with each forward pass, and its runs are counted, which shows how
often it has rated.
"""

import torch
from torch import nn

from backward_twice.checks.networks import fill, leave_gradients, tensors_of
from backward_twice.checks.task import Task
from backward_twice.checks.witness import rows_of_runs

_UPDATES = 3
_RATINGS = "ratings of the critic, in all updates"


def _draw(draws):
    normal = draws.double
    return {
        "weights": {
            "actor[0].weight": normal(2, 3),
            "actor[0].bias": normal(2),
            "critic[0].weight": normal(4, 5),
            "critic[1].weight": normal(4),
            "critic[1].bias": normal(4),
            "critic[1].running_mean": normal(4),
            "critic[3].weight": normal(1, 4),
            "critic[3].bias": normal(1),
        },
        "updates": [{"states": normal(8, 3), "rewards": normal(8, 1)} for _ in range(_UPDATES)],
        "rate": draws.uniform(0.1, 0.3),
    }


def _run(answer, weights, updates, rate):
    actor = nn.Sequential(nn.Linear(3, 2), nn.Tanh()).double()
    critic = nn.Sequential(
        nn.Linear(5, 4, bias=False), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)
    ).double()
    fill(tensors_of(weights, actor=actor, critic=critic).values(), weights.values())
    optimizers = [torch.optim.SGD(network.parameters(), lr=rate) for network in (actor, critic)]
    leave_gradients(actor, critic)
    ratings = rows_of_runs(critic[0])
    for inputs in updates:
        answer(actor, critic, *optimizers, **inputs)
    return {**tensors_of(weights, actor=actor, critic=critic), _RATINGS: len(ratings)}


update = Task("update", _draw, run=_run)

one_rating = Task("one_rating", _draw, run=_run)
