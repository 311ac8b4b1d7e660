"""Every end of the decision guide, obeyed literally.

The ends are read from the page's data.  To each belongs a program that has the fault, named by the
repair there: who changes the advice has to look at its program again.  Not obeyed, the program
must show the fault (raise the message that its path begins with, or go wrong in silence).  Obeyed,
it must give the right gradients, which are computed from each loss alone.
"""

import contextlib
import copy
import functools
import gc
import json
import logging
import re
import subprocess
import sys
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import nbformat
import numpy as np
import pytest
import torch
import torch._functorch.config
import torch.distributed as dist
import yaml
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import CheckpointError, checkpoint

from gradtrace import snapshot, watch

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "book" / "decision_guide.yml"

Tensors = list[torch.Tensor]
#: Takes whether to obey; returns what was seen, and what would be right.
Program = Callable[[bool], tuple[Tensors, Tensors]]


class Leaf(NamedTuple):
    """An end of the guide: its message, its advice, where that is run, whether nothing raises."""

    message: str
    advice: str
    link: str
    silent: bool


def read_leaves() -> Iterator[Leaf]:
    for family in yaml.safe_load(GUIDE.read_text(encoding="utf-8")):
        for answer in ends_of(family):
            yield Leaf(
                family["message"], answer["repair"], answer["example"][1], "silent" in family
            )


def ends_of(question: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for answer in question["answers"]:
        yield from ends_of(answer) if "answers" in answer else [answer]


LEAVES = list(read_leaves())

pytestmark = pytest.mark.filterwarnings("ignore:Using backward.* with create_graph=True")
PROGRAMS: dict[str, Program] = {}


def obeys_in(programs: dict[str, Callable]) -> Callable[[str], Callable]:
    """A decorator that registers the program that obeys an end of the guide, by its advice."""

    def obeys(advice: str) -> Callable[[Callable], Callable]:
        def register(program: Callable) -> Callable:
            assert advice not in programs, f"two programs for {advice!r}"
            programs[advice] = program
            return program

        return register

    return obeys


obeys = obeys_in(PROGRAMS)


def parameters(*modules: nn.Module) -> Tensors:
    return [parameter for module in modules for parameter in module.parameters()]


def grads(tensors: Tensors) -> Tensors:
    """What backward has left in them; zeros where it left nothing."""
    return [torch.zeros_like(t) if t.grad is None else t.grad.clone() for t in tensors]


def clear(tensors: Tensors) -> None:
    for tensor in tensors:
        tensor.grad = None


def alone(loss: torch.Tensor, tensors: Tensors) -> Tensors:
    """The gradient of this loss and of no other."""
    return list(torch.autograd.grad(loss, tensors, materialize_grads=True))


def deep(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 4), nn.Tanh(), nn.Linear(4, outputs))


def sgd(tensors: Tensors, **options: bool) -> torch.optim.Optimizer:
    return torch.optim.SGD(tensors, lr=0.1, **options)


def close(some: Tensors, others: Tensors) -> bool:
    return all(torch.allclose(a, b, atol=1e-6) for a, b in zip(some, others, strict=True))


# In the next iteration of a loop.


@obeys("`detach()` each of its tensors after the batch's `backward()`")
def carried_state(obey):
    """An LSTM, whose state is a tuple and begins with a learned one."""
    lstm, first = nn.LSTM(2, 3), [torch.randn(1, 1, 3).requires_grad_() for _ in "hc"]
    trained, state = [*parameters(lstm), *first], tuple(first)
    seen, right = [], []
    for number, batch in enumerate(torch.randn(3, 4, 1, 2)):
        values = state if number == 0 else tuple(part.detach().clone() for part in state)
        right += alone(lstm(batch, values)[0].square().mean(), trained)
        output, state = lstm(batch, state)
        clear(trained)
        output.square().mean().backward()
        seen += grads(trained)
        if obey:
            state = tuple(part.detach() for part in state)
    return seen, right


