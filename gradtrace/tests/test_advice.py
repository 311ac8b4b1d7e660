"""Advice that is printed is obeyed here, and the gradients compared with the right ones.

Two networks, each with an optimizer and a loss of its own, and the second loss goes through the
first network.  Right is, at each step, the gradient of that network's own loss taken alone.
"""

import pytest
import torch
from torch import nn

from gradtrace.explaining.causes import CAUSES

Gradients = list[torch.Tensor]


def actor_critic():
    """The critic learns to rate; the actor's loss is what the critic says of its actions."""
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    actor = nn.Linear(3, 2)
    states = torch.randn(16, 3)

    def first_loss():
        with torch.no_grad():
            actions = actor(states)
        return (critic(torch.cat([states, actions], 1)) - 1).pow(2).mean()

    return critic, actor, first_loss, lambda: -critic(torch.cat([states, actor(states)], 1)).mean()


def gan():
    """The discriminator tells real from fake; the generator's loss is what it says of the fake."""
    torch.manual_seed(0)
    discriminator = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    generator = nn.Linear(3, 2)
    noise, real = torch.randn(16, 3), torch.randn(16, 2) + 2

    def first_loss():
        fake = generator(noise).detach()
        return discriminator(fake).mean() - discriminator(real).mean()

    return discriminator, generator, first_loss, lambda: -discriminator(generator(noise)).mean()


def gradients(network: nn.Module) -> Gradients:
    return [parameter.grad.clone() for parameter in network.parameters()]


def alone(loss: torch.Tensor, network: nn.Module) -> Gradients:
    return list(torch.autograd.grad(loss, list(network.parameters())))


def close(some: Gradients, others: Gradients) -> bool:
    return all(torch.allclose(a, b) for a, b in zip(some, others, strict=True))


PROGRAMS = pytest.mark.parametrize("program", [actor_critic, gan])


@PROGRAMS
def test_compute_the_loss_anew_after_the_step(program):
    first, second, first_loss, second_loss = program()
    right = alone(first_loss(), first)
    first_loss().backward()
    assert close(gradients(first), right)
    torch.optim.SGD(first.parameters(), lr=0.5).step()
    right = alone(second_loss(), second)
    second_loss().backward()
    assert close(gradients(second), right)


@PROGRAMS
def test_let_each_backward_reach_its_own_parameters_only(program):
    first, second, first_loss, second_loss = program()
    right = alone(first_loss(), first), alone(second_loss(), second)
    losses = first_loss(), second_loss()
    for network, loss in zip((first, second), losses, strict=True):
        loss.backward(inputs=list(network.parameters()))
    assert close(gradients(first), right[0])
    assert close(gradients(second), right[1])


@PROGRAMS
def test_what_is_not_advised(program):
    """All backward passes first, then all steps; or the losses added: nothing raises, and wrong."""
    for added in (False, True):
        first, _, first_loss, second_loss = program()
        right = alone(first_loss(), first)
        losses = first_loss(), second_loss()
        if added:
            sum(losses).backward()
        else:
            for loss in losses:
                loss.backward()
        assert not close(gradients(first), right)


def test_two_losses_of_two_optimizers_share_a_term():
    """Right is the gradient of each loss alone, at the weights with which both were computed."""
    torch.manual_seed(0)
    networks = nn.Linear(6, 2), nn.Linear(2, 6)
    optimizers = [torch.optim.SGD(network.parameters(), 0.1) for network in networks]
    encoder, decoder = networks
    for _ in range(2):
        x = torch.randn(8, 6)
        z = encoder(x)
        shared = (decoder(z) - x).pow(2).mean()
        losses = shared + z.pow(2).mean(), shared + decoder.weight.exp().mean()
        pairs = [*zip(losses, networks, strict=True)]
        own = [[*network.parameters()] for network in networks]
        right = [
            torch.autograd.grad(loss, parameters, retain_graph=True)
            for loss, parameters in zip(losses, own, strict=True)
        ]
        for i, (loss, network) in enumerate(pairs):
            optimizers[i].zero_grad()
            loss.backward(inputs=list(network.parameters()), retain_graph=i == 0)
        for optimizer, network, expected in zip(optimizers, networks, right, strict=True):
            assert close(gradients(network), list(expected))
            optimizer.step()


