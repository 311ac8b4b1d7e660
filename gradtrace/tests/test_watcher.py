"""A watch beside a program: what it leaves behind, and what happens when things go wrong."""

import contextlib
import gc
import inspect
import pickle
import signal
import sys
import threading
import traceback
import warnings
import weakref

import numpy as np
import pytest
import torch
import torch._dynamo
from custom_functions import SavesInput
from torch import nn

from gradtrace import SilentFailure, watch
from gradtrace.explaining import diagnose
from gradtrace.explaining.silent import wrong_gradients
from gradtrace.explaining.watcher import Watch, explanation_of
from gradtrace.watching import record
from gradtrace.watching.engine import engine
from gradtrace.watching.record import Timeline

STRICT = pytest.mark.parametrize("strict", [False, True])
TWICE = "second time"


def freed_loss() -> torch.Tensor:
    loss = torch.ones(3, requires_grad=True).exp().sum()
    loss.backward()
    return loss


def pytorch() -> tuple:
    """What a watch changes in PyTorch."""
    hooks = sys.modules["torch.optim.optimizer"]
    graph = torch.autograd.graph
    return (
        graph.log,
        graph._register_logging_hooks_on_whole_graph,
        torch.autograd._engine_run_backward,
        torch._C._len_torch_function_stack(),
        tuple(hooks._global_optimizer_pre_hooks),
        tuple(hooks._global_optimizer_post_hooks),
        torch._C._dynamo.eval_frame.set_eval_frame,
        nn.functional.has_torch_function,
        nn.functional.has_torch_function_unary,
        torch._tensor.has_torch_function_variadic,
        vars(nn.Parameter)["__new__"],
        torch.is_grad_enabled(),
    )


@pytest.fixture(autouse=True)
def left_as_it_was():
    before = pytorch()
    yield
    assert not engine.listeners
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
    assert not engine.listeners
    assert decorated.__name__ == "freed_loss"
    assert decorated() is not None
    assert not engine.listeners

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
    assert pytorch() == before


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
    monkeypatch.setattr(Timeline, "stepped", None)
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


PARTS = [
    "gradtrace.watching.engine._custom_functions",
    "gradtrace.watching.engine.mark_freed",
    "gradtrace.watching.operations.Observer._note",
    "gradtrace.watching.operations.tensors_in",
    "gradtrace.watching.record.Timeline.edited",
    "gradtrace.watching.record.Timeline.stepped",
    "gradtrace.explaining.silent.in_backward",
    "gradtrace.explaining.silent.growth.leaks",
    "gradtrace.autograd.traversal.NodeGraph.__init__",
]


@pytest.mark.parametrize("part", PARTS)
def test_gradtrace_failing_leaves_the_program_alone(monkeypatch, short_program, part):
    expected = short_program()

    def broken(*arguments, **keywords):
        raise ZeroDivisionError("inside gradtrace")

    monkeypatch.setattr(part, broken)
    monkeypatch.setattr(record, "_REPORTED", {})
    with warnings.catch_warnings(record=True) as reported, watch(strict=True) as one:
        watched = short_program()
    assert all(torch.equal(a, b) for a, b in zip(expected, watched, strict=True))
    assert one.broken == "ZeroDivisionError: inside gradtrace"
    lines = [str(entry.message) for entry in reported if entry.category is RuntimeWarning]
    assert len(lines) == 1 and "\n" not in lines[0]  # said once, however often it failed
    assert "ZeroDivisionError: inside gradtrace" in lines[0] and torch.__version__ in lines[0]


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


@pytest.mark.parametrize("stop_first", [True, False])
def test_other_tools_wrap_the_engine(monkeypatch, stop_first):
    """Before, during and after a watch: nothing is lost, and nothing goes in rounds."""
    original = torch.autograd._engine_run_backward
    calls = []

    def wrapper(inner):
        def wrapped(*arguments, **keywords):
            calls.append(1)
            return inner(*arguments, **keywords)

        return wrapped

    one = watch()
    monkeypatch.setattr(torch.autograd, "_engine_run_backward", wrapper(original))
    if stop_first:
        one.stop()
        one = watch()
    loss = freed_loss()
    with pytest.raises(RuntimeError, match=TWICE) as context:
        loss.backward()
    one.stop()
    monkeypatch.undo()
    assert len(calls) == 2
    assert explanation_of(context.value).cause == "forward_not_rerun"


