"""Exercise ``gradient_penalty``: training through a gradient.

``retain_graph`` in place of ``create_graph`` raises nothing if the penalty is added to another
loss, so only the weights reveal it.  The right result for the critic uses a formula for the
gradient with respect to the input, so that autograd computes only one derivative; that of the other
question is a Hessian-vector product.  Both are computed in float64: second derivatives may cancel.
"""

import torch

from backward_twice.checks.networks import PARAMETERS, descended, leaves, output_of, two_layers
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


def _expect_critic(weights, batches, strength, rate):
    weights = leaves(weights)
    for batch in batches:
        real, fake, mix = (batch[name] for name in ("real", "fake", "mix"))
        w1, b1, w2, _ = weights
        of_fake, of_real, hidden = (
            (x @ w1.T + b1).tanh() for x in (fake, real, mix * real + (1 - mix) * fake)
        )
        of_input = ((1 - hidden**2) * w2) @ w1
        penalty = (of_input.norm(dim=1) - 1).square().mean()
        loss = (of_fake.mean(0) - of_real.mean(0)) @ w2[0] + strength * penalty
        weights = descended(weights, loss, rate)
    return dict(zip(PARAMETERS, weights, strict=True))


critic_step = Task("critic_step", _draw_critic, _expect_critic, _run_critic)


def _draw_flat(draws):
    inputs, width, batch = draws.integers(3, 2, 5)
    return {
        "weights": draws.layers(inputs, width, 2, dtype=torch.float64),
        "x": draws.double(batch, inputs),
        "target": draws.double(batch, 2),
        "strength": draws.uniform(0.1, 0.5),
    }


def _by_parameter(gradients):
    names = (f"gradient of the {name}" for name in PARAMETERS)
    return dict(zip(names, gradients, strict=True))


def _run_flat(answer, weights, x, target, strength):
    network = two_layers(weights)
    answer(network, x, target, strength)
    return _by_parameter(parameter.grad for parameter in network.parameters())


def _expect_flat(weights, x, target, strength):
    def loss(*weights):
        return (output_of(weights, x) - target).square().mean()

    gradients = torch.autograd.functional.jacobian(loss, tuple(weights))
    # The gradient of a squared norm |g|² is twice the Hessian times g.
    _, products = torch.autograd.functional.hvp(loss, tuple(weights), gradients)
    return _by_parameter(
        gradient + 2 * strength * product
        for gradient, product in zip(gradients, products, strict=True)
    )


flat_gradients = Task("flat_gradients", _draw_flat, _expect_flat, _run_flat)