@obeys("reset it before the forward pass")
def kept_by_a_module(obey):
    """Each batch is a sequence of its own."""

    class Keeper(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.state = nn.RNNCell(2, 3), None

        def forward(self, sequence):
            for x in sequence:
                self.state = self.cell(x, self.state)
            return self.state.square().mean()

    keeper, seen, right = Keeper(), [], []
    trained = parameters(keeper)
    for sequence in torch.randn(3, 4, 1, 2):
        fresh = Keeper()
        fresh.load_state_dict(keeper.state_dict())
        right += alone(fresh(sequence), parameters(fresh))
        if obey:
            keeper.state = None
        clear(trained)
        keeper(sequence).backward()
        seen += grads(trained)
    return seen, right


@obeys(
    "create a new tensor in each iteration, or `buffer = buffer.detach().clone()` if its old "
    "values are needed"
)
def written_again(obey):
    layer, seen, right = nn.Linear(2, 3), [], []
    for new in (True, False) if obey else (False,):
        buffer = torch.zeros(4, 3)
        for row, x in enumerate(torch.randn(4, 2)):
            values = torch.zeros(4, 3) if new else buffer.detach().clone()
            values[row] = layer(x)
            right += alone(values.pow(3).sum(), parameters(layer))
            if obey:
                buffer = torch.zeros(4, 3) if new else buffer.detach().clone()
            buffer[row] = layer(x)
            layer.zero_grad()
            buffer.pow(3).sum().backward()
            seen += grads(parameters(layer))
    return seen, right


@obeys("recompute it in each iteration")
def cached_weight(obey):
    scale, seen, right = torch.ones(3, requires_grad=True), [], []
    optimizer, cached = sgd([scale]), scale.exp()
    for x in torch.randn(3, 3):
        right += alone((scale.exp() * x).sum().square(), [scale])
        if obey:
            cached = scale.exp()
        optimizer.zero_grad()
        (cached * x).sum().square().backward()
        seen += grads([scale])
        optimizer.step()
    return seen, right


@obeys("compute it in `eval()` mode, under `torch.no_grad()`")
def frozen_backbone(obey):
    """With dropout: computed once in `train()` mode, one mask would serve for all iterations."""
    backbone = nn.Sequential(deep(2, 3), nn.Dropout())
    head, x = nn.Linear(3, 1), torch.randn(5, 2)
    optimizer, seen, right = sgd(parameters(head)), [], []
    backbone.train(not obey)
    with torch.set_grad_enabled(not obey):
        features = backbone(x)
    for _ in range(3):
        right += alone(head(backbone[0](x).detach()).square().mean(), parameters(head))
        optimizer.zero_grad()
        head(features).square().mean().backward()
        seen += grads(parameters(head))
        optimizer.step()
    return seen, right


@obeys("call `backward()` on `loss`, and add `loss.item()` to the total")
def logged_losses(obey):
    net, total, seen, right = deep(2, 1), 0.0, [], []
    for x in torch.randn(3, 4, 2):
        right += alone(net(x).square().mean(), parameters(net))
        loss = net(x).square().mean()
        net.zero_grad()
        if obey:
            loss.backward()
            total += loss.item()
        else:
            total = total + loss
            total.backward()
        seen += grads(parameters(net))
    return seen, right


@obeys("start a new list after each `backward()` that uses it")
def list_of_log_probs(obey):
    policy, log_probs, seen, right = deep(2, 3), [], [], []
    for states in torch.randn(3, 4, 2):
        right += alone(-policy(states).log_softmax(1)[:, 0].sum(), parameters(policy))
        log_probs += [policy(state).log_softmax(0)[0] for state in states]
        policy.zero_grad()
        (-torch.stack(log_probs).sum()).backward()
        seen += grads(parameters(policy))
        if obey:
            log_probs = []
    return seen, right


@obeys("store it detached")
def old_log_probs(obey):
    """PPO: several updates on what an earlier policy did."""
    policy, states, seen, right = deep(2, 3), torch.randn(4, 2), [], []

    def log_probs():
        return policy(states).log_softmax(1)[:, 0]

    optimizer, old = sgd(parameters(policy)), log_probs()
    if obey:
        old = old.detach()
    for _ in range(3):
        right += alone(-(log_probs() - old.detach()).exp().mean(), parameters(policy))
        optimizer.zero_grad()
        (-(log_probs() - old).exp().mean()).backward()
        seen += grads(parameters(policy))
        optimizer.step()
    return seen, right


@obeys("let gradtrace name the line")
def unknown(obey):
    """What the watch says is obeyed in its turn."""

    def loop(detach):
        cell, state = nn.GRUCell(2, 3), torch.zeros(1, 3)
        for x in torch.randn(2, 1, 2):
            state = cell(x, state.detach() if detach else state)
            cell.zero_grad()
            state.square().mean().backward()
        return grads(parameters(cell)), cell, x, state

    if not obey:
        return loop(detach=False)
    with pytest.raises(RuntimeError) as error, watch(strict=True):
        loop(detach=False)
    said = error.value.__notes__[-1]
    assert (
        "carried: state" in said and "at the end of each iteration: state = state.detach()" in said
    )
    torch.manual_seed(0)
    seen, *_ = loop(detach=True)
    torch.manual_seed(0)
    cell, (first, second) = nn.GRUCell(2, 3), torch.randn(2, 1, 2)
    known = cell(first, torch.zeros(1, 3)).detach()
    return seen, alone(cell(second, known).square().mean(), parameters(cell))


@obeys("put `cached()` around each iteration, not around the loop")
def cached_parametrization(obey):
    layer, x, seen, right = nn.Linear(2, 1), torch.randn(4, 2), [], []
    parametrize.register_parametrization(layer, "weight", nn.Tanh())
    optimizer, nothing = sgd(parameters(layer)), contextlib.nullcontext
    with nothing() if obey else parametrize.cached():
        for _ in range(3):
            weight = layer.parametrizations.weight.original
            alone_loss = nn.functional.linear(x, weight.tanh(), layer.bias).square().mean()
            right += alone(alone_loss, [weight, layer.bias])
            optimizer.zero_grad()
            with parametrize.cached() if obey else nothing():
                layer(x).square().mean().backward()
            seen += grads([weight, layer.bias])
            optimizer.step()
    return seen, right


# In the same iteration: two losses share a part.


def trunk_and_heads():
    return deep(2, 3), nn.Linear(3, 1), nn.Linear(3, 1), torch.randn(5, 2)


@obeys("add the losses, and call `backward()` once")
def both_train_it(obey):
    trunk, head1, head2, x = trunk_and_heads()
    trained = parameters(trunk, head1, head2)
    first = alone(head1(trunk(x)).square().mean(), trained)
    second = alone(head2(trunk(x)).exp().mean(), trained)
    features = trunk(x)
    loss1, loss2 = head1(features).square().mean(), head2(features).exp().mean()
    if obey:
        (loss1 + loss2).backward()
    else:
        loss1.backward()
        loss2.backward()
    return grads(trained), [a + b for a, b in zip(first, second, strict=True)]


def one_trains_it(detached_for, obey):
    trunk, *heads, x = trunk_and_heads()
    trained, other = parameters(trunk, heads[1 - detached_for]), heads[detached_for]
    right = alone(heads[1 - detached_for](trunk(x)).square().mean(), trained)
    right += alone(other(trunk(x)).square().mean(), parameters(other))
    features = trunk(x)
    for number, head in enumerate(heads):
        read = features.detach() if obey and number == detached_for else features
        head(read).square().mean().backward()
    return grads([*trained, *parameters(other)]), right


@obeys("`detach()` the shared tensor for the second")
def only_the_first(obey):
    return one_trains_it(1, obey)


@obeys("`detach()` the shared tensor for the first")
def only_the_second(obey):
    return one_trains_it(0, obey)


@obeys(
    "`detach()` the generated batch for the discriminator, step, then run the discriminator on "
    "the batch again for the generator; call each optimizer's `zero_grad()` right before its "
    "own `backward()`"
)
def gan(obey):
    """Two rounds: what the generator's loss leaves in the discriminator shows in the second."""
    generator, discriminator, seen, right = deep(2, 2), deep(2, 1), [], []
    optimizer_g, optimizer_d = sgd(parameters(generator)), sgd(parameters(discriminator))
    for noise, real in torch.randn(2, 2, 4, 2):
        apart = generator(noise).detach()
        right += alone(
            discriminator(apart).mean() - discriminator(real).mean(), parameters(discriminator)
        )
        fake = generator(noise)
        loss_d = discriminator(fake.detach() if obey else fake).mean() - discriminator(real).mean()
        optimizer_d.zero_grad()
        loss_d.backward()
        seen += grads(parameters(discriminator))
        optimizer_d.step()
        right += alone(-discriminator(generator(noise)).mean(), parameters(generator))
        loss_g = -discriminator(fake).mean()
        optimizer_g.zero_grad()
        loss_g.backward()
        seen += grads(parameters(generator))
        optimizer_g.step()
    return seen, right


def actor_critic(share_the_rating):
    """Critic and actor, and their losses: of one rating, or each of its own."""
    critic, actor, states = deep(2, 1), deep(3, 2), torch.randn(6, 3)

    def losses():
        rating = critic(actor(states))
        other = rating if share_the_rating else critic(actor(states).detach())
        return (other - 1).square().mean(), -rating.mean()

    return critic, actor, losses


@obeys(
    "`loss.backward(inputs=list(own.parameters()), retain_graph=True)` for each loss, without the "
    "flag for the last loss; make all calls before the optimizer steps"
)
def own_networks(obey):
    critic, actor, losses = actor_critic(share_the_rating=True)
    right = alone(losses()[0], parameters(critic)) + alone(losses()[1], parameters(actor))
    critic_loss, actor_loss = losses()
    if obey:
        critic_loss.backward(inputs=list(critic.parameters()), retain_graph=True)
        actor_loss.backward(inputs=list(actor.parameters()))
    else:
        critic_loss.backward()
        actor_loss.backward()
    seen = grads(parameters(critic, actor))
    for network in (critic, actor):
        sgd(parameters(network)).step()
    return seen, right


@obeys("`detach()` that value in the actor's loss, add the losses, and call `backward()` once")
def advantage_of_the_critic(obey):
    """Actor and critic on one trunk: the advantage weighs the actor's loss, and trains nothing."""
    trunk, actor, critic, states = deep(3, 2), nn.Linear(2, 2), nn.Linear(2, 1), torch.randn(6, 3)
    rewards, trained = torch.randn(6), parameters(trunk, actor, critic)

    def losses(weight):
        features = trunk(states).tanh()
        advantage = rewards - critic(features).squeeze(1)
        log_probs = actor(features).log_softmax(1)[:, 0]
        return advantage.square().mean(), -(log_probs * weight(advantage)).mean()

    critic_loss, actor_loss = losses(torch.Tensor.detach)
    right = alone(critic_loss + actor_loss, trained)
    if obey:
        critic_loss, actor_loss = losses(torch.Tensor.detach)
        (critic_loss + actor_loss).backward()
    else:
        critic_loss, actor_loss = losses(torch.Tensor.clone)
        critic_loss.backward()
        actor_loss.backward()
    return grads(trained), right


@obeys(
    "`h = shared.detach().requires_grad_()`; compute each loss from `h`, and immediately call its "
    "`backward()`; after the last loss, call `shared.backward(h.grad)`"
)
def in_pieces(obey):
    trunk, head, _, x = trunk_and_heads()
    trained = parameters(trunk, head)
    right = alone(head(trunk(x)).square().sum(), trained)
    shared = trunk(x)
    h = shared.detach().requires_grad_() if obey else shared
    for start in (0, 3):
        loss = head(h[start : start + 3]).square().sum()
        loss.backward()
    if obey:
        shared.backward(h.grad)
    return grads(trained), right


@obeys(
    "`torch.autograd.grad(loss, parameters, retain_graph=True)` for each loss, without the flag "
    "for the last loss"
)
def one_by_one(obey):
    trunk, head1, head2, x = trunk_and_heads()
    trained = parameters(trunk)
    right = alone(head1(trunk(x)).mean(), trained) + alone(head2(trunk(x)).mean(), trained)
    features = trunk(x)
    seen = torch.autograd.grad(head1(features).mean(), trained, retain_graph=obey)
    return [*seen, *torch.autograd.grad(head2(features).mean(), trained)], right


# On the same loss again.


@obeys("run the cell with the forward pass again, before each `backward()`")
def cell_again(obey):
    """Two cells of a notebook; the second is run twice."""
    names = {"w": torch.randn(3, requires_grad=True)}
    forward, backward = "loss = w.exp().sum()", "w.grad = None\nloss.backward()"
    for cell in [forward, backward, *([forward] if obey else []), backward]:
        exec(cell, names)
    return [names["w"].grad], [names["w"].detach().exp()]


@obeys("run the forward pass again")
def new_weights(obey):
    net, x = deep(2, 1), torch.randn(4, 2)
    optimizer, loss = sgd(parameters(net)), net(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    right = alone(net(x).square().mean(), parameters(net))
    if obey:
        loss = net(x).square().mean()
    loss.backward()
    return grads(parameters(net)), right


@obeys("put `zero_grad()`, the forward pass, the loss and `backward()` into the closure")
def lbfgs(obey):
    net, x, seen, right = deep(2, 1), torch.randn(4, 2), [], []
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=4)
    once = net(x).square().mean()

    def closure():
        right.extend(alone(net(x).square().mean(), parameters(net)))
        optimizer.zero_grad()
        loss = net(x).square().mean() if obey else once
        loss.backward()
        seen.extend(grads(parameters(net)))
        return loss

    optimizer.step(closure)
    assert len(seen) > len(parameters(net)), "one call only: nothing was tried"
    return seen, right


@obeys("compute the first gradient with `torch.autograd.grad(…, create_graph=True)`")
def gradient_of_gradient(obey):
    x = torch.randn(3, requires_grad=True)
    y = x.pow(3).sum()
    (first,) = torch.autograd.grad(y, x, create_graph=obey)
    second = torch.autograd.grad(first.sum() if obey else y, x)
    return list(second), [6 * x.detach()]


@obeys(
    "call `torch.autograd.grad(y, x, v, retain_graph=True)` for each `v`, without the flag for the"
    " last `v`"
)
def rows_of_a_jacobian(obey):
    x = torch.randn(3, requires_grad=True)

    def f(x):
        return x.exp() * x.sum()

    y = f(x)
    rows = [torch.autograd.grad(y, x, v, retain_graph=obey)[0] for v in torch.eye(3)[:-1]]
    rows += torch.autograd.grad(y, x, torch.eye(3)[-1])
    return rows, list(torch.autograd.functional.jacobian(f, x.detach()))


@obeys("continue from `b` with `b.backward(gradient_of_b)`")
def result_in_between(obey):
    a = torch.randn(3, requires_grad=True)
    b = a.exp()
    loss = b.sin().sum()
    (gradient_of_b,) = torch.autograd.grad(loss, b)
    b.backward(gradient_of_b) if obey else loss.backward()
    return grads([a]), alone(a.exp().sin().sum(), [a])


@obeys("call `torch.autograd.grad(loss, b)` instead, then `b.backward(gradient_of_b)`")
def result_among_the_inputs(obey):
    a = torch.randn(3, requires_grad=True)
    b = a.exp()
    loss = b.sin().sum()
    if obey:
        (gradient_of_b,) = torch.autograd.grad(loss, b)
    else:
        loss.backward(inputs=[b])
        gradient_of_b = b.grad
    b.backward(gradient_of_b)
    return grads([a]), alone(a.exp().sin().sum(), [a])


# Modified by an inplace operation.


@obeys("run its forward pass after the step, and call `zero_grad()` before its `backward()`")
def loss_of_the_new_weights(obey):
    critic, actor, losses = actor_critic(share_the_rating=False)
    optimizer, actors = sgd(parameters(critic)), sgd(parameters(actor))
    actor_loss = losses()[1]
    optimizer.zero_grad()
    losses()[0].backward()
    optimizer.step()
    right = alone(losses()[1], parameters(actor))
    if obey:
        actor_loss = losses()[1]
        actors.zero_grad()
    actor_loss.backward()
    return grads(parameters(actor)), right


@obeys(
    "`detach()` each of its tensors after the batch's `backward()`, and remove `retain_graph=True`"
)
def retained_state(obey):
    rnn, state = nn.RNN(2, 3), torch.zeros(1, 1, 3)
    optimizer, seen, right = sgd(parameters(rnn)), [], []
    for batch in torch.randn(3, 4, 1, 2):
        right += alone(rnn(batch, state.detach())[0].square().mean(), parameters(rnn))
        output, state = rnn(batch, state)
        optimizer.zero_grad()
        output.square().mean().backward(retain_graph=not obey)
        seen += grads(parameters(rnn))
        optimizer.step()
        if obey:
            state = state.detach()
    return seen, right


@obeys(
    "`loss.backward(inputs=list(own.parameters()))` for each loss; make all calls before the "
    "optimizer steps"
)
def losses_of_the_old_weights(obey):
    critic, actor, losses = actor_critic(share_the_rating=False)
    right = alone(losses()[0], parameters(critic)) + alone(losses()[1], parameters(actor))
    critic_loss, actor_loss = losses()
    if obey:
        critic_loss.backward(inputs=list(critic.parameters()))
        actor_loss.backward(inputs=list(actor.parameters()))
    else:
        critic_loss.backward()
        sgd(parameters(critic)).step()
        actor_loss.backward()
    return grads(parameters(critic, actor)), right


@obeys("add the losses, call `backward()` once and step once")
def two_losses_one_step(obey):
    net, x = deep(2, 2), torch.randn(4, 2)
    first = alone(net(x).square().mean(), parameters(net))
    second = alone(net(x).exp().mean(), parameters(net))
    optimizer, output = sgd(parameters(net)), net(x)
    loss1, loss2 = output.square().mean(), output.exp().mean()
    if obey:
        (loss1 + loss2).backward()
    else:
        loss1.backward(retain_graph=True)
        optimizer.step()
        loss2.backward()
    seen = grads(parameters(net))
    optimizer.step()
    return seen, [a + b for a, b in zip(first, second, strict=True)]


@obeys(
    "compute the step as a new tensor, `fast = w - lr * gradient`, with `torch.autograd.grad(…,"
    " create_graph=True)`"
)
def through_the_step(obey):
    start, lr = torch.tensor(1.0, dtype=torch.float64), 0.1
    w = start.clone().requires_grad_()
    if obey:
        (gradient,) = torch.autograd.grad(w**3, w, create_graph=True)
        fast = w - lr * gradient
        (fast**2).backward()
    else:
        inner = w**3
        inner.backward(create_graph=True)
        torch.optim.SGD([w], lr=lr).step()
        (inner + w**2).backward()
    return [w.grad], [2 * (start - lr * 3 * start**2) * (1 - lr * 6 * start)]  # by hand


@obeys("set `inplace=False`")
def layer_in_place(obey):
    layer, x = nn.Linear(2, 3), torch.randn(4, 2)
    right = alone(nn.functional.relu(layer(x).tanh()).sum(), parameters(layer))
    net = nn.Sequential(layer, nn.Tanh(), nn.ReLU(inplace=not obey))
    net(x).sum().backward()
    return grads(parameters(layer)), right


@obeys("pass `embedding.weight.clone()` to the other use")
def renormalised_embedding(obey):
    embedding = nn.Embedding(5, 3, max_norm=1.0)
    ids, hidden = torch.tensor([0, 2]), torch.randn(2, 3, requires_grad=True)
    trained = [embedding.weight, hidden]
    before = embedding.weight.detach().clone().requires_grad_()
    right = alone((hidden @ before.T).square().mean(), [before, hidden])
    weight = embedding.weight.clone() if obey else embedding.weight
    scores = hidden @ weight.T
    found = embedding(ids)  # writes rows 0 and 2 of the weight
    rows = torch.zeros(5, 3).index_add(0, ids, 2 * found.detach())
    (scores.square().mean() + found.square().sum()).backward()
    return grads(trained), [right[0] + rows, right[1]]


@obeys("recompute the loss after the update")
def update_by_hand(obey):
    w, x = torch.ones(3, requires_grad=True), torch.randn(3)
    loss = (w * w * x).sum()
    (w * x).sum().backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
    right = alone((w * w * x).sum(), [w])
    if obey:
        loss = (w * w * x).sum()
    w.grad = None
    loss.backward()
    return grads([w]), right


@obeys("create a new tensor instead")
def line_of_mine(obey):
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    if obey:
        y = y + 1
    else:
        y += 1
    y.square().sum().backward()
    return grads([x]), alone((x.exp() + 1).square().sum(), [x])


@pytest.mark.parametrize("way", ["torch.stack", "clone()"])
def test_an_element_is_written_without_changing_what_was_saved(way):
    """The note of the same end."""
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    if way == "torch.stack":
        result = torch.stack([y[0], y[1] * 2, y[2]])
    else:
        result = y.clone()
        result[1] = y[1] * 2
    result.sum().backward()
    assert close(grads([x]), [x.detach().exp() * torch.tensor([1.0, 2.0, 1.0])])


# Donated buffers of a compiled function.


def compiled():
    """A compiled net (no C++ compiler is needed), the same uncompiled, and data."""
    torch._dynamo.reset()
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 4))
    function = torch.compile(net, backend="aot_eager")
    x = torch.randn(8, 4, requires_grad=True)
    function(x).square().mean().backward()  # compiles the backward, too
    clear([x, *parameters(net)])
    return net, function, x