def test_the_engine_may_be_called_by_keyword():
    y = torch.ones(3, requires_grad=True).exp().sum()
    with watch() as one:
        torch.autograd._engine_run_backward(
            (y,), grad_tensors=(torch.tensor(1.0),), keep_graph=True, create_graph=False,
            inputs=(), allow_unreachable=True, accumulate_grad=True,
        )  # fmt: skip
        y.backward()
        with pytest.raises(RuntimeError, match=TWICE) as context:
            y.backward()
    assert one.broken is None
    assert explanation_of(context.value).began_at.line == context.tb.tb_lineno - 2


def test_backward_in_an_except_block():
    """The error that the program is handling is not the backward's."""
    with watch() as one:
        try:
            raise ValueError("of the program")
        except ValueError as error:
            loss = freed_loss()
            assert not hasattr(error, "__notes__")
        with pytest.raises(RuntimeError, match=TWICE) as context:
            loss.backward()
    assert one.broken is None
    assert explanation_of(context.value).began_at.line == freed_loss.__code__.co_firstlineno + 2


def test_nothing_of_ours_is_on_the_stack_of_a_backward():
    seen = []

    def hook(grad):
        seen.append([frame.function for frame in inspect.stack()])

    def run():
        w = torch.ones(3, requires_grad=True)
        w.register_hook(hook)
        nn.functional.mse_loss(w.exp(), torch.zeros(3)).backward()

    run()
    with watch():
        run()
    with watch(strict=True):
        run()
    assert seen[0] == seen[1] == seen[2]


def test_a_step_along_the_tensors_own_gradient_was_cut_by_detach():
    """If the gradient is another tensor's, it is the value without a graph that is missed."""
    with watch(strict=True) as one:
        weight, other = (torch.ones(2, requires_grad=True) for _ in range(2))
        (gradient,) = torch.autograd.grad(weight.exp().sum(), weight)
        results = [tensor.detach() - 0.1 * gradient for tensor in (weight, other)]
        cuts = map(one._record.timeline.cuts.get, results)
        assert [cut.how for cut in cuts] == ["detach", "first_order"]


def test_the_line_that_switches_gradients_off_is_known():
    def line_of_cut(model):
        cut = one._record.timeline.cuts.get(model(weight))
        return cut.how, cut.location.text

    def switched_off():
        torch.set_grad_enabled(False)

    with watch(strict=True) as one:
        weight, hidden = torch.ones(2, requires_grad=True), torch.no_grad()
        with torch.no_grad():
            with torch.enable_grad():
                assert weight.exp().requires_grad
            assert line_of_cut(torch.exp) == ("region", "with torch.no_grad():")
        decorated = torch.no_grad()(torch.exp)
        assert line_of_cut(decorated) == (
            "region",
            "cut = one._record.timeline.cuts.get(model(weight))",
        )
        with hidden:
            assert line_of_cut(torch.exp) == ("region", "with hidden:")
        switched_off()
        assert line_of_cut(torch.exp) == ("region", "torch.set_grad_enabled(False)")
        torch.set_grad_enabled(True)
        assert one._observer._cut_recorder._off_at is None


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


@STRICT
def test_torch_func(strict):
    from torch.func import functional_call, grad, hessian, jacrev, vjp, vmap

    net = nn.Linear(3, 1)
    weights = {name: value.detach() for name, value in net.named_parameters()}

    def loss(weights, x):
        return functional_call(net, weights, (x,)).pow(2).mean()

    x = torch.randn(4, 3)
    expected = vmap(grad(loss), (None, 0))(weights, x)["weight"]
    with watch(strict=strict) as one:
        assert torch.equal(vmap(grad(loss), (None, 0))(weights, x)["weight"], expected)
        assert hessian(lambda v: v.pow(3).sum())(torch.ones(2)).shape == (2, 2)
        assert jacrev(torch.sin)(torch.ones(2)).shape == (2, 2)
        _, pull_back = vjp(lambda v: (v, v.cos()), torch.zeros(()))  # one output is the input
        assert pull_back((torch.tensor(2.0), torch.tensor(3.0))) == (torch.tensor(2.0),)
    assert not one.findings
    assert one.broken is None


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
    mixed = torch.autocast("cpu", dtype=torch.bfloat16)
    with watch(strict=strict) as one, torch.device("cpu"), mixed:
        x = torch.ones(3).as_subclass(Mine)
        loss = (x * w).sum() + (torch.ones(2, 3) @ w).sum()
        loss.backward()
    assert one.broken is None
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


