"""A watch beside a program: what it leaves behind, and what happens when things go wrong."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import warnings
import weakref

import pytest
import torch
from torch import nn

from gradtrace import SilentFailure, diagnose, watch
from gradtrace.watcher import Recorder, explanation_of, recorder

STRICT = pytest.mark.parametrize("strict", [False, True])
TWICE = "second time"


def freed_loss() -> torch.Tensor:
    loss = torch.ones(3, requires_grad=True).exp().sum()
    loss.backward()
    return loss


def pytorch() -> tuple:
    """What a watch changes in PyTorch."""
    hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
    return (
        torch.autograd._engine_run_backward,
        torch._C._len_torch_function_stack(),
        tuple(hooks),
        torch.is_grad_enabled(),
    )


@pytest.fixture(autouse=True)
def left_as_it_was():
    before = pytorch()
    yield
    assert not recorder.watches
    assert pytorch() == before


@pytest.fixture
def short_program():
    """A training step whose result shows whether anything changed."""

    def train() -> list[torch.Tensor]:
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 1))
        optimizer = torch.optim.AdamW(net.parameters())
        for x in torch.randn(4, 6, 3):
            x = x.requires_grad_()
            out = net(x)
            slope = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
            loss = out.pow(2).mean() + slope.pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return [p.detach() for p in net.parameters()] + [torch.rand(1)]

    return train


@STRICT
def test_ways_to_watch(strict):
    with watch(strict=strict), pytest.raises(RuntimeError, match=TWICE) as context:
        freed_loss().backward()
    assert explanation_of(context.value).cause == "forward_not_rerun"

    decorated = watch(freed_loss) if not strict else watch(strict=True)(freed_loss)
    assert not recorder.watches
    assert decorated.__name__ == "freed_loss"
    assert decorated() is not None
    assert not recorder.watches

    one = watch(strict=strict)
    loss = freed_loss()
    with pytest.raises(RuntimeError, match=TWICE) as context:
        loss.backward()
    one.stop()
    one.stop()
    note = context.value.__notes__[-1]
    assert note.startswith("gradtrace: ")
    assert "began:" in note and "test_watcher.py" in note and "fix:" in note


def test_plain_exception_is_unchanged():
    try:
        freed_loss().backward()
    except RuntimeError as error:
        plain = str(error)
    with watch(), pytest.raises(RuntimeError) as context:
        freed_loss().backward()
    assert str(context.value) == plain
    assert type(context.value) is RuntimeError
    assert context.value.args == (plain,)


@STRICT
def test_results_are_the_same_to_the_bit(strict, short_program):
    expected = short_program()
    with watch(strict=strict) as one:
        watched = short_program()
    assert all(torch.equal(a, b) for a, b in zip(expected, watched, strict=True))
    assert not one.findings


@pytest.mark.parametrize("order", [("outer", "inner"), ("inner", "outer")])
@pytest.mark.parametrize("kinds", [(False, True), (True, False), (True, True)])
def test_nested_watches_in_any_order(order, kinds):
    before = pytorch()
    watches = {"outer": watch(strict=kinds[0]), "inner": watch(strict=kinds[1])}
    loss = freed_loss()
    for name in order:
        with pytest.raises(RuntimeError, match=TWICE) as context:
            loss.backward()
        assert len(context.value.__notes__) == 1
        watches[name].stop()
    assert torch.autograd._engine_run_backward is before[0]
    while torch._C._len_torch_function_stack() > before[1]:  # stopped, but under a live mode
        torch._C._pop_torch_function_stack()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_error_passes(kind):
    with pytest.raises(kind) as context, watch(strict=True):
        raise kind("stop")
    assert not getattr(context.value, "__notes__", [])


def test_other_errors_get_no_note():
    with pytest.raises(ValueError) as context, watch(strict=True):
        raise ValueError("nothing of autograd's")
    assert not hasattr(context.value, "__notes__")


def test_what_broke_earlier_is_not_held_against_a_later_error(monkeypatch):
    monkeypatch.setattr(Recorder, "stepped", None)
    with pytest.raises(ValueError) as context, watch(strict=True):
        w = torch.ones(1, requires_grad=True)
        w.sum().backward()
        torch.optim.SGD([w], lr=0.1).step()
        raise ValueError("nothing of autograd's")
    assert not hasattr(context.value, "__notes__")


def test_exception_that_forbids_notes():
    class Sealed(RuntimeError):
        def add_note(self, note):
            raise TypeError("no notes")

        def __setattr__(self, name, value):
            raise TypeError("no attributes")

    with pytest.raises(Sealed), watch():
        raise Sealed("Trying to backward through the graph a second time")


@STRICT
def test_gradtrace_failing_leaves_the_error_alone(monkeypatch, strict):
    def broken(*arguments):
        raise ZeroDivisionError("inside gradtrace")

    monkeypatch.setattr(diagnose, "failure", broken)
    with pytest.raises(RuntimeError, match=TWICE) as context, watch(strict=strict):
        freed_loss().backward()
    assert context.value.__notes__ == [
        "gradtrace could not explain this error (ZeroDivisionError: inside gradtrace)."
    ]


@pytest.mark.parametrize("part", ["began", "ended", "stepped", "look_for_leaks", "edited"])
def test_recorder_failing_leaves_the_program_alone(monkeypatch, short_program, part):
    expected = short_program()

    def broken(self, *arguments, **keywords):
        raise ZeroDivisionError("inside gradtrace")

    monkeypatch.setattr(Recorder, part, broken)
    with watch(strict=True):
        watched = short_program()
    assert all(torch.equal(a, b) for a, b in zip(expected, watched, strict=True))


@pytest.mark.parametrize("owner, name", [(torch.Tensor, "backward"), (torch.autograd, "backward")])
def test_program_that_patches_backward(monkeypatch, owner, name):
    original, calls = getattr(owner, name), []

    def patched(*arguments, **keywords):
        calls.append(1)
        return original(*arguments, **keywords)

    with watch(), pytest.raises(RuntimeError, match=TWICE) as context:
        monkeypatch.setattr(owner, name, patched)
        loss = freed_loss()
        loss.backward()
    assert len(calls) == 2
    assert explanation_of(context.value).cause == "forward_not_rerun"
    assert getattr(owner, name) is patched


def test_program_that_patches_the_engine_keeps_its_patch(monkeypatch):
    monkeypatch.setattr(torch.autograd, "_engine_run_backward", torch.autograd._engine_run_backward)
    one = watch()
    ours = torch.autograd._engine_run_backward

    def patched(*arguments, **keywords):
        return ours(*arguments, **keywords)

    torch.autograd._engine_run_backward = patched
    one.stop()
    assert torch.autograd._engine_run_backward is patched
    freed_loss()  # ours still runs, and hands on


@STRICT
def test_threads(strict):
    causes, lock = [], threading.Barrier(4)

    def work():
        loss = freed_loss()
        lock.wait()
        try:
            loss.backward()
        except RuntimeError as error:
            causes.append(explanation_of(error).cause)

    with watch(strict=strict):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert causes == ["forward_not_rerun"] * 4


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return torch.full((3,), float(i))


def test_data_loader_workers():
    net = nn.Linear(3, 1)
    with watch(strict=True) as one:
        for batch in torch.utils.data.DataLoader(Squares(), batch_size=3, num_workers=1):
            net(batch).pow(2).mean().backward()
    assert not one.findings


def test_torch_func():
    from torch.func import functional_call, grad, hessian, jacrev, vmap

    net = nn.Linear(3, 1)
    weights = {name: value.detach() for name, value in net.named_parameters()}

    def loss(weights, x):
        return functional_call(net, weights, (x,)).pow(2).mean()

    x = torch.randn(4, 3)
    expected = vmap(grad(loss), (None, 0))(weights, x)["weight"]
    with watch(strict=True) as one:
        assert torch.equal(vmap(grad(loss), (None, 0))(weights, x)["weight"], expected)
        assert hessian(lambda v: v.pow(3).sum())(torch.ones(2)).shape == (2, 2)
        assert jacrev(torch.sin)(torch.ones(2)).shape == (2, 2)
    assert not one.findings
    assert recorder.broken is None


def test_compiled_function():
    compiled = torch.compile(lambda x: (x * 2).sin().sum(), backend="aot_eager")
    x = torch.ones(3, requires_grad=True)
    with watch(), pytest.raises(RuntimeError, match=TWICE) as context:
        loss = compiled(x)
        loss.backward()
        loss.backward()
    assert explanation_of(context.value).cause in ("forward_not_rerun", "unknown")


@STRICT
def test_other_modes_and_subclasses(strict):
    class Mine(torch.Tensor):
        pass

    w = torch.ones(3, requires_grad=True)
    with watch(strict=strict), torch.device("cpu"), torch.autocast("cpu", dtype=torch.bfloat16):
        x = torch.ones(3).as_subclass(Mine)
        loss = (x * w).sum() + (torch.ones(2, 3) @ w).sum()
        loss.backward()
    assert recorder.broken is None
    assert w.grad is not None


def test_silent_failure_is_warned_about_once():
    with watch(strict=True) as one, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            y = torch.ones(3, requires_grad=True).sigmoid()
            y.data.zero_()
            y.sum().backward()
    assert [warning.category for warning in caught] == [SilentFailure]
    assert [finding.cause for finding in one.findings] == ["data_edit_silent"]
    assert caught[0].filename == __file__


def test_warnings_as_errors_do_not_stop_the_program():
    with watch(strict=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        y = torch.ones(3, requires_grad=True).sigmoid()
        y.data.zero_()
        y.sum().backward()


def _sizes() -> dict[str, int]:
    return {
        name: len(value)
        for name, value in vars(recorder).items()
        if hasattr(value, "__len__") and name not in ("calls", "steps", "made_at", "freed")
    }


@STRICT
def test_nothing_grows_or_is_kept_alive(strict):
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    data = torch.randn(8, 3)
    sizes, alive = [], []
    with watch(strict=strict) as one:
        for i in range(1_000):
            out = net(data)
            loss = out.pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i in (100, 999):
                sizes.append(_sizes())
                alive.append(weakref.ref(out))
        del out, loss
        gc.collect()
        assert [reference() for reference in alive] == [None, None]
        assert not one.findings
    assert sizes[0] == sizes[1]


def test_what_is_remembered_of_freed_nodes_is_bounded(monkeypatch):
    monkeypatch.setattr(sys.modules["gradtrace.watcher"], "_MAX_FREED", 300)
    w = torch.ones(3, requires_grad=True)
    with watch(), pytest.raises(RuntimeError, match=TWICE) as context:
        for _ in range(200):
            loss = w.exp().sin().sum()
            loss.backward()
            (freed,) = recorder.freed.values()
            assert freed.size <= 310
            assert freed.size == sum(len(numbers) for _, numbers in freed.calls)
        loss.backward()
    assert explanation_of(context.value).cause == "forward_not_rerun"


def test_failing_error_does_not_stay_alive():
    class Big:
        pass

    def fail():
        big, loss = Big(), freed_loss()
        alive.append(weakref.ref(big))
        loss.backward()

    alive: list = []
    with watch():
        with contextlib.suppress(RuntimeError):
            fail()
        gc.collect()
        assert alive[0]() is None