@obeys("add the losses, and remove the flag")
def compiled_two_losses(obey):
    net, function, x = compiled()
    first = alone(net(x).square().mean(), parameters(net))
    second = alone(net(x).exp().mean(), parameters(net))
    output = function(x)
    loss1, loss2 = output.square().mean(), output.exp().mean()
    if obey:
        (loss1 + loss2).backward()
    else:
        loss1.backward(retain_graph=True)
        loss2.backward()
    return grads(parameters(net)), [a + b for a, b in zip(first, second, strict=True)]


@obeys(
    "`import torch._functorch.config`, then `torch._functorch.config.donated_buffer = False`, "
    "before the function is compiled"
)
def compiled_walked_twice(obey):
    with torch._functorch.config.patch(donated_buffer=not obey):  # the setting, and back again
        net, function, x = compiled()
        right = alone(net(x).square().mean(), parameters(net))
        loss = function(x).square().mean()
        loss.backward(retain_graph=True)
        seen = grads(parameters(net))
        net.zero_grad()
        loss.backward()
    return seen + grads(parameters(net)), right + right


@obeys("leave that function uncompiled, `torch.compiler.disable(f)`")
def compiled_second_derivative(obey):
    net, function, x = compiled()

    def penalty(f):
        (gradient,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        return gradient.square().sum()

    right = alone(penalty(net), parameters(net))
    penalty(torch.compiler.disable(net) if obey else function).backward()
    return grads(parameters(net)), right


# A checkpoint that does something else when it runs again.

# Once a debugged checkpoint has cut this logger off from the root, pytest adds its own handler to
# it before each later test, and that handler cannot format the records.
WITHOUT_HANDLERS = mock.patch.object(logging.getLogger("LoggingTensor"), "handlers", [])


def test_a_checkpoint_with_debug_prints_the_operations_of_both_runs(capfd):
    runs = []

    def part(x):
        runs.append(x)
        return x.exp().sin() if len(runs) == 1 else x.exp()

    with WITHOUT_HANDLERS, pytest.raises(CheckpointError) as raised:
        x = torch.ones(3, requires_grad=True)
        checkpoint(part, x, use_reentrant=False, debug=True).sum().backward()
    text = str(raised.value) + "".join(capfd.readouterr())
    assert "aten::sin" in text or "aten.sin" in text
    assert text.count("aten::exp") + text.count("aten.exp") >= 2


@obeys("let `checkpoint(…, debug=True)` print the operations of both runs")
def unknown_in_a_checkpoint(obey):
    """What it prints names the operation that changed; its cause is then passed as an argument."""
    x, mode = torch.randn(3, requires_grad=True), {"sine": True}

    def run(part, *arguments, **flags):
        mode["sine"] = True
        loss = checkpoint(part, x, *arguments, use_reentrant=False, **flags).sum()
        mode["sine"] = False
        loss.backward()

    def part(x):
        return x.exp().sin() if mode["sine"] else x.exp()

    if not obey:
        run(part)
    else:
        with WITHOUT_HANDLERS, pytest.raises(CheckpointError) as raised:
            run(part, debug=True)
        assert "aten.sin" in str(raised.value)
        run(lambda x, sine: x.exp().sin() if sine else x.exp(), True)
    return grads([x]), alone(x.exp().sin().sum(), [x])


@obeys("read it before the checkpoint, and pass it as an argument")
def flag_in_a_checkpoint(obey):
    """A schedule that has gone on by the time of the backward pass."""
    x, schedule = torch.randn(3, requires_grad=True), {"squared": True}

    def part(x, squared=None):
        return x.exp().square() if (schedule["squared"] and squared is None) or squared else x.exp()

    arguments = [schedule["squared"]] if obey else []
    right = alone(x.exp().square().sum(), [x])
    loss = checkpoint(part, x, *arguments, use_reentrant=False).sum()
    schedule["squared"] = False
    loss.backward()
    return grads([x]), right


@obeys("compute it outside the checkpoint, and pass it as an argument")
def cache_in_a_checkpoint(obey):
    scale, x, cache = torch.randn(3, requires_grad=True), torch.randn(3), []

    def part(x, factor=None):
        if factor is None:
            if not cache:
                cache.append(scale.exp())
            factor = cache[0]
        return (x * factor).sin()

    outside = [scale.exp()] if obey else []
    checkpoint(part, x, *outside, use_reentrant=False).sum().backward()
    return grads([scale]), alone((x * scale.exp()).sin().sum(), [scale])


# What the optimizer is given is not a leaf.


@obeys("create the tensor without `requires_grad=True`, and call `requires_grad_()` on the result")
def scaled_numbers(obey):
    numbers = torch.randn(3, requires_grad=not obey)
    start = 0.1 * numbers
    if obey:
        start.requires_grad_()
    optimizer = sgd([start])
    start.exp().sum().backward()
    right = [start.detach().exp()]
    before = start.detach().clone()
    optimizer.step()
    return [10 * (before - start.detach())], right


@obeys("give that parameter to the optimizer, and compute the tensor from it in each iteration")
def constrained(obey):
    """A scale that stays positive, over two steps."""
    free = torch.randn(3, requires_grad=True)
    optimizer, seen, right = sgd([free if obey else free.exp()]), [], []
    for _ in range(2):
        scale = free.exp()
        optimizer.zero_grad()
        scale.square().sum().backward()
        seen.append(free.grad.clone())
        right.append(2 * free.detach().exp().square())
        optimizer.step()
    return seen, right


# The loss is no tensor, or is copied, or leaves torch.


@obeys("compute it by operations on tensors, in each branch")
def number_in_a_branch(obey):
    x = torch.randn(3, requires_grad=True)
    risk = x.exp().sum()
    if risk > 0:
        risk = -0.5 * risk if obey else -0.5
    risk.backward()
    return grads([x]), [-0.5 * x.detach().exp()]


@obeys(
    "create the module first, `criterion = Criterion()`, then call it, "
    "`loss = criterion(output, target)`"
)
def module_instead_of_a_loss(obey):
    class Criterion(nn.Module):
        def __init__(self, *options):
            super().__init__()

        def forward(self, output, target):
            return (output - target).square().sum()

    output, target = torch.randn(3, requires_grad=True), torch.randn(3)
    criterion = Criterion()
    loss = criterion(output, target) if obey else Criterion(output, target)
    loss.backward()
    return grads([output]), [2 * (output.detach() - target)]


@obeys("store that tensor detached, or keep it in a local variable")
def copied_module(obey):
    class Net(nn.Linear):
        def forward(self, x):
            feature = super().forward(x)
            if self.way != "local":
                self.feature = feature.detach() if self.way == "detached" else feature
            return feature.square().sum()

    seen, right = [], []
    for way in ("detached", "local") if obey else ("kept",):
        net, x = Net(2, 1), torch.randn(2)
        net.way = way
        net(x)
        second = copy.deepcopy(net)
        second(x).backward()
        seen += grads(parameters(second))
        right += alone(net(x), parameters(net))
    return seen, right


@obeys("call `x.detach().clone()` instead of `deepcopy(x)`")
def copied_tensor(obey):
    start = torch.randn(3, requires_grad=True)
    x = start.exp()
    kept = x.detach().clone() if obey else copy.deepcopy(x)
    x.sum().backward()
    return [kept, *grads([start])], 2 * [start.detach().exp()]


@obeys(
    "use the torch function instead, for example `torch.stack(parts).sum(0)` for `np.sum(parts, 0)`"
)
def numpy_in_the_model(obey):
    x = torch.randn(3, requires_grad=True)
    parts = [x.exp(), x.sin()]
    total = torch.stack(parts).sum(0) if obey else torch.as_tensor(np.sum(parts, 0))
    total.sum().backward()
    return grads([x]), [x.detach().exp() + x.detach().cos()]


@obeys("call `.detach().cpu().numpy()` on the tensor")
def numpy_for_a_plot(obey):
    x = torch.randn(3, requires_grad=True)
    output = x.exp()
    points = output.detach().cpu().numpy() if obey else output.numpy()
    output.sum().backward()
    return [torch.tensor(points), *grads([x])], 2 * [x.detach().exp()]


# A view, and a write to it.


@obeys("let no operation write into the module's input or output")
def hook_on_a_module(obey):
    first, x = nn.Linear(2, 3), torch.randn(4, 2)
    right = alone(first(x).relu().mul(2).sum(), parameters(first))
    net = nn.Sequential(first, nn.ReLU(inplace=True))
    seen = []
    first.register_full_backward_hook(lambda module, before, after: seen.append(after))
    if obey:
        for part in net.modules():
            part.inplace = False
    y = net(x.requires_grad_())
    y = y + y if obey else y.add_(y)
    y.sum().backward()
    return grads(parameters(first)), right if seen else []


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return 3 * gradient


@obeys("compute a new tensor, `y = y * 10`, or write into `y.clone()`")
def returned_input(obey):
    seen = []
    for way in ("new", "clone"):
        x = torch.randn(3, requires_grad=True)
        y = Same.apply(x * 1)
        if not obey:
            y *= 10
        elif way == "new":
            y = y * 10
        else:
            y = y.clone()
            y *= 10
        y.sum().backward()
        seen += grads([x])
    return seen, [torch.full((3,), 30.0)] * 2


@obeys("create the view and write to it both inside `no_grad`, or both outside")
def view_by_hand(obey):
    seen, right = [], []
    for inside in (True, False):
        w = torch.randn(3, requires_grad=True)
        h = w * 1
        with torch.no_grad() if inside or not obey else contextlib.nullcontext():
            view = h[:2]
            if obey:
                view *= 5
        if not obey:
            view *= 5
        h.square().sum().backward()
        seen += grads([w])
        factor = 10 if inside else 50  # only a recorded write is part of the function
        right.append(w.detach() * torch.tensor([factor, factor, 2]))
    return seen, right


@obeys("write into a copy, `x = x.clone()`, right before the line that raises")
def view_of_a_library(obey):
    @torch.no_grad()
    def replica(batch):
        return batch.narrow(0, 0, 2)

    w, batch = torch.randn(2, requires_grad=True), torch.arange(4.0)
    x = replica(batch)
    if obey:
        x = x.clone()
    x[1] = 2 * w[1]
    (x * w).sum().backward()
    return grads([w]), [torch.stack([batch[0], 4 * w.detach()[1]])]


# Tensors of inference mode.


@obeys("pass `inference_mode=False` to the `Trainer`")
def validated_first(obey):
    """What Lightning's flag chooses: the context in which it validates."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.table = nn.Linear(2, 1), None

        def forward(self, x):
            if self.table is None:
                self.table = torch.arange(2.0) + 1
            return self.head(x * self.table)

    model, x = Model(), torch.randn(4, 2)
    with torch.no_grad() if obey else torch.inference_mode():
        model(x)
    model.head.weight.requires_grad_()
    x.requires_grad_()
    model(x).sum().backward()
    return grads([model.head.weight]), [(x.detach() * torch.tensor([1.0, 2.0])).sum(0)[None]]


@obeys("compute it under `torch.no_grad()` instead")
def features_of_inference(obey):
    backbone, head, x = deep(2, 3), nn.Linear(3, 1), torch.randn(4, 2)
    with torch.no_grad() if obey else torch.inference_mode():
        features = backbone(x)
    head(features).square().mean().backward()
    right = alone(head(backbone(x).detach()).square().mean(), parameters(head))
    return grads(parameters(head)), right


@obeys("`clone()` it outside inference mode, before the recorded operation uses it")
def cached_in_inference(obey):
    with torch.inference_mode():
        table = torch.arange(3.0)
    w = torch.randn(3, requires_grad=True)
    if obey:
        table = table.clone()
    (w * table).sum().backward()
    return grads([w]), [torch.arange(3.0)]


# The output does not depend on the tensor.


@obeys("run the forward pass on the result that was computed from this tensor")
def perturbed(obey):
    net, x = deep(2, 1), torch.randn(4, 2)
    noise = torch.zeros(4, 2, requires_grad=True)
    moved = x + noise
    loss = net(moved if obey else x).square().mean()
    direct = x.clone().requires_grad_()
    return list(torch.autograd.grad(loss, noise)), alone(net(direct).square().mean(), [direct])


@obeys("use the tensor itself in that line")
def perturbed_by_a_copy(obey):
    net, x = deep(2, 1), torch.randn(4, 2)
    noise = torch.zeros(4, 2, requires_grad=True)
    loss = net(x + (noise if obey else noise.data)).square().mean()
    direct = x.clone().requires_grad_()
    return list(torch.autograd.grad(loss, noise)), alone(net(direct).square().mean(), [direct])


@obeys("pass the tensor that the forward pass used")
def another_view(obey):
    x = torch.randn(4, requires_grad=True)
    used = x.view(2, 2)
    loss = used.square().sum()
    return list(torch.autograd.grad(loss, used if obey else x.view(2, 2))), [2 * used.detach()]


@obeys("set `allow_unused=True`, and skip each `None`")
def unused_head(obey):
    net, unused, x = nn.Linear(2, 1), nn.Linear(2, 1), torch.randn(4, 2)
    trained = parameters(net, unused)
    found = torch.autograd.grad(net(x).square().mean(), trained, allow_unused=obey)
    seen = [gradient for gradient in found if gradient is not None]
    return seen, alone(net(x).square().mean(), parameters(net))


# There is no graph.


def critic_and_penalty(**flags):
    """The score of a critic, and the penalty on its gradient by the input."""
    critic, x = deep(2, 1), torch.randn(4, 2, requires_grad=True)
    score = critic(x).sum()
    (slope,) = torch.autograd.grad(score, x, **flags)
    return critic, x, score, (slope.norm(dim=1) - 1).square().sum()


def penalty_alone(critic, x):
    """The penalty, its gradient by the input written out by hand."""
    first, _, last = critic
    hidden = torch.tanh(first(x.detach()))
    slope = ((1 - hidden.square()) * last.weight) @ first.weight
    return (slope.norm(dim=1) - 1).square().sum()


@obeys("set `create_graph=True` in the call that computes the gradient")
def penalty_only(obey):
    critic, x, _, penalty = critic_and_penalty(create_graph=obey, retain_graph=True)
    penalty.backward()
    return grads(parameters(critic)), alone(penalty_alone(critic, x), parameters(critic))


class Cube(torch.autograd.Function):
    """A backward that leaves no graph, as the adjoint method of an ODE solver."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 3 * x.detach().square()


@obeys("use ordinary operations instead")
def second_derivative_of_a_function(obey):
    x = torch.randn(3, requires_grad=True)
    cube = x**3 if obey else Cube.apply(x)
    (slope,) = torch.autograd.grad(cube.sum(), x, create_graph=True)
    slope.sum().backward()
    return grads([x]), [6 * x.detach()]


@obeys("compute the loss from the input of that operation")
def hard_labels(obey):
    net, x, labels = deep(2, 3), torch.randn(4, 2), torch.tensor([0, 2, 1, 1])
    wanted = nn.functional.one_hot(labels, 3)
    right = alone(-(net(x).log_softmax(1) * wanted).sum(1).mean(), parameters(net))
    logits = net(x)
    if obey:
        nn.functional.cross_entropy(logits, labels).backward()
    else:
        nn.functional.mse_loss(logits.argmax(1).float(), labels.float()).backward()
    return grads(parameters(net)), right


@obeys("run its forward pass outside `torch.no_grad()`")
def trained_without_graph(obey):
    backbone, head, x = deep(2, 3), nn.Linear(3, 1), torch.randn(4, 2)
    right = alone(head(backbone(x).detach()).square().mean(), parameters(head))
    with torch.no_grad():
        features = backbone(x)
    with torch.set_grad_enabled(obey):
        output = head(features)
    output.square().mean().backward()
    return grads(parameters(head)), right


@obeys("freeze the part by `requires_grad_(False)`, and run it without `torch.no_grad()`")
def through_a_frozen_part(obey):
    frozen, prompt = deep(2, 1), torch.randn(1, 2, requires_grad=True)
    right = alone(frozen(prompt).square().sum(), [prompt])
    if obey:
        frozen.requires_grad_(False)
    with torch.set_grad_enabled(obey):
        loss = frozen(prompt).square().sum()
    loss.backward()
    assert all(parameter.grad is None for parameter in frozen.parameters())
    return grads([prompt]), right


@obeys(
    "set `use_reentrant=False`, or let an input require grad (`model.enable_input_require_grads()`"
    " in transformers)"
)
def checkpointed_adapter(obey):
    """A frozen embedding, then a checkpoint of a frozen layer with an adapter."""
    embedding, frozen, adapter = nn.Embedding(4, 3), nn.Linear(3, 3), nn.Linear(3, 3)
    for module in (embedding, frozen):
        module.requires_grad_(False)
    ids, seen, right = torch.tensor([0, 2]), [], []

    def block(x):
        return (frozen(x) + adapter(x)).tanh()

    for way in ("not reentrant", "input") if obey else ("neither",):
        right += alone(block(embedding(ids)).sum(), parameters(adapter))
        clear(parameters(adapter))
        hidden = embedding(ids)
        if way == "input":
            hidden.requires_grad_()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="None of the inputs have requires_grad=True")
            out = checkpoint(block, hidden, use_reentrant=way != "not reentrant")
        out.sum().backward()
        seen += grads(parameters(adapter))
    return seen, right