def test_a_detector_that_fails_loses_no_earlier_finding(monkeypatch):
    def broken(*arguments):
        raise ZeroDivisionError("inside gradtrace")

    monkeypatch.setattr("gradtrace.explaining.silent.growth.growing", broken)
    with warnings.catch_warnings(record=True), watch(strict=True) as one:
        y = torch.ones(3, requires_grad=True).sigmoid()
        y.data.zero_()
        y.sum().backward()
    assert one.broken == "ZeroDivisionError: inside gradtrace"
    assert [finding.cause for finding in one.findings] == ["data_edit_silent"]


def test_warnings_as_errors_do_not_stop_the_program():
    with watch(strict=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        y = torch.ones(3, requires_grad=True).sigmoid()
        y.data.zero_()
        y.sum().backward()


def _sizes(one: Watch) -> dict[str, int]:
    """Of what grows with the kinds of things that a program does, not with time."""
    timeline = one._record.timeline
    return {
        name: len(value)
        for name, value in vars(timeline).items()
        if hasattr(value, "__len__") and name not in ("calls", "steps", "lines", "cuts")
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
                sizes.append(_sizes(one))
                alive.append(weakref.ref(out))
        del out, loss
        gc.collect()
        assert [reference() for reference in alive] == [None, None]
        assert not one.findings
    assert sizes[0] == sizes[1]
    assert len(one._record.timeline.cuts) <= 1_000


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


@STRICT
def test_nothing_is_alive_after_a_watch(strict):
    """Neither what the program made nor, while it runs, an array that PyTorch looked into."""

    def program() -> list[weakref.ref]:
        array = np.zeros(1_000, dtype=np.float32)
        w = torch.ones(4, requires_grad=True)

        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * w.detach()

            @staticmethod
            def backward(ctx, grad):
                return grad

        loss = Scale.apply(torch.from_numpy(array)[:4] * w).sum()
        loss.backward()
        with contextlib.suppress(RuntimeError):
            loss.backward()
        return [weakref.ref(one) for one in (array, w, Scale)]

    with watch(strict=strict) as one:
        references = program()
        gc.collect()
        assert references[0]() is None
    gc.collect()
    assert [reference() for reference in references] == [None] * 3
    assert one.broken is None


def test_findings_stay_with_their_watch():
    with watch(strict=True) as first, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = torch.ones(3, requires_grad=True).sigmoid()
        y.data.zero_()
        y.sum().backward()
    with watch(strict=True) as second:
        freed_loss()
    assert [finding.cause for finding in first.findings] == ["data_edit_silent"]
    assert second.findings == []


def test_a_watch_may_be_entered_again():
    one = watch()
    for _ in range(2):
        with one, pytest.raises(RuntimeError, match=TWICE) as context:
            freed_loss().backward()
        assert explanation_of(context.value).cause == "forward_not_rerun"
        assert not engine.listeners


def fails() -> None:
    freed_loss().backward()


async def coroutine():
    freed_loss().backward()


def generator():
    yield freed_loss().backward()


async def asynchronous_generator():
    yield freed_loss().backward()


@pytest.mark.parametrize("function", [coroutine, generator, asynchronous_generator, 5])
@pytest.mark.parametrize("decorate", [watch, lambda function: watch()(function)])
def test_what_is_no_plain_function_is_refused(function, decorate):
    with pytest.raises(TypeError, match=r"use `with watch\(\):`"):
        decorate(function)
    assert not engine.listeners


def test_a_graph_of_another_thread():
    """Numbers restart in each thread: who freed a node is told all the same, lines only if sure."""
    made = []

    def forward():
        for _ in range(3):
            freed_loss()
        made.append(torch.ones(3, requires_grad=True).exp().sum())

    for _ in range(2):
        freed_loss()
    with watch(strict=True) as one:
        freed_loss()
        thread = threading.Thread(target=forward)
        thread.start()
        thread.join()
        made[0].backward()
        line = inspect.currentframe().f_lineno - 1
        with pytest.raises(RuntimeError, match=TWICE) as context:
            made[0].backward()
    found = explanation_of(context.value)
    assert found.began_at.line == line
    assert found.confidence == "likely"
    assert one.broken is None


class SquareElsewhere(SavesInput):
    """Its backward computes on another thread, as that of an accelerator does."""

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        results = []

        def compute():
            with torch.enable_grad():
                results.append(gradient * (x * x + x * 2 - x.square()))

        thread = threading.Thread(target=compute)
        thread.start()
        thread.join()
        return results[0]


def test_a_second_derivative_that_another_thread_recorded_is_no_failure():
    """Its nodes have that thread's numbers, which are lower than those of earlier steps."""
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with watch(strict=True) as watched:
        for _ in range(3):
            loss = SquareElsewhere.apply(weight).sum()
            (gradient,) = torch.autograd.grad(loss, weight, create_graph=True)
            optimizer.zero_grad()
            gradient.square().sum().backward()
            optimizer.step()
        assert watched.findings == []
        loss = SquareElsewhere.apply(weight).sum()
        (gradient,) = torch.autograd.grad(loss, weight, create_graph=True)
        weight.data.add_(1)
        with pytest.warns(SilentFailure):
            gradient.square().sum().backward()
    assert [finding.cause for finding in watched.findings] == ["data_edit_silent"]


def test_lines_of_operations_that_were_not_seen_are_not_told():
    w = torch.ones(3, requires_grad=True)
    before = w.exp()
    with watch(strict=True):
        seen = w.sin()
        (seen * before).sum().backward()
        with pytest.raises(RuntimeError, match=TWICE) as context:
            (before * 2).sum().backward()
    assert explanation_of(context.value).made_at is None


class CallsTwice(torch.optim.Optimizer):
    """Calls its closure twice, and changes the parameters in between."""

    def __init__(self, parameters):
        super().__init__(parameters, {})
        self.modes = []

    def step(self, closure):
        for _ in range(2):
            closure()
            self.modes.append(torch._C._len_torch_function_stack())
            with torch.no_grad():
                self.param_groups[0]["params"][0].add_(1)


def test_a_strict_watch_sees_an_optimizers_closure_and_not_what_the_optimizer_computes():
    w, modes = torch.ones(2, requires_grad=True), []
    squares = w * w
    optimizer = CallsTwice([w])

    def closure():
        modes.append(torch._C._len_torch_function_stack())
        squares.sum().backward(retain_graph=True)

    with watch(strict=True), pytest.raises(RuntimeError, match="inplace") as context:
        optimizer.step(closure)
    assert (modes, optimizer.modes) == ([1, 1], [0])
    assert explanation_of(context.value).cause == "optimizer_step_between_backwards"
    frames = traceback.extract_tb(context.value.__traceback__)
    assert not [frame for frame in frames if "watching" in frame.filename]


def test_a_strict_watch_goes_on_after_a_step_that_raised():
    w = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.LBFGS([w])
    with watch(strict=True), pytest.raises(RuntimeError, match="inplace") as context:
        with pytest.raises(TypeError):
            optimizer.step()  # it wants a closure
        assert torch._C._len_torch_function_stack() == 1
        saved = w.exp()
        loss = (saved * saved).sum()
        saved.add_(1)
        loss.backward()
    assert explanation_of(context.value).confidence == "certain"


def test_modes_that_end_during_a_watch_keep_their_place():
    class Other(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    for context in (lambda: torch.device("meta"), Other):
        with context():
            one = watch(strict=True)
        assert torch.ones(1).device.type == "cpu"
        with context():
            torch.ones(2) * 2
        assert torch._C._len_torch_function_stack() == 1
        one.stop()
        assert torch._C._len_torch_function_stack() == 0


def test_a_default_device_may_be_set_and_reset_at_any_time():
    torch.set_default_device("meta")
    try:
        one = watch(strict=True)
        assert torch.ones(1).device.type == "meta"
        torch.set_default_device(None)
        assert torch.ones(1).device.type == "cpu"
        torch.set_default_device("meta")
        one.stop()
        assert torch.ones(1).device.type == "meta"
    finally:
        torch.set_default_device(None)
    assert torch._C._len_torch_function_stack() == 0


def test_a_strict_watch_runs_no_method_of_a_tensor_subclass():
    calls = []

    class Counting(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            calls.append(getattr(func, "__name__", func))
            if func is not torch.add:
                return NotImplemented
            return super().__torch_function__(func, types, args, kwargs or {})

    one = torch.ones(3).as_subclass(Counting)
    with watch(strict=True) as strict:
        torch.add(one, one)
        with pytest.raises(TypeError, match="NotImplemented"):
            torch.mul(one, one)
    assert calls == ["add", "mul"]
    assert strict.broken is None


def test_warnings_name_the_line_that_called():
    def loss():
        return nn.functional.mse_loss(torch.ones(2), torch.ones(2, 1))

    for strict in (False, True):
        with watch(strict=strict), pytest.warns(UserWarning, match="target size") as caught:
            loss()
        assert caught[0].filename == __file__
        assert caught[0].lineno == loss.__code__.co_firstlineno + 1


def test_tracebacks_are_those_of_the_program():
    def functions(error: BaseException) -> list[str]:
        return [frame.name for frame in traceback.extract_tb(error.__traceback__)]

    def multiply():
        torch.ones(2, 3) @ torch.ones(2, 3)

    def compare():
        nn.functional.cross_entropy(torch.ones(2, 3), torch.ones(5))

    for program in (multiply, compare, fails):
        seen = []
        for way in (contextlib.nullcontext, watch, lambda: watch(strict=True)):
            with way():
                try:
                    program()
                except RuntimeError as error:
                    seen.append(functions(error))
                except ValueError as error:
                    seen.append(functions(error))
        assert seen[0] == seen[1] == seen[2]


def test_the_one_difference_of_a_strict_watch():
    """It sees ``autograd.grad`` as a whole: two more frames of PyTorch's own, if that fails."""

    def program():
        torch.autograd.grad(torch.ones(2).sum(), torch.ones(2))

    seen = []
    for strict in (False, True):
        with watch(strict=strict), pytest.raises(RuntimeError) as context:
            program()
        seen.append([frame.name for frame in traceback.extract_tb(context.tb)][1:])
    assert seen[0] == ["program", "grad", "_engine_run_backward"]
    assert seen[1] == ["program", "grad", "handle_torch_function", "grad", "_engine_run_backward"]


def test_errors_of_others_that_quote_autograd_get_no_note():
    with pytest.raises(KeyError) as context, watch():
        raise KeyError("column 'leaf Variable that requires grad' is missing")
    assert not hasattr(context.value, "__notes__")


@STRICT
def test_what_a_failed_backward_had_freed_is_told(strict):
    """The first error was another one: a part of the graph had been freed when it was raised."""
    x = torch.ones(3, requires_grad=True)
    with watch(strict=strict):
        y = x.exp()
        loss = (y.sin() * 2).exp().sum()
        y.add_(1)
        with pytest.raises(RuntimeError, match="inplace"):
            loss.backward()
        line = inspect.currentframe().f_lineno - 1
        with pytest.raises(RuntimeError, match=TWICE) as context:
            loss.backward()
    assert explanation_of(context.value).began_at.line == line


def test_a_scripted_function_under_a_strict_watch():
    with watch(strict=True):
        scripted = torch.jit.script(lambda_free)
        assert torch.equal(scripted(torch.ones(2)), nn.functional.gelu(torch.ones(2)) * 2)


def lambda_free(x):
    return nn.functional.gelu(x) * 2


class Slow(Exception):
    """What a signal handler of the program raises."""


@pytest.mark.parametrize(
    "part", ["gradtrace.watching.operations.tensors_in", "gradtrace.watching.engine.mark_freed"]
)
def test_what_the_programs_signal_handler_raises_is_the_programs(monkeypatch, part):
    """Python runs it between any two instructions: here, while code of ours runs."""

    def handler(*arguments):
        raise Slow

    def interrupted(*arguments, **keywords):
        signal.raise_signal(signal.SIGUSR1)

    previous = signal.signal(signal.SIGUSR1, handler)
    try:
        with watch(strict=True), pytest.raises(Slow):
            loss = torch.ones(3, requires_grad=True).exp().sum()
            monkeypatch.setattr(part, interrupted)
            loss.exp().backward()
        monkeypatch.undo()
    finally:
        signal.signal(signal.SIGUSR1, previous)


def test_backward_inside_a_compiled_function_compiles_nothing_of_ours():
    w = torch.ones(4, requires_grad=True)

    def frames() -> dict[str, int]:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()

        @torch.compile(backend="eager")
        def step(x):
            loss = (w * x).sin().sum()
            loss.backward()
            return loss + 1

        step(torch.ones(4))
        return dict(torch._dynamo.utils.counters["frames"])

    plain = frames()
    for strict in (False, True):
        with watch(strict=strict):
            assert frames() == plain


def test_modules_that_are_none_and_functions_that_ask_themselves(monkeypatch):
    """A blocked import is a None in sys.modules; a program may use PyTorch's override protocol."""
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with watch(strict=True) as one:
        from torch.overrides import handle_torch_function, has_torch_function_unary

        def mine(x):
            if has_torch_function_unary(x):
                return handle_torch_function(mine, (x,), x)
            return x * 2

        compiled = torch.compile(mine, fullgraph=True, backend="eager")
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert one.broken is None


def test_the_compiler_can_trace_an_operation_that_is_observed():
    """torch.export of release 2.11 traces the program with its modes active."""
    with watch(strict=True):
        observer = torch.overrides._get_current_function_mode_stack()[-1]
        traced = torch.compile(
            lambda x: observer.__torch_function__(torch.sin, (), (x,)),
            backend="eager",
            fullgraph=True,
        )
        assert torch.equal(traced(torch.ones(2)), torch.ones(2).sin())


def test_tensors_may_be_swapped():
    with watch(strict=True):
        w = torch.ones(2, requires_grad=True)
        cut = w.detach().clone()
        torch.utils.swap_tensors(cut, torch.zeros(2))
    assert torch.equal(cut, torch.zeros(2))


def test_namespaces_and_locals_are_not_kept():
    def namespace_of_a_script() -> weakref.ref:
        namespace = {"torch": torch}
        exec("x = torch.zeros(1_000)\ny = x + 1", namespace)
        return weakref.ref(namespace["y"])

    def train() -> list[weakref.ref]:
        w, alive = torch.ones(3, requires_grad=True), []
        for _ in range(40):  # the variables are looked through at the 32nd backward
            out = torch.ones(2, 3) * w
            out.sum().backward()
            alive.append(weakref.ref(out))
            del out
        gc.collect()
        assert not any(reference() is not None for reference in alive)
        return alive

    with watch(strict=True):
        reference = namespace_of_a_script()
        gc.collect()
        assert reference() is None
        train()


def test_tracebacks_of_subclasses_are_those_of_the_program():
    class Mine(torch.Tensor):
        pass

    def program():
        one = torch.ones(3).as_subclass(Mine)
        nn.functional.cross_entropy(one, one, reduction="bad")

    seen = []
    for way in (contextlib.nullcontext, watch, lambda: watch(strict=True)):
        with way(), pytest.raises(ValueError) as context:
            program()
        seen.append([frame.name for frame in traceback.extract_tb(context.tb)][1:])
    assert seen[0] == seen[1] == seen[2]


def test_a_hook_of_the_program_has_the_number_that_it_would_have():
    before = nn.Linear(1, 1).register_forward_hook(lambda *arguments: None).id
    with watch(strict=True):
        freed_loss()
    assert nn.Linear(1, 1).register_forward_hook(lambda *arguments: None).id == before + 1


def test_a_pickled_exception_needs_no_gradtrace():
    with watch(), pytest.raises(RuntimeError, match=TWICE) as context:
        freed_loss().backward()
    stored = pickle.dumps(context.value.__notes__)
    assert b"gradtrace.explaining.watcher" not in stored
    assert type(pickle.loads(stored)[0]) is str


def test_looking_at_variables_asks_no_object_for_its_class():
    asked = []

    class Shy:
        @property
        def __class__(self):
            asked.append(True)
            return int

    shy = [Shy()]
    with watch(strict=True):
        freed_loss()
    assert len(shy) == 1 and not asked


def test_a_strict_watch_asks_no_leaf_of_a_subclass():
    """It looks at the leaves of each backward's graph, past the class."""
    calls = []

    class Counting(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            calls.append(getattr(func, "__name__", func))
            return super().__torch_function__(func, types, args, kwargs or {})

    def program() -> list[str]:
        leaf = torch.ones(3).as_subclass(Counting).requires_grad_()
        loss = (leaf.as_subclass(torch.Tensor) * 2).sum()
        calls.clear()
        loss.backward()
        return list(calls)

    plain = program()
    with watch(strict=True) as one:
        assert program() == plain
    assert one.broken is None


def test_a_parameter_in_a_dict_with_the_keys_of_the_registered_ones_is_found():
    """Dicts of tensors that have the same keys cannot be compared with ``==``."""

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.plain = {"weight": torch.ones(2, requires_grad=True)}

    model = Scale()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings(), watch(strict=True) as watching:
        warnings.simplefilter("ignore", SilentFailure)
        for _ in range(5):
            optimizer.zero_grad()
            (model.weight * model.plain["weight"]).sum().backward()
            optimizer.step()
    assert watching.broken is None
    assert [finding.cause for finding in watching.findings] == ["in_no_optimizer"]


@pytest.mark.parametrize("strict", [False, True])
def test_the_line_that_stored_a_carried_tensor_is_named(strict):
    weight, memory = torch.ones(2, requires_grad=True), [torch.zeros(2)]
    with pytest.raises(RuntimeError, match="second time") as failure, watch(strict=strict):
        for _ in range(2):
            state = (weight * memory[-1]).exp()
            state.sum().backward()
            memory.append(state)
    diagnosis = explanation_of(failure.value)
    assert diagnosis.stored_at.text == "memory.append(state)"
    assert f"  stored:  {diagnosis.stored_at}" in diagnosis.text()


@pytest.mark.skipif(torch.__version__ >= (2, 14), reason="cdist has a second derivative there")
@pytest.mark.parametrize("strict", [False, True])
def test_the_operation_without_a_second_derivative_is_named(strict):
    points = torch.rand(3, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="not implemented") as failure, watch(strict=strict):
        distance = torch.cdist(points, points + 1).sum()
        (slope,) = torch.autograd.grad(distance, points, create_graph=True)
        slope.sum().backward()
    diagnosis = explanation_of(failure.value)
    assert diagnosis.made_at.text.startswith("distance = torch.cdist")
    assert "cdist has no second derivative" in diagnosis.text()
    assert "(x[:, None] - y)" in diagnosis.fix


def test_all_changed_tensors_are_named():
    rate = torch.rand(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="inplace") as failure, watch(strict=True):
        first, second = rate.exp(), rate.sigmoid()
        first += 1
        second += 1
        (first + second).sum().backward()
    assert set(explanation_of(failure.value).carried_by.split(", ")) == {"first", "second"}


def test_a_changed_tensor_fails_and_is_explained_again():
    errors = []
    with watch(strict=True):
        x = torch.ones(2, requires_grad=True)
        y = x.exp()
        y += 1
        for _ in range(2):
            with pytest.raises(RuntimeError, match="inplace") as failure:
                y.sum().backward()
            errors.append((str(failure.value), explanation_of(failure.value)))
    (first, found), (second, again) = errors
    assert (second, again.cause, again.carried_by) == (first, found.cause, found.carried_by)
    assert (found.confidence, found.carried_by) == ("certain", "y")


def test_the_line_that_computed_an_output_without_the_input_is_named():
    model, image = torch.nn.Linear(2, 1), torch.rand(1, 2)
    with pytest.raises(RuntimeError, match="not have been used") as failure, watch():
        score = model(image).sum()
        image = image.clone().requires_grad_()
        torch.autograd.grad(score, image)
    assert explanation_of(failure.value).began_at.text == "score = model(image).sum()"


def test_many_optimizers_cost_a_strict_watch_no_search(monkeypatch):
    searches = []
    monkeypatch.setattr(gc, "get_objects", lambda *_: searches.append("objects") or [])
    monkeypatch.setattr(wrong_gradients, "names_of", lambda *_: searches.append("names"))
    layers = nn.ModuleList(nn.Linear(2, 1) for _ in range(12))
    optimizers = [torch.optim.SGD(layer.parameters(), 0.1) for layer in layers]
    with watch(strict=True):
        for _ in range(3):
            for optimizer in optimizers:
                optimizer.zero_grad()
            sum(layer(torch.ones(1, 2)).sum() for layer in layers).backward()
            for optimizer in optimizers:
                optimizer.step()
    assert not searches
