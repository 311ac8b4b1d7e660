"""The engine: the events it reports to its listeners, and that it is off without listeners."""

import signal
import traceback
from pathlib import Path

import pytest
import torch
from custom_functions import SavesInput

from gradtrace.watching.engine import Engine
from gradtrace.watching.record import freed_by


class Heard:
    """A listener that notes its events; an event in ``failing`` raises instead."""

    strict = True

    def __init__(self, knowledge: int = 0, failing: str | None = None):
        self.knowledge, self.failing = knowledge, failing
        self.events: list[tuple] = []

    def __getattr__(self, name: str):
        def heard(*arguments):
            if name == self.failing:
                raise ZeroDivisionError(name)
            self.events.append((name, *arguments))

        return heard

    def names(self) -> list[str]:
        names = [name for name, *_ in self.events]
        self.events.clear()
        return names


@pytest.fixture
def attached():
    """Attach listeners to an engine of their own."""
    engine, listeners = Engine(), []

    def attach(*new):
        for listener in new:
            engine.attach(listener)
            listeners.append(listener)
        return engine

    yield attach
    for listener in listeners:
        engine.detach(listener)
        listener.events.clear()
    weight = torch.ones(2, requires_grad=True)
    weight.exp().sum().backward()
    torch.optim.SGD([weight], lr=0.1).step()
    assert not any(listener.events for listener in listeners)


def test_calls_are_reported_with_how_they_were_made(attached):
    heard = Heard()
    attached(heard)
    weight = torch.ones(2, requires_grad=True)
    loss = weight.exp().sum()
    loss.backward(retain_graph=True)
    torch.autograd.grad(loss, weight, create_graph=True)
    with torch.no_grad():
        loss.backward()
    calls = [arguments[0] for name, *arguments in heard.events if name == "began"]
    assert [call.number for call in calls] == [1, 2, 3]
    assert [call.keeps_graph for call in calls] == [True, True, False]
    assert [call.creates_graph for call in calls] == [False, True, False]
    assert [call.whole for call in calls] == [True, False, True]
    assert [call.recorded for call in calls] == [True, True, False]
    assert not any(call.inference or call.failed for call in calls)
    assert {call.location.file for call in calls} == {__file__}
    assert calls[0].sequence_nr == loss.grad_fn._sequence_nr() + 1
    assert all(arguments[1] == (loss,) for name, *arguments in heard.events if name == "began")
    ended = [event for event in heard.events if event[0] == "ended"]
    assert ended == [("ended", call, None) for call in calls]