@obeys("call `requires_grad_(True)` on the parameters to train, before the forward pass")
def frozen_throughout(obey):
    net, x = deep(2, 1), torch.randn(4, 2)
    right = alone(net(x).square().mean(), parameters(net[2]))
    net.requires_grad_(False)
    if obey:
        net[2].requires_grad_(True)
    net(x).square().mean().backward()
    return grads(parameters(net[2])), right


@obeys("find the step where `requires_grad` turns `False`, and remove it")
def cut_on_the_way(obey):
    x = torch.randn(3, requires_grad=True)
    steps = [torch.exp, lambda t: t.sin(), lambda t: torch.tensor(t.tolist()), torch.sum]
    if obey:
        results = [x]
        for step in steps:
            results.append(step(results[-1]))
        cut = [result.requires_grad for result in results].index(False) - 1
        assert cut == 2
        del steps[cut]
    result = x
    for step in steps:
        result = step(result)
    result.backward()
    return grads([x]), alone(x.exp().sin().sum(), [x])


# Memory grows: the number of nodes that are kept is to be that of the first iteration.


def kept_over(iterations: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    counts = torch.tensor(iterations, dtype=torch.float)
    return counts, counts[:1].expand_as(counts)


@obeys("store `loss.item()` or `output.detach()`")
def kept_losses(obey):
    net, total, outputs, counts, seen, right = deep(2, 1), 0.0, [], [], [], []
    for x in torch.randn(3, 4, 2):
        right += alone(net(x).square().mean(), parameters(net))
        output = net(x)
        loss = output.square().mean()
        net.zero_grad()
        loss.backward()
        seen += grads(parameters(net))
        total += loss.item() if obey else loss
        outputs.append(output.detach() if obey else output)
        kept = [tensor for tensor in (total, *outputs) if getattr(tensor, "requires_grad", False)]
        counts.append(len(snapshot(loss, *kept).nodes))
    nodes, one_graph = kept_over(counts)
    return [*seen, nodes], [*right, one_graph]


@obeys("clear it after the update")
def kept_list(obey):
    policy, log_probs, counts, seen, right = deep(2, 3), [], [], [], []
    for states in torch.randn(3, 4, 2):
        right += alone(-policy(states).log_softmax(1)[:, 0].sum(), parameters(policy))
        log_probs += [policy(state).log_softmax(0)[0] for state in states]
        policy.zero_grad()
        (-torch.stack(log_probs[-4:]).sum()).backward()
        seen += grads(parameters(policy))
        counts.append(len(snapshot(*log_probs).nodes))
        if obey:
            log_probs.clear()
    nodes, one_graph = kept_over(counts)
    return [*seen, nodes], [*right, one_graph]


@obeys("`detach()` it at the end of each iteration, and remove the flag")
def kept_state(obey):
    cell, state, counts, seen, right = nn.GRUCell(2, 3), torch.zeros(1, 3), [], [], []
    for x in torch.randn(3, 1, 2):
        right += alone(cell(x, state.detach()).square().mean(), parameters(cell))
        state = cell(x, state)
        cell.zero_grad()
        state.square().mean().backward(retain_graph=not obey)
        seen += grads(parameters(cell))
        counts.append(len(snapshot(state).nodes))
        if obey:
            state = state.detach()
    nodes, one_graph = kept_over(counts)
    return [*seen, nodes], [*right, one_graph]


@obeys("use `torch.autograd.grad`, or set `.grad` to `None` after use")
def kept_gradient(obey):
    alive, seen, right = [], [], []
    for way in ("grad", "None") if obey else ("backward",):
        w = torch.randn(3, requires_grad=True)
        right += [3 * w.detach() ** 2]
        if way == "grad":
            seen += torch.autograd.grad(w.pow(3).sum(), w, create_graph=True)
        else:
            w.pow(3).sum().backward(create_graph=True)
            seen += [w.grad.detach().clone()]
        if way == "None":
            w.grad = None
        seen[-1] = seen[-1].detach()
        alive.append(weakref.ref(w))
        del w
    gc.collect()
    left = torch.tensor([float(leaf() is not None) for leaf in alive])
    return [*seen, left], [*right, torch.zeros_like(left)]


@obeys("run each part of the model with `checkpoint(part, x, use_reentrant=False)`")
def too_many_activations(obey):
    parts, x = [deep(3, 3) for _ in range(3)], torch.randn(4, 3)
    inputs, result = [x], x
    right = alone(nn.Sequential(*parts)(x).sum(), parameters(*parts))
    for part in parts:
        result = checkpoint(part, result, use_reentrant=False) if obey else part(result)
        inputs.append(result)
    held = torch.tensor(float(snapshot(result, inputs=inputs).held.activations))
    result.sum().backward()
    return [*grads(parameters(*parts)), held], [*right, torch.zeros_like(held)]


def gone(*tensors: weakref.ref) -> torch.Tensor:
    return torch.tensor([float(tensor() is None) for tensor in tensors])


@obeys("call `ctx.save_for_backward(y)` instead of `ctx.y = y`")
def output_on_ctx(obey):
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            if obey:
                ctx.save_for_backward(y)
            else:
                ctx.y = y
            return y

        @staticmethod
        def backward(ctx, gradient):
            return gradient * (ctx.saved_tensors[0] if obey else ctx.y)

    x = torch.randn(3, requires_grad=True)
    gc.disable()
    try:
        y = Exp.apply(x)
        memory = weakref.ref(y)
        y.sum().backward()
        del y
        left = gone(memory)
    finally:
        gc.enable()
    return [*grads([x]), left], [x.detach().exp(), torch.ones(1)]


@obeys("call `handle.remove()` after the backward pass, or let the function use `y.detach()`")
def hook_on_itself(obey):
    seen, right = [], []
    for way in ("remove", "detach") if obey else ("neither",):
        x = torch.randn(3, requires_grad=True)
        y = x.exp()
        right += [x.detach().exp() * y.detach().mean(), torch.ones(1)]
        used = y.detach() if way == "detach" else y
        handle = y.register_hook(lambda gradient, used=used: gradient * used.mean())
        y.sum().backward()
        if way == "remove":
            handle.remove()
        memory = weakref.ref(y.untyped_storage())
        del y, used, handle
        gc.collect()
        seen += [*grads([x]), gone(memory)]
    return seen, right


# No error, and the gradient is wrong or missing.


@obeys("move the step or the write after the backward pass")
def unseen_write(obey):
    seen, right = [], []
    for write in ("fused", ".data"):
        net, x = deep(2, 1), torch.randn(4, 2)
        optimizer = sgd(parameters(net), fused=True)
        net(x).mean().backward()
        right += alone(net(x).square().mean(), parameters(net))
        loss = net(x).square().mean()

        def change(net=net, optimizer=optimizer, write=write):
            if write == "fused":
                optimizer.step()
            else:
                net[2].weight.data.add_(1)

        if not obey:
            change()
        optimizer.zero_grad()
        loss.backward()
        seen += grads(parameters(net))
        if obey:
            change()
    return seen, right


@obeys("run the forward pass after the step")
def checkpoint_and_step(obey):
    net, x = deep(2, 1), torch.randn(4, 2)
    optimizer = sgd(parameters(net))
    net(x).mean().backward()
    loss = checkpoint(net, x, use_reentrant=False).square().mean()
    right = alone(net(x).square().mean(), parameters(net))
    optimizer.step()
    if obey:
        right = alone(net(x).square().mean(), parameters(net))
        loss = checkpoint(net, x, use_reentrant=False).square().mean()
    optimizer.zero_grad()
    loss.backward()
    return grads(parameters(net)), right


@obeys("set `use_reentrant=False`")
def checkpoint_of_data(obey):
    first, second, x = nn.Linear(3, 2), nn.Linear(2, 1), torch.randn(4, 3)
    right = alone(second(first(x)).sum(), parameters(first, second))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="None of the inputs have requires_grad=True")
        hidden = checkpoint(first, x, use_reentrant=not obey)
    second(hidden).sum().backward()
    return grads(parameters(first, second)), right


