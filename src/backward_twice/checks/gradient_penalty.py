"""Exercise ``gradient_penalty``: training through a gradient.

``retain_graph`` in place of ``create_graph`` raises nothing if the penalty is added to another
loss, so only the weights reveal it.  Both questions compute in float64: second derivatives may
cancel.
"""

import torch

from backward_twice.checks.networks import PARAMETERS, two_layers
from backward_twice.checks.task import Task


def _draw_critic(draws):
    return {
        "weights": draws.layers(3, 5, 1, dtype=torch.float64),
        "batches": [
            {
                "real": draws.double(6, 3),
                "fake": draws.double(6, 3),
                "mix": torch.rand(6, 1, generator=draws, dtype=torch.float64),
            }
            for _ in range(2)
        ],
        "strength": draws.uniform(1, 5),
        "rate": draws.uniform(0.02, 0.05),
    }


def _run_critic(answer, weights, batches, strength, rate):
    critic = two_layers(weights)
    optimizer = torch.optim.SGD(critic.parameters(), lr=rate)
    for batch in batches:
        answer(critic, optimizer, **batch, strength=strength)
    return dict(zip(PARAMETERS, critic.parameters(), strict=True))


critic_step = Task("critic_step", _draw_critic, run=_run_critic)


def _draw_flat(draws):
    inputs, width, batch = draws.integers(3, 2, 5)
    return {
        "weights": draws.layers(inputs, width, 2, dtype=torch.float64),
        "x": draws.double(batch, inputs),
        "target": draws.double(batch, 2),
        "strength": draws.uniform(0.1, 0.5),
    }


def _run_flat(answer, weights, x, target, strength):
    network = two_layers(weights)
    answer(network, x, target, strength)
    named = zip(PARAMETERS, network.parameters(), strict=True)
    return {f"gradient of the {name}": parameter.grad for name, parameter in named}


flat_gradients = Task("flat_gradients", _draw_flat, run=_run_flat)