def test_a_call_that_creates_a_graph_frees_its_own_unless_it_is_retained(attached):
    heard = Heard()
    attached(heard)
    weight = torch.ones(2, requires_grad=True)
    loss = weight.exp().sum()
    torch.autograd.grad(loss, weight, create_graph=True, retain_graph=False)
    call = heard.events[0][1]
    assert call.creates_graph and not call.keeps_graph and freed_by(loss.grad_fn) is call
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_of_a_recursion_a_call_has_the_innermost_instruction(attached):
    heard = Heard()
    attached(heard)
    loss = torch.ones(2, requires_grad=True).exp().sum()

    def descend(levels):
        if levels:
            return descend(levels - 1)
        return loss.backward()

    descend(2)
    code, call = descend.__code__, heard.events[0][1]
    line, *_ = [*code.co_positions()][call.path[code] // 2]
    assert line == call.location.line == code.co_firstlineno + 3


def test_an_error_is_reported_to_the_listener_that_knows_most(attached):
    little, much = Heard(1), Heard(2)
    attached(much, little)
    weight = torch.ones(2, requires_grad=True)
    loss = weight.exp().sum()
    loss.backward()
    for listener in (little, much):
        assert listener.names() == ["began", "ended"]
    with pytest.raises(RuntimeError) as context:
        torch.autograd.grad(loss, weight)
    _, (name, call, outputs, inputs, error), ended = much.events
    assert (name, outputs, inputs, error) == ("failed", (loss,), (weight,), context.value)
    assert call.failed and ended == ("ended", call, error)
    assert little.names() == ["began", "ended"]
    much.events.clear()
    with torch.inference_mode(), pytest.raises(RuntimeError):
        torch.ones(2).sum().backward()
    call = much.events[0][1]
    assert call.inference and not call.recorded


def test_the_roots_of_a_call_are_nodes_and_their_outputs(attached):
    heard = Heard()
    attached(heard)
    torch.ones((), requires_grad=True).backward()
    second = torch.ones(3, requires_grad=True).unbind()[1]
    second.backward()
    leaf, unbound = (arguments[0] for name, *arguments in heard.events if name == "ended")
    assert (leaf.roots, leaf.output_nrs) == ((), {0})
    assert (unbound.roots, unbound.output_nrs) == ((second.grad_fn._sequence_nr(),), {1})


def test_a_failed_call_is_noted_at_what_it_freed(attached):
    heard = Heard()
    attached(heard)
    known_when_reported = []
    heard.failed = lambda call, outputs, *_: known_when_reported.append(
        freed_by(outputs[0].grad_fn.next_functions[0][0])
    )
    y = torch.ones(3, requires_grad=True).exp()
    loss = y.sin().exp().sum()
    y.add_(1)
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()
    exp_node = loss.grad_fn.next_functions[0][0]
    [(sin_node, _)] = exp_node.next_functions
    failed = heard.events[0][1]
    assert freed_by(exp_node) is failed and freed_by(sin_node) is None
    assert known_when_reported == [None]  # else the call itself would be the earlier call
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    assert freed_by(exp_node) is failed


class KeepsMore(SavesInput):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, 2 * x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[1]


def test_functions_that_keep_what_forward_computed_are_named(attached):
    heard = Heard()
    attached(heard)
    weight = torch.ones(2, requires_grad=True)
    loss = (SavesInput.apply(weight) + KeepsMore.apply(weight)).exp().sum()
    for create_graph in (True, False):
        torch.autograd.grad(loss, weight, create_graph=create_graph)
    first, second = (arguments[0] for name, *arguments in heard.events if name == "ended")
    assert [function() for function in first.derived] == [KeepsMore]
    assert second.derived == ()


class CallsWithArguments(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self, closure, factor, scale=None):
        return closure(factor, scale=scale)


@pytest.mark.parametrize("as_keyword", [False, True])
def test_steps_are_reported_with_their_closures(attached, as_keyword):
    heard = Heard()
    attached(heard)
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    optimizer.step()
    assert heard.events == [("stepping", False), ("stepped", optimizer), ("step_ended",)]
    heard.events.clear()

    def closure():
        assert heard.events[-1] == ("in_closure", optimizer, True)
        return 5

    result = optimizer.step(closure=closure) if as_keyword else optimizer.step(closure)
    assert result == 5
    assert heard.events[0] == ("stepping", True)
    assert ("in_closure", optimizer, False) in heard.events
    assert heard.names()[-2:] == ["stepped", "step_ended"]


def test_steps_in_compiled_regions_are_not_reported(attached):
    heard = Heard()
    engine = attached(heard)
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)
    for inside, reported in ((True, False), (True, False), (False, False), (False, True)):
        engine._compiled_region(inside)
        assert heard.events == [("compiled", inside)]
        heard.events.clear()
        optimizer.step()
        assert bool(heard.names()) == reported


def test_the_arguments_of_a_step_and_of_its_closure_are_those_of_the_program(attached):
    attached(Heard())
    optimizer = CallsWithArguments([torch.ones(2, requires_grad=True)])
    assert optimizer.step(lambda x, scale: (x, scale), 3, scale=4) == (3, 4)


def test_the_error_of_a_closure_is_that_of_the_program(attached):
    error = ZeroDivisionError("in the closure")
    attached(Heard())

    def closure():
        raise error

    with pytest.raises(ZeroDivisionError) as context:
        torch.optim.LBFGS([torch.ones(2, requires_grad=True)]).step(closure)
    assert context.value is error and error.__context__ is None
    frames = traceback.extract_tb(error.__traceback__)
    assert not any("gradtrace/watching" in Path(frame.filename).as_posix() for frame in frames)