def test_take_the_inner_step_as_a_new_tensor():
    """Right is the derivative by hand, of ``(x * fast - y)**2`` with ``fast`` as below."""
    w, x, y, lr = torch.tensor(2.0, requires_grad=True), 3.0, 1.0, 0.01
    (gradient,) = torch.autograd.grad((x * w - y) ** 2, w, create_graph=True)
    fast = w - lr * gradient
    ((x * fast - y) ** 2).backward()
    assert w.grad is not None
    right = 2 * x * (x * fast - y) * (1 - 2 * lr * x * x)
    assert torch.allclose(w.grad, right.detach())


def test_detach_what_the_optimizer_in_this_loop_does_not_train():
    discriminator, generator, *_ = gan()
    noise, real = torch.randn(16, 3), torch.randn(16, 2) + 2
    optimizer = torch.optim.SGD(discriminator.parameters(), lr=0.1)
    fake = generator(noise)
    for _ in range(3):
        right = alone(
            discriminator(generator(noise)).mean() - discriminator(real).mean(), discriminator
        )
        loss = discriminator(fake.detach()).mean() - discriminator(real).mean()
        optimizer.zero_grad()
        loss.backward()
        assert close(gradients(discriminator), right)
        optimizer.step()
    right = alone(-discriminator(generator(noise)).mean(), generator)
    (-discriminator(fake).mean()).backward()
    assert close(gradients(generator), right)


@pytest.mark.parametrize("anew", [True, False], ids=["anew after the step", "one optimizer"])
def test_two_optimizers_that_hold_one_trunk(anew):
    torch.manual_seed(0)
    trunk, actor, critic = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 1)
    states = torch.randn(8, 3)

    def losses():
        features = trunk(states).tanh()
        return actor(features).log_softmax(1)[:, 0].mean(), critic(features).pow(2).mean()

    if anew:
        first, second = (
            torch.optim.SGD([*trunk.parameters(), *head.parameters()], lr=0.1)
            for head in (actor, critic)
        )
        first.zero_grad()
        losses()[0].backward()
        first.step()
        right = alone(losses()[1], trunk)
        second.zero_grad()
        losses()[1].backward()
    else:
        (of_actor, of_critic) = (alone(losses()[which], trunk) for which in (0, 1))
        right = [a + b for a, b in zip(of_actor, of_critic, strict=True)]
        sum(losses()).backward()
    assert close(gradients(trunk), right)


def test_call_the_model_that_was_given_to_compile():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    critic = torch.compile(plain, backend="aot_eager")
    x = torch.randn(8, 2, requires_grad=True)

    def loss(judge):
        (slope,) = torch.autograd.grad(plain(x).sum(), x, create_graph=True)
        return judge(x).mean() + slope.pow(2).sum()

    right = alone(loss(plain), plain)
    loss(critic).backward()
    assert close(gradients(plain), right)


def test_the_texts_say_what_was_obeyed():
    for cause in ("optimizer_step_between_backwards", "optimizer_step_between_backwards_silent"):
        text = CAUSES[cause].fixes[-1].text
        assert text.startswith("recompute this loss after the step")
        assert "loss.backward(inputs=list(own.parameters()))" in text
    in_place = CAUSES["optimizer_step_between_backwards"].fixes
    inner = next(f for f in in_place if "differentiable_step" in f.needs)
    assert inner.text.startswith("take the step as a new tensor: fast = w - lr * gradient")
    single = next(f for f in in_place if "one_optimizer" in f.needs)
    assert single.otherwise == "make all backward() calls before the step"
    once = CAUSES["computed_once_outside_loop"].fixes
    detach = next(fix for fix in once if "trained_by_another_loss" in fix.needs)
    assert detach.text.startswith("detach {tensor")
    assert "do not compile the model" in CAUSES["double_backward_compiled"].fixes[0].text
    several = next(f for f in CAUSES["shared_subgraph"].fixes if "two_optimizers" in f.needs)
    assert "loss.backward(inputs=list(own.parameters()))" in several.text


def test_increment_version_brings_the_error_back():
    first, second, first_loss, second_loss = actor_critic()
    loss = second_loss()
    first_loss().backward()
    torch.optim.SGD(first.parameters(), lr=0.5, fused=True).step()
    for parameter in first.parameters():
        torch.autograd.graph.increment_version(parameter)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward(inputs=list(second.parameters()))