@obeys("pass the changing value as an argument")
def checkpoint_of_a_schedule(obey):
    x, now = torch.randn(3, requires_grad=True), [1.0]

    def part(x, strength=None):
        return (x * (now[0] if strength is None else strength)).exp()

    right = alone(part(x).sum(), [x])
    arguments = now if obey else []
    out = checkpoint(part, x, *arguments, use_reentrant=False)
    now[0] = 2.0
    out.sum().backward()
    return grads([x]), right


@obeys("write into a `clone()` of it")
def packed_and_written(obey):
    x = torch.randn(3, requires_grad=True)
    with torch.autograd.graph.save_on_cpu():
        y = x.exp()
        written = y.clone() if obey else y
        written += 1
    written.square().sum().backward()
    return grads([x]), alone((x.exp() + 1).square().sum(), [x])


@obeys("step after the backward pass")
def step_during_backward(obey):
    weight, x = torch.randn(4, 4, requires_grad=True), torch.randn(1, 4, requires_grad=True)

    def loss():
        return (torch.tanh(x @ weight.detach()) @ weight).square().sum()

    optimizer, right = sgd([weight], fused=True), alone(loss(), [x])
    if not obey:
        weight.register_post_accumulate_grad_hook(lambda parameter: optimizer.step())
    loss().backward()
    if obey:
        optimizer.step()
    return grads([x]), right