def test_a_parameter_is_reported_with_the_tensor_that_it_was_made_of(attached):
    heard, plain = Heard(), Heard()
    plain.strict = False
    engine, data = attached(heard, plain), torch.ones(2)
    parameter = torch.nn.Parameter(data)
    for listener in (heard, plain):
        ((name, *tensors),) = listener.events
        assert name == "parameter_made" and tensors[0] is data and tensors[1] is parameter
        listener.events.clear()
    engine.detach(heard)  # a plain watch alone needs neither parameters nor the beginning of steps
    torch.optim.SGD([torch.nn.Parameter(data)], lr=0.1).step()
    assert (plain.names(), heard.names()) == (["stepped"], [])


def test_a_plain_listener_observes_no_functions(attached):
    plain, strict = Heard(), Heard()
    plain.strict = False
    overridden = torch.nn.functional.has_torch_function
    engine = attached(plain)
    assert torch.nn.functional.has_torch_function is overridden
    engine.attach(strict)
    assert torch.nn.functional.has_torch_function is not overridden
    engine.detach(strict)
    assert torch.nn.functional.has_torch_function is overridden


@pytest.mark.parametrize("strict", [False, True])
def test_compiled_regions_are_reported(attached, strict):
    from torch._dynamo import eval_frame  # slow to import

    heard = Heard()
    heard.strict = strict
    attached(heard)
    eval_frame.set_eval_frame(False)  # as compiled code that is compiled no more
    assert heard.events == [("compiled", True)]
    eval_frame.set_eval_frame(None)
    assert heard.events == [("compiled", True), ("compiled", False)]


def test_hooks_that_cannot_be_installed_are_reported(attached, monkeypatch):
    heard, error = Heard(), ZeroDivisionError("no hooks")

    def broken():
        raise error

    engine = attached(heard)
    with monkeypatch.context() as patched:
        patched.setattr(engine, "_hook", broken)
        engine._compiled_region(True)
    assert heard.events == [("broke", error), ("compiled", True)]
    engine._compiled_region(False)


@pytest.mark.parametrize("detaches", [False, True])
def test_hooks_that_others_removed_are_installed_for_the_next_listener(attached, detaches):
    earlier, heard = Heard(), Heard()
    engine = attached(earlier)
    removed = engine._backward
    removed._exchange(removed._log, removed._register)
    engine._steps._hooks.clear()
    if detaches:
        engine.detach(earlier)
    attached(heard)
    weight = torch.ones(2, requires_grad=True)
    weight.exp().sum().backward()
    torch.optim.SGD([weight], lr=0.1).step()
    assert heard.names() == ["began", "ended", "stepping", "stepped", "step_ended"]


@pytest.mark.parametrize("event", ["began", "ended"])
def test_a_listener_that_fails_is_reported_and_the_call_goes_on(attached, event):
    heard, broken = Heard(), Heard(failing=event)
    attached(broken, heard)
    weight = torch.ones(2, requires_grad=True)
    weight.sum().backward()
    assert torch.equal(weight.grad, torch.ones(2))
    for listener in (heard, broken):
        (error,) = (arguments[0] for name, *arguments in listener.events if name == "broke")
        assert isinstance(error, ZeroDivisionError)


def test_an_error_of_the_programs_signal_handler_in_a_listener_is_the_programs(attached):
    class Interrupted(Heard):
        def began(self, *arguments):
            signal.raise_signal(signal.SIGINT)

    def handler(number, frame):
        raise ZeroDivisionError("of the program")

    heard = Interrupted()
    attached(heard)
    previous = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(ZeroDivisionError, match="of the program"):
            torch.ones(2, requires_grad=True).sum().backward()
    finally:
        signal.signal(signal.SIGINT, previous)
    assert "broke" not in heard.names()


def test_a_call_marks_nodes_below_those_that_a_limited_call_freed(attached):
    heard = Heard()
    attached(heard)
    x, y = (torch.ones(2, requires_grad=True) for _ in range(2))
    hidden = x.exp()
    total = hidden + y
    total.sum().backward(inputs=[y])
    total.sum().backward()
    calls = [call for name, call, *_ in heard.events if name == "began"]
    assert freed_by(hidden.grad_fn) is calls[1]
