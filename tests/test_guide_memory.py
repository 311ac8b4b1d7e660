"""Each recommendation of the decision guide about memory, measured: bytes of all live tensors.

To each end belongs a program that runs for a number of iterations, or over a number of pieces.
Obeyed, its peak must not rise with that number; not obeyed, its peak must be higher.  The gradients
of the same ends are compared in ``test_decision_guide``.
"""

import gc
from collections.abc import Callable

import pytest
import torch
from test_decision_guide import LEAVES, obeys_in
from torch import nn
from torch.utils.checkpoint import checkpoint

from gradtrace import LiveBytes

#: Takes whether to obey, and how many iterations or pieces to run.
Program = Callable[[bool, int], None]
PROGRAMS: dict[str, Program] = {}
obeys = obeys_in(PROGRAMS)

PIECES = (
    "`h = shared.detach().requires_grad_()`; compute each loss from `h`, and immediately call its "
    "`backward()`; after the last loss, call `shared.backward(h.grad)`"
)

pytestmark = pytest.mark.filterwarnings("ignore:Using backward.* with create_graph=True")


def deep(width: int = 32, layers: int = 8) -> nn.Sequential:
    return nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(width, width), nn.Tanh())])


def batches(count: int) -> torch.Tensor:
    return torch.ones(64, 32).expand(count, 64, 32)


@obeys(PIECES)
def pieces_on_a_shared_part(obey, count):
    """Not obeyed, the losses are added."""
    head, shared = deep(), nn.Linear(32, 32)(torch.ones(64, 32))
    if not obey:
        sum(head(shared * k).square().sum() for k in range(count)).backward()
        return
    h = shared.detach().requires_grad_()
    for k in range(count):
        loss = head(h * k).square().sum()
        loss.backward()
    shared.backward(h.grad)


def retained_pieces(count):
    """What the guide does not recommend: two graphs are alive at a time."""
    head, shared = deep(), nn.Linear(32, 32)(torch.ones(64, 32))
    for k in range(count):
        loss = head(shared * k).square().sum()
        loss.backward(retain_graph=k < count - 1)


@obeys("store `loss.item()` or `output.detach()`")
def validation(obey, count):
    net, total = deep(), 0.0
    for x in batches(count):
        with torch.set_grad_enabled(not obey):
            loss = net(x).square().mean()
        total += loss.item() if obey else loss


@obeys("clear it after the update")
def list_for_an_update(obey, count):
    net, log_probs = deep(), []
    for x in batches(count):
        log_probs.append(net(x).log_softmax(1)[:, 0].sum())
        (-torch.stack(log_probs).sum()).backward(retain_graph=not obey)
        if obey:
            log_probs.clear()


@obeys("`detach()` it at the end of each iteration, and remove the flag")
def carried_state(obey, count):
    cell, state = nn.GRUCell(32, 32), torch.zeros(64, 32)
    for x in batches(count):
        state = cell(x, state)
        state.square().mean().backward(retain_graph=not obey)
        if obey:
            state = state.detach()


@obeys("use `torch.autograd.grad`, or set `.grad` to `None` after use")
def gradient_with_a_graph(obey, count):
    net = deep()
    for x in batches(count):
        net(x).square().mean().backward(create_graph=True)
        if obey:
            net.zero_grad(set_to_none=True)


def gradient_by_grad(count):
    """The first half of the same recommendation."""
    net = deep()
    for x in batches(count):
        torch.autograd.grad(net(x).square().mean(), [*net.parameters()], create_graph=True)


@obeys("run each part of the model with `checkpoint(part, x, use_reentrant=False)`")
def checkpointed(obey, count):
    """As many parts as iterations elsewhere, on one batch: the peak may rise by a part's input."""
    result = torch.ones(512, 32)
    for part in [deep(layers=4) for _ in range(count)]:
        result = checkpoint(part, result, use_reentrant=False) if obey else part(result)
    result.sum().backward()


@obeys("call `ctx.save_for_backward(y)` instead of `ctx.y = y`")
def output_on_ctx(obey, count):
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

    w = torch.ones(64, 32, requires_grad=True)
    for x in batches(count):
        Exp.apply(w * x).sum().backward()


@obeys("call `handle.remove()` after the backward pass, or let the function use `y.detach()`")
def hook_on_itself(obey, count):
    w = torch.ones(64, 32, requires_grad=True)
    for x in batches(count):
        y = (w * x).exp()
        handle = y.register_hook(lambda gradient, y=y: gradient * y.mean())
        y.sum().backward()
        if obey:
            handle.remove()


def peak(program, *arguments) -> int:
    """Most bytes of live tensors while the program runs; the garbage collector stays away."""
    gc.collect()
    gc.disable()
    try:
        with LiveBytes() as live:
            program(*arguments)
    finally:
        gc.enable()
    return live.peak


def test_each_end_about_memory_is_measured():
    ends = {leaf.advice for leaf in LEAVES if leaf.message == "CUDA out of memory"}
    assert ends | {PIECES} == set(PROGRAMS)


@pytest.mark.parametrize("advice", PROGRAMS)
def test_obeyed_its_peak_does_not_rise_with_the_iterations(advice):
    program = PROGRAMS[advice]
    few, many = peak(program, True, 3), peak(program, True, 6)
    rise_if_not = peak(program, False, 6) - peak(program, False, 3)
    assert many - few < rise_if_not / 3


@pytest.mark.parametrize("advice", PROGRAMS)
def test_not_obeyed_its_peak_is_higher(advice):
    program = PROGRAMS[advice]
    assert peak(program, False, 6) > 1.2 * peak(program, True, 6)


@pytest.mark.parametrize("pieces", [2, 4])
def test_detached_pieces_need_less_than_retained_ones(pieces):
    assert peak(retained_pieces, pieces) > 1.2 * peak(pieces_on_a_shared_part, True, pieces)


def test_a_gradient_by_grad_does_not_pile_up():
    assert peak(gradient_by_grad, 6) == peak(gradient_by_grad, 3)