@obeys("set `create_graph=True` instead")
def penalty_and_score(obey):
    """A gradient penalty beside a score; and MAML, its inner step."""
    flag = {"create_graph": True} if obey else {"retain_graph": True}
    critic, x, score, penalty = critic_and_penalty(**flag)
    (score + penalty).backward()
    seen = grads(parameters(critic))
    first, second = alone(critic(x).sum(), parameters(critic)), penalty_alone(critic, x)
    second = alone(second, parameters(critic))
    right = [a + b for a, b in zip(first, second, strict=True)]

    w = torch.tensor(1.0, requires_grad=True)
    (inner,) = torch.autograd.grad(w**3 / 3, w, **flag)
    ((w - 0.1 * inner) ** 2 / 2).backward()
    exact = (w - 0.1 * w**2) * (1 - 0.2 * w)  # by hand
    return [*seen, w.grad], [*right, exact.detach()]


@obeys(
    "make that step a new tensor, `fast = w - lr * gradient`, with `torch.autograd.grad(…, "
    "create_graph=True)`"
)
def inner_step(obey):
    start, lr = torch.tensor(1.0, dtype=torch.float64), 0.1
    w = start.clone().requires_grad_()
    if obey:
        (gradient,) = torch.autograd.grad(w**3, w, create_graph=True)
        ((w - lr * gradient) ** 2).backward()
    else:
        (w**3).backward(create_graph=True)
        torch.optim.SGD([w], lr=lr).step()
        w.grad = None
        (w**2).backward()
    return [w.grad], [2 * (start - lr * 3 * start**2) * (1 - lr * 6 * start)]  # by hand


