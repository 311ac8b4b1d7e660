"""Exercise ``gradient_penalty``: training through a gradient.

``retain_graph`` in the place of ``create_graph`` raises nothing when the penalty is added to
another loss, so the weights are what tells.  The critic's truth has the gradient with respect to
the input written out, so that only one backward is left; the other question's is a Hessian-vector
product.  All is in float64: second derivatives of drawn weights may cancel to little.
"""

import torch
from torch import nn

from backward_twice.checks.question import Task


def _draw_critic(generator):
    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def uniform():
        return torch.rand((), generator=generator).item()

    return {
        "weights": {
            "weight of layer 1": normal(5, 3),
            "bias of layer 1": normal(5),
            "weight of layer 2": normal(1, 5),
            "bias of layer 2": normal(1),
        },
        "batches": [
            {
                "real": normal(6, 3),
                "fake": normal(6, 3),
                "mix": torch.rand(6, 1, generator=generator, dtype=torch.float64),
            }
            for _ in range(2)
        ],
        "strength": 1 + 4 * uniform(),
        "rate": 0.02 + 0.03 * uniform(),
    }


def _network(weights):
    first, _, second, _ = weights.values()
    network = nn.Sequential(
        nn.Linear(first.shape[1], first.shape[0]), nn.Tanh(), nn.Linear(*reversed(second.shape))
    )
    network.double()
    for tensor, value in zip(network.parameters(), weights.values(), strict=True):
        tensor.data.copy_(value)
    return network


def _run_critic(answer, weights, batches, strength, rate):
    critic = _network(weights)
    optimizer = torch.optim.SGD(critic.parameters(), lr=rate)
    for batch in batches:
        answer(critic, optimizer, **batch, strength=strength)
    return dict(zip(weights, critic.parameters(), strict=True))


def _expect_critic(weights, batches, strength, rate):
    now = list(weights.values())
    for batch in batches:
        real, fake, mix = (batch[name] for name in ("real", "fake", "mix"))
        w1, b1, w2, _ = now = [value.detach().requires_grad_() for value in now]
        of_fake, of_real, hidden = (
            (x @ w1.T + b1).tanh() for x in (fake, real, mix * real + (1 - mix) * fake)
        )
        of_input = ((1 - hidden**2) * w2) @ w1
        penalty = (of_input.norm(dim=1) - 1).square().mean()
        loss = (of_fake.mean(0) - of_real.mean(0)) @ w2[0] + strength * penalty
        # The score's bias cancels out of the loss: its gradient is zero, and autograd says None.
        gradients = torch.autograd.grad(loss, now, materialize_grads=True)
        now = [value - rate * g for value, g in zip(now, gradients, strict=True)]
    return {name: value.detach() for name, value in zip(weights, now, strict=True)}


critic_step = Task("critic_step", _draw_critic, _expect_critic, _run_critic)


def _draw_flat(generator):
    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    inputs, width, batch = torch.randint(2, 6, (3,), generator=generator).tolist()
    return {
        "weights": {
            "weight of layer 1": normal(width, inputs),
            "bias of layer 1": normal(width),
            "weight of layer 2": normal(2, width),
            "bias of layer 2": normal(2),
        },
        "x": normal(batch, inputs),
        "target": normal(batch, 2),
        "strength": 0.1 + 0.4 * torch.rand((), generator=generator).item(),
    }


def _run_flat(answer, weights, x, target, strength):
    network = _network(weights)
    answer(network, x, target, strength)
    return {
        f"gradient of the {name}": parameter.grad
        for name, parameter in zip(weights, network.parameters(), strict=True)
    }


def _expect_flat(weights, x, target, strength):
    def loss(w1, b1, w2, b2):
        output = (x @ w1.T + b1).tanh() @ w2.T + b2
        return (output - target).square().mean()

    values = tuple(weights.values())
    gradients = torch.autograd.functional.jacobian(loss, values)
    # The gradient of a squared norm |g|² is twice the Hessian times g.
    _, products = torch.autograd.functional.hvp(loss, values, gradients)
    return {
        f"gradient of the {name}": gradient + 2 * strength * product
        for name, gradient, product in zip(weights, gradients, products, strict=True)
    }


flat_gradients = Task("flat_gradients", _draw_flat, _expect_flat, _run_flat)