@obeys("for each optimizer in turn: forward pass, its own `zero_grad()`, `backward()`, step")
def several_optimizers(obey):
    critic, actor, losses = actor_critic(share_the_rating=False)
    networks, seen, right = (critic, actor), [], []
    optimizers = [sgd(parameters(network)) for network in networks]
    for _ in range(2):
        if not obey:  # all backward passes first, then all steps
            for optimizer in optimizers:
                optimizer.zero_grad()
            for loss in losses():
                loss.backward()
        for number, (network, optimizer) in enumerate(zip(networks, optimizers, strict=True)):
            right += alone(losses()[number], parameters(network))
            if obey:
                loss = losses()[number]
                optimizer.zero_grad()
                loss.backward()
            seen += grads(parameters(network))
            optimizer.step()
    return seen, right


@obeys(
    "`detach()` the generated batch for the discriminator, remove the flag, step the "
    "discriminator right after its own `backward()`, and only then run it on the generated "
    "batch and compute the generator's loss"
)
def gan_retained(obey):
    generator, discriminator = deep(2, 2), deep(2, 1)
    of_generator, of_discriminator = parameters(generator), parameters(discriminator)
    noise = torch.randn(4, 2)
    right = alone(discriminator(generator(noise).detach()).mean(), of_discriminator)
    if not obey:
        right += alone(-discriminator(generator(noise)).square().mean(), of_generator)
        fake = generator(noise)
        discriminator(fake).mean().backward(retain_graph=True)
        (-discriminator(fake).square().mean()).backward()
        return grads(of_discriminator) + grads(of_generator), right
    fake = generator(noise)
    discriminator(fake.detach()).mean().backward()
    seen = grads(of_discriminator)
    sgd(of_discriminator).step()
    right += alone(-discriminator(generator(noise)).square().mean(), of_generator)
    (-discriminator(fake).square().mean()).backward()
    return seen + grads(of_generator), right


@obeys("recompute it instead of detaching it")
def detached_cache(obey):
    scale, bias = torch.ones(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    cached, seen, right = scale.exp().detach(), [], []
    optimizer = sgd([scale, bias])
    for x in torch.randn(3, 3):
        right += alone((scale.exp() * x + bias).square().sum(), [scale, bias])
        if obey:
            cached = scale.exp()
        optimizer.zero_grad()
        (cached * x + bias).square().sum().backward()
        seen += grads([scale, bias])
        optimizer.step()
    return seen, right


@obeys("divide the scaled gradient by `scaler.get_scale()` before you compute the penalty")
def scaled_penalty(obey):
    critic, x, score, penalty = critic_and_penalty(create_graph=True)
    right = alone(score + penalty, parameters(critic))
    scaler, score = torch.amp.GradScaler("cpu", init_scale=1024.0), critic(x).sum()
    (slope,) = torch.autograd.grad(scaler.scale(score), x, create_graph=True)
    if obey:
        slope = slope / scaler.get_scale()
    penalty = (slope.norm(dim=1) - 1).square().sum()
    scaler.scale(score + penalty).backward()
    scaler.unscale_(sgd(parameters(critic)))
    return grads(parameters(critic)), right


@obeys("call `scaler.unscale_(optimizer)` before the clipping")
def clipped(obey):
    net, x = deep(2, 1), torch.randn(4, 2)
    right = alone(net(x).square().mean(), parameters(net))
    norm = torch.stack([gradient.norm() for gradient in right]).norm()
    optimizer, scaler = sgd(parameters(net)), torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(net(x).square().mean()).backward()
    if obey:
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), max_norm=norm.item() / 2)
    if not obey:
        scaler.unscale_(optimizer)
    return grads(parameters(net)), [gradient / 2 for gradient in right]


@obeys("sum the loss in each piece, and divide by the number of elements in the whole batch")
def uneven_pieces(obey):
    net, x = deep(2, 1), torch.randn(7, 2)
    right = alone(net(x).square().mean(), parameters(net))
    pieces = x.split([5, 2])
    for piece in pieces:
        squares = net(piece).square()
        (squares.sum() / len(x) if obey else squares.mean() / len(pieces)).backward()
    return grads(parameters(net)), right


DDP = """
import sys
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
seen = []
for way in sys.argv[1:]:
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Linear(2, 1, bias=False))
    x = torch.full((1, 2), dist.get_rank() + 1.0)
    if way == "added":
        output = net(x)
        (output.sum() + output.square().sum()).backward()
    elif way == "in turn":
        net(x).sum().backward()
        net(x).square().sum().backward()
    elif way == "retained":
        output = net(x)
        output.sum().backward(retain_graph=True)
        output.square().sum().backward()
    else:
        first, second = net(x).sum(), net(x).square().sum()
        first.backward()
        second.backward()
    both = [torch.zeros(1, 2) for _ in range(2)]
    dist.all_gather(both, net.module.weight.grad.contiguous())
    seen += both
if dist.get_rank() == 0:
    print(torch.cat(seen).tolist())
dist.barrier()
dist.destroy_process_group()
"""


def run_in_two_processes(program: str, *arguments: str) -> str:
    """What two processes print that run this program, started by torchrun."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(program)
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        done = subprocess.run(
            [*torchrun, "--nproc-per-node", "2", "train.py", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=100,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


@obeys("add the losses, and call `backward()` once for each forward pass")
def two_processes(obey):
    ways = ("added", "in turn") if obey else ("retained", "two forwards first")
    gradients = torch.tensor(json.loads(run_in_two_processes(DDP, *ways)))
    torch.manual_seed(0)
    net, batch = nn.Linear(2, 1, bias=False), torch.tensor([[1.0, 1.0], [2.0, 2.0]])
    output = net(batch)
    (right,) = alone((output + output.square()).sum() / len(batch), [net.weight])
    return [gradients], [right.expand_as(gradients)]


def join_group_of_one():
    """Make this process the only one of a group: what DistributedDataParallel needs."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


@pytest.fixture(scope="module", autouse=True)
def end_of_group():
    """A group's end holds the GIL, which what is still under way may need: both would wait."""
    yield
    if dist.is_initialized():
        gc.collect()
        dist.barrier()
        dist.destroy_process_group()


@obeys("add the losses, then call `backward()` once")
def heads_in_parallel(obey):
    """The first loss reaches one head only."""

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk, self.heads = nn.Linear(2, 3), nn.ModuleList([nn.Linear(3, 1) for _ in "ab"])

        def forward(self, x):
            features = self.trunk(x).tanh()
            return [head(features).sum() for head in self.heads]

    net, x = Heads(), torch.randn(4, 2)
    right = alone(sum(net(x)), parameters(net))
    join_group_of_one()
    parallel = nn.parallel.DistributedDataParallel(net)
    first, second = parallel(x)
    if obey:
        (first + second).backward()
    else:
        first.backward(retain_graph=True)
        second.backward()
    return grads(parameters(net)), right


@obeys("set `use_reentrant=False` in `checkpoint`")
def checkpoint_in_parallel(obey):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            for _ in range(2):
                x = checkpoint(self.layer, x, use_reentrant=not obey).tanh()
            return x.sum()

    net, x = Twice(), torch.randn(4, 2, requires_grad=True)
    right = alone(net.layer(net.layer(x).tanh()).tanh().sum(), parameters(net))
    join_group_of_one()
    parallel = nn.parallel.DistributedDataParallel(net, find_unused_parameters=True)
    parallel(x).backward()
    return grads(parameters(net)), right


@obeys("run one forward pass on the concatenated batch, or pass `broadcast_buffers=False`")
def batch_norm_in_parallel(obey):
    """Two forward passes, with the check of versions that hides no write of DDP's."""
    net, (real, fake) = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), torch.randn(2, 4, 2)

    def loss(module):
        return module(real).sin().sum() + module(fake).square().sum()

    right = alone(loss(net), parameters(net))
    join_group_of_one()
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        parallel = nn.parallel.DistributedDataParallel(net, broadcast_buffers=not obey)
    check = mock.patch.object(
        torch.autograd, "_unsafe_preserve_version_counter", contextlib.nullcontext, create=True
    )
    with check:
        loss(parallel).backward()
    return grads(parameters(net)), right


@obeys("put `autocast` around the forward pass and the loss, and step outside it")
def autocast_around_the_loop(obey):
    """Compared with the gradient of the weights of each step, which half precision comes near."""
    net, x, seen, right = deep(2, 1), torch.randn(8, 2), [], []
    optimizer, nothing = torch.optim.SGD(net.parameters(), lr=1.0), contextlib.nullcontext

    def autocast():
        return torch.autocast("cpu", torch.bfloat16)

    def loss():
        return (net(x).float() - 1).square().mean()

    with nothing() if obey else autocast():
        for _ in range(4):
            with torch.autocast("cpu", enabled=False):
                right += alone(loss(), parameters(net))
            optimizer.zero_grad()
            with autocast() if obey else nothing():
                result = loss()
            result.backward()
            seen += grads(parameters(net))
            optimizer.step()
    nearest = [
        b if (a - b).norm() <= 0.1 * (b.norm() + 1e-3) else a
        for a, b in zip(seen, right, strict=True)
    ]
    return nearest, right


BUFFERS = """
import json
import sys
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1, bias=False)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        self.scale = 0.5 * self.scale + x.abs().mean()
        return self.layer(x) * (self.scale.clone() if sys.argv[1] == "clone" else self.scale)


seen = []
for second_pass in (True, False):
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(Scaled())
    loss = net(torch.full((2, 2), rank + 1.0)).sum()
    if second_pass:
        net(torch.full((2, 2), rank + 3.0))
    both = [torch.zeros(1, 2) for _ in range(2)]
    dist.all_gather(both, torch.autograd.grad(loss, net.module.layer.weight)[0])
    seen.append(torch.cat(both).tolist())
if rank == 0:
    print(json.dumps(seen))
dist.barrier()
dist.destroy_process_group()
"""


@obeys("use `buffer.clone()` in the forward pass")
def buffer_in_two_processes(obey):
    """The gradient of the first loss after a second forward pass, and without that."""
    seen, right = json.loads(run_in_two_processes(BUFFERS, "clone" if obey else "buffer"))
    return [torch.tensor(seen)], [torch.tensor(right)]


@obeys("store `w.grad.clone()`")
def kept_to_compare(obey):
    w = torch.randn(3, requires_grad=True)
    right = alone(w.exp().sum(), [w])
    w.exp().sum().backward()
    kept = w.grad.clone() if obey else w.grad
    w.sin().sum().backward()
    return [kept], right


@obeys("create the optimizer last")
def replaced_parameters(obey):
    """The gradient is right either way: what is compared is what the step makes of it."""
    net, x = nn.Linear(2, 1), torch.randn(4, 2)
    optimizer = sgd(parameters(net))
    net.weight = nn.Parameter(torch.ones(1, 2))
    before = [parameter.detach().clone() for parameter in net.parameters()]
    right = alone(net(x).square().mean(), parameters(net))
    if obey:
        optimizer = sgd(parameters(net))
    net(x).square().mean().backward()
    optimizer.step()
    after = [parameter.detach() for parameter in net.parameters()]
    return [10 * (b - a) for b, a in zip(before, after, strict=True)], right


@obeys(
    "remove the operation that separates it from the loss (`detach()`, `.data`, `.item()`, "
    "numpy, a new tensor)"
)
def cut_off(obey):
    seen, right = [], []
    for cut in (
        lambda t: t.detach(),
        lambda t: t.data,
        lambda t: t[0].item() * torch.ones(3),
        lambda t: torch.from_numpy(t.detach().numpy()),
        lambda t: torch.tensor(t.tolist()),
    ):
        w, bias = torch.ones(3, requires_grad=True), torch.zeros(3, requires_grad=True)
        hidden = w.exp() if obey else cut(w.exp())
        (hidden + bias).square().sum().backward()
        seen += grads([w, bias])
        right += alone((w.exp() + bias).square().sum(), [w, bias])
    return seen, right


@obeys("call `optimizer.zero_grad()` once for each step, before its first `backward()`")
def added_up(obey):
    """Two losses for each step, whose gradients are meant to add up."""
    net, seen, right = deep(2, 1), [], []
    optimizer = sgd(parameters(net))
    for x in torch.randn(3, 4, 2):
        right += alone(net(x).square().mean() + net(x).mean(), parameters(net))
        if obey:
            optimizer.zero_grad()
        for loss in net(x).square().mean(), net(x).mean():
            loss.backward()
        seen += grads(parameters(net))
        optimizer.step()
    return seen, right


def test_each_end_has_a_program_and_each_program_an_end():
    assert sorted(leaf.advice for leaf in LEAVES) == sorted(PROGRAMS)


def program(leaf: Leaf) -> Program:
    if "donated buffers" in leaf.message and not hasattr(torch._functorch.config, "donated_buffer"):
        pytest.skip("this PyTorch donates no buffers")
    torch.manual_seed(0)
    return PROGRAMS[leaf.advice]


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.advice)
def test_obeyed_it_gives_the_right_gradients(leaf):
    seen, right = program(leaf)(True)
    assert close(seen, right)
    assert any(gradient.any() for gradient in right), "nothing was trained: nothing was compared"


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.advice)
def test_not_obeyed_it_has_the_fault(leaf):
    if leaf.silent:
        assert not close(*program(leaf)(False))
    else:
        with pytest.raises(
            (AttributeError, RuntimeError, ValueError), match=re.escape(leaf.message)
        ):
            program(leaf)(False)


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@functools.cache
def sections_with_a_program(notebook: str) -> set[str]:
    found, section = set(), ""
    for cell in nbformat.read(ROOT / notebook, as_version=4).cells:
        if cell.cell_type == "code":
            found.add(section)
        elif headings := re.findall(r"^#+ (.+)$", cell.source, re.M):
            section = slug(headings[-1])
    return found


def test_each_advice_links_to_a_place_where_it_is_run(subtests):
    for leaf in LEAVES:
        with subtests.test(advice=leaf.advice):
            notebook, _, section = leaf.link.partition("#")
            assert section in sections_with_a_program(notebook), f"no program under {leaf.link}"
