"""trace() on programs of every shape: the right lines, the right nodes, and nothing disturbed."""

import contextlib
import dataclasses
import functools
import gc
import json
import sys
import threading
import weakref
from collections import OrderedDict, deque, namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from trace_helpers import modified_at, read_back

from gradtrace import trace
from gradtrace.autograd import frames
from gradtrace.player.page import static_html
from gradtrace.tracing import tracer
from gradtrace.tracing.steps import SCHEMA

needs_keep_graph = pytest.mark.skipif(
    not hasattr(torch._C._autograd, "_get_current_graph_task_keep_graph"),
    reason="this PyTorch does not tell whether a backward keeps the graph",
)


def text(seen, line):
    """The source of a line, without indentation and comment."""
    return None if line is None else seen.source[line].partition("#")[0].strip()


def freed_by(seen):
    """For each freed node, its name and the source of the line that freed it."""
    return sorted((seen.nodes[node].name, text(seen, line)) for node, line in seen.freed.items())


def modified_by(seen):
    lines = modified_at(seen).items()
    return sorted((seen.nodes[node].name, text(seen, line)) for node, line in lines)


def names(seen, step=-1):
    return [variable.name for variable in seen.steps[step].variables]


def error_node(seen):
    return None if seen.error.node is None else seen.nodes[seen.error.node].name


# Which line freed, modified, raised


def test_second_backward():
    def program():
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        a = y.mean()
        b = y.sum()
        a.backward()
        b.backward()

    seen = trace(program)
    assert text(seen, seen.error.line) == "b.backward()"
    assert "second time" in seen.error.message
    assert error_node(seen) == "ExpBackward0"
    assert freed_by(seen) == [("ExpBackward0", "a.backward()")]
    assert seen.retained_bytes == [0, 0, 12, 12, 12, 0, 0]
    assert [text(seen, step.ran) for step in seen.steps][:2] == [
        None,
        "x = torch.ones(3, requires_grad=True)",
    ]


def test_modified_in_place():
    def program():
        w = torch.ones(3, requires_grad=True)
        loss = (w * w).sum()
        with torch.no_grad():
            w -= 0.1
        loss.backward()

    seen = trace(program)
    assert modified_by(seen) == [("MulBackward0", "w -= 0.1")]
    assert text(seen, seen.error.line) == "loss.backward()"
    assert error_node(seen) == "MulBackward0"
    assert [v.version for v in seen.steps[-1].variables if v.name == "w"] == [1]


def test_hidden_state_carried_through_a_loop():
    cell = torch.nn.GRUCell(2, 2)

    def program():
        h = torch.zeros(1, 2)
        for _ in range(3):
            h = cell(torch.ones(1, 2), h)
            loss = h.sum()
            loss.backward()

    seen = trace(program)
    assert text(seen, seen.error.line) == "loss.backward()"
    assert seen.freed[seen.error.node] == seen.error.line
    assert {line for _, line in freed_by(seen)} == {"loss.backward()"}


def test_partial_grad_frees_only_between():
    def program():
        x = torch.ones(2, requires_grad=True)
        a = x.exp()
        b = a.sin()
        torch.autograd.grad(b.sum(), a)
        a.sum().backward()

    seen = trace(program)
    assert seen.error is None
    assert freed_by(seen) == [
        ("ExpBackward0", "a.sum().backward()"),
        ("SinBackward0", "torch.autograd.grad(b.sum(), a)"),
    ]


def test_optimizer_step_between_two_backwards():
    def program():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = model(torch.ones(1, 2)).sum()
        loss.backward(retain_graph=True)
        optimizer.step()
        loss.backward()

    seen = trace(program)
    assert "modified by an inplace operation" in seen.error.message
    assert {line for _, line in modified_by(seen)} == {"optimizer.step()"}
    assert modified_at(seen)[seen.error.node]


@needs_keep_graph
def test_copy_slices_is_freed_when_pytorch_frees_it():
    def program(retain):
        y = torch.ones(4, requires_grad=True).clone()
        y[:2].mul_(torch.full((2,), 3.0))
        y.sum().backward(retain_graph=retain)
        y.sum().backward()

    seen = trace(program, False)
    assert ("CopySlices", "y.sum().backward(retain_graph=retain)") in freed_by(seen)
    assert error_node(seen) == "CopySlices"
    kept = trace(program, True)
    assert kept.error is None
    assert ("CopySlices", "y.sum().backward()") in freed_by(kept)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.aside = torch.ones(2)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def test_a_function_that_saves_nothing_is_never_freed():
    def program():
        y = Doubled.apply(torch.ones(2, requires_grad=True))
        y.sum().backward()
        y.sum().backward()

    seen = trace(program)
    assert seen.error is None
    assert freed_by(seen) == []


def test_checkpoint_is_recomputed_by_backward_only():
    runs = []

    def block(x):
        runs.append(1)
        return x.exp().sin()

    def program():
        x = torch.ones(2, requires_grad=True)
        y = checkpoint(block, x, use_reentrant=False)
        z = y.sum()
        z.backward()
        return x.grad

    seen = trace(program)
    assert seen.error is None
    if hasattr(torch._C._autograd.SavedTensor, "data"):
        assert len(runs) == 2
    assert ("ExpBackward0", "z.backward()") in freed_by(seen)


def test_an_error_inside_a_called_helper_belongs_to_the_calling_line():
    def helper(loss):
        loss.backward()
        loss.backward()

    def program():
        loss = torch.ones(2, requires_grad=True).exp().sum()
        helper(loss)

    seen = trace(program)
    assert text(seen, seen.error.line) == "helper(loss)"
    assert error_node(seen) == "ExpBackward0"


def test_caught_exceptions_are_told_and_do_not_end_the_trace():
    def program():
        loss = torch.ones(2, requires_grad=True).exp().sum()
        loss.backward()
        try:
            loss.backward()
        except RuntimeError:
            caught = True
        return caught

    seen = trace(program)
    assert seen.error is None
    told = [step.raised for step in seen.steps if step.raised]
    assert [text(seen, raised.line) for raised in told] == ["loss.backward()"]
    assert seen.nodes[told[0].node].name == "ExpBackward0"
    assert ("caught", "True") in seen.steps[-1].values


def test_finally_and_with_do_not_take_the_blame():
    @contextlib.contextmanager
    def manager():
        yield

    def program():
        loss = torch.ones(2, requires_grad=True).exp().sum()
        loss.backward()
        try:
            with manager():
                loss.backward()
        finally:
            done = True
            print(done, end="")

    seen = trace(program)
    assert text(seen, seen.error.line) == "loss.backward()"
    assert seen.error.line == max(n for n in seen.source if "loss.backward()" in seen.source[n])
    assert error_node(seen) == "ExpBackward0"


def test_an_exception_raised_for_another_one():
    def program():
        try:
            raise ValueError("first")
        except ValueError as error:
            raise KeyError("second") from error

    seen = trace(program)
    assert (seen.error.type, seen.error.message) == ("KeyError", "'second'")
    assert "KeyError" in text(seen, seen.error.line)


def test_messages_that_cannot_be_printed():
    class Odd(Exception):
        def __str__(self):
            raise TypeError

    def program():
        raise Odd

    assert trace(program).error.type == "Odd"


def test_stop_iteration_that_is_an_error():
    def program():
        empty = iter(())
        next(empty)

    assert trace(program).error.type == "StopIteration"


def test_the_end_of_an_iteration_is_no_error():
    class Twice:
        def __iter__(self):
            self.left = 2
            return self

        def __next__(self):
            if not self.left:
                raise StopIteration
            self.left -= 1
            return self.left

    def program():
        total = 0
        for number in Twice():
            total += number
        return total

    seen = trace(program)
    assert seen.error is None
    assert not [step for step in seen.steps if step.raised]


# How source lines become steps


# fmt: off
def test_statements_over_several_lines_are_one_step():
    def program():
        x = torch.ones(
            3,
            requires_grad=True,
        )
        if (
            x.sum() > 0
            and x.dim() == 1
        ):
            y = x.exp()
        with (
            torch.no_grad(),
            torch.enable_grad(),
        ):
            z = (
                y
                .sum()
            )
        (
            z
            .backward()
        )
# fmt: on

    seen = trace(program)
    run = [text(seen, step.ran) for step in seen.steps]
    # The with statement runs again when it is left.
    assert run == [None, "x = torch.ones(", "if (", "y = x.exp()", "with (", "z = (", "with (", "("]
    assert freed_by(seen) == [("ExpBackward0", "(")]
    assert seen.statements[seen.steps[0].line] == seen.steps[0].line + 3


def test_one_line_loops_step_once_for_each_round():
    def program():
        x = torch.ones(1, requires_grad=True)
        for _ in range(3): x = x.exp()  # noqa: E701  # fmt: skip
        return x

    seen = trace(program)
    exps = [node.name for node in seen.nodes].count("ExpBackward0")
    assert exps == 3
    assert len({len(seen.states(step)) for step in range(len(seen.steps))}) >= 3


def test_two_statements_on_one_line():
    def program():
        x = torch.ones(1, requires_grad=True); y = x.exp()  # noqa: E702  # fmt: skip
        y.backward(); y.backward()  # noqa: E702  # fmt: skip

    seen = trace(program)
    assert text(seen, seen.error.line) == "y.backward(); y.backward()"


def test_lambda():
    x = torch.ones(2, requires_grad=True)
    seen = trace(lambda: x.exp().sum().backward())
    assert seen.error is None
    assert x.grad is not None


def test_recursion_traces_the_outermost_call():
    def power(x, n):
        if n == 0:
            return x
        return power(x.exp(), n - 1)

    seen = trace(power, torch.ones(1, requires_grad=True), 3)
    assert seen.error is None
    assert [text(seen, step.ran) for step in seen.steps] == [
        None,
        "if n == 0:",
        "return power(x.exp(), n - 1)",
    ]


def test_ten_thousand_rounds_are_cut_but_the_end_is_told():
    def program():
        x = torch.ones(2, requires_grad=True)
        total = x.sum()
        for i in range(10_000):
            a = i + 1
        y = x.exp().sum()
        y.backward()
        y.backward()
        return a, total

    seen = trace(program)
    assert len(seen.steps) == 1_001
    assert seen.unrecorded > 18_000
    assert seen.error.line == max(n for n in seen.source if "y.backward()" in seen.source[n])
    last = seen.steps[-1]
    assert (last.line, text(seen, last.ran)) == (None, "y.backward()")
    assert [seen.nodes[node].name for node in seen.freed] == ["ExpBackward0"]
    assert list(seen.freed.values()) == [None]  # no recorded line did it
    assert trace(program, max_steps=3).unrecorded == seen.unrecorded + 997


# What can be traced


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 1)
        self.state = None

    def forward(self, x):
        self.state = self.linear(x)
        return self.state.sum()

    @staticmethod
    def static(x):
        return x.exp()

    @classmethod
    def of_class(cls, x):
        return x.exp()


class Call:
    def __call__(self, x):
        return x.exp()


class Inherits(Call):
    pass


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


@decorated
@torch.enable_grad()
def behind_decorators(x):
    return x.exp()


def two_arguments(x, times):
    return x.exp() * times


CALLABLES = {
    "module": Model(),
    "bound method": Model().forward,
    "static method": Model.static,
    "class method": Model.of_class,
    "callable object": Call(),
    "inherited call": Inherits(),
    "decorated": behind_decorators,
    "partial": functools.partial(two_arguments, times=2),
    "partial of partial": functools.partial(functools.partial(two_arguments), times=2),
    "cached": functools.lru_cache(Model.static),
}


@pytest.mark.parametrize("function", CALLABLES.values(), ids=CALLABLES)
def test_all_kinds_of_functions(function):
    seen = trace(function, torch.ones(1, 2, requires_grad=True))
    assert seen.error is None
    assert len(seen.steps) >= 2
    assert "def " in next(iter(seen.source.values()))


def generates():
    yield 1


async def waits():
    pass


async def generates_later():
    yield 1


def made_by_exec():
    scope = {}
    code = compile("def f():\n    return 1", "<made by exec>", "exec")
    exec(code, scope)  # since 3.13 the source of <string> is that of python -c
    return scope["f"]


def runs_elsewhere():
    return None


def never_begins(f):
    @functools.wraps(f)
    def wrapper():
        return None

    return wrapper


REFUSED = {
    "builtin": (len, TypeError, "len .*has no Python lines.*def"),
    "builtin of torch": (torch.exp, TypeError, "exp .*has no Python lines"),
    "class": (Model, TypeError, "Model .*has no Python lines"),
    "number": (3, TypeError, "int .*has no Python lines"),
    "generator": (generates, TypeError, "generator function generates .*consumes it"),
    "coroutine": (waits, TypeError, "coroutine function waits"),
    "async generator": (generates_later, TypeError, "asynchronous generator"),
    "no source": (made_by_exec(), ValueError, "source of f cannot be found.*notebook cell"),
    "never begins": (never_begins(runs_elsewhere), ValueError, "none of the lines.*plain Python"),
}


@pytest.mark.parametrize(("function", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_named(function, error, message):
    with pytest.raises(error, match=message):
        trace(function)


def test_wrong_arguments_are_the_callers_error():
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        trace(two_arguments, 1)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupts_pass_and_tell_that_nothing_was_recorded(kind):
    def program():
        raise kind

    before = sys.gettrace()
    with pytest.raises(kind) as caught:
        trace(program)
    assert "recorded nothing" in caught.value.__notes__[0]
    assert sys.gettrace() is before


def test_a_program_that_switches_tracing_off_is_told_so():
    def program():
        sys.settrace(None)
        return 1

    with pytest.raises(ValueError, match=r"switched the tracing.*sys\.settrace"):
        trace(program)


def test_a_program_that_traces_and_puts_things_back():
    def inner():
        return torch.ones(1, requires_grad=True).exp()

    def program():
        before = sys.gettrace()
        sys.settrace(lambda *event: None)
        sys.settrace(before)
        seen = trace(inner)
        return seen

    seen = trace(program)
    assert seen.error is None
    assert "seen" not in names(seen)


def test_the_tracer_before_is_restored():
    def tracer(frame, event, arg):
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        trace(lambda: 1)
        restored = sys.gettrace()
        trace(lambda: 1 / 0)
        again = sys.gettrace()
    finally:
        sys.settrace(before)
    assert restored is again is tracer


def test_a_tracer_that_the_program_begins_goes_on():
    def tracer(frame, event, arg):
        return None

    def program():
        sys.settrace(tracer)

    before = sys.gettrace()
    try:
        seen = trace(program)
        after = sys.gettrace()
    finally:
        sys.settrace(before)
    assert after is tracer
    assert seen.error is None


# The call of a function that need not be defined yet


def recorded(name, run):
    with tracer.CallRecorder(__file__, name) as recorder:
        run()
        assert sys.gettrace() is None  # the call is over: full speed again
    return recorder.data()


@pytest.mark.parametrize("name", ["forward", "Model.forward"])
def test_the_first_call_of_that_name_is_recorded(name):
    def run():
        model = Model()
        model(torch.ones(1, 2))
        model(torch.ones(7, 2))

    seen = recorded(name, run)
    shapes = {variable.name: variable.shape for variable in seen.steps[0].variables}
    assert (seen.function, shapes["x"]) == ("forward", (1, 2))


def test_a_recorded_call_may_fail():
    def fails():
        raise ValueError("of its own")

    def run():
        with contextlib.suppress(ValueError):
            fails()

    seen = recorded("fails", run)
    assert seen.error.message == "of its own"


def test_no_call_no_trace():
    with tracer.CallRecorder(__file__, "never_called") as recorder:
        behind_decorators(torch.ones(1))
    assert recorder.data() is None
    with tracer.CallRecorder("another.py", "behind_decorators") as recorder:
        behind_decorators(torch.ones(1))
    assert recorder.data() is None


def test_a_call_that_cannot_be_recorded_is_named_when_asked_for():
    with tracer.CallRecorder(__file__, "generates") as recorder:
        assert list(generates()) == [1]
    with pytest.raises(TypeError, match="generator function generates"):
        recorder.data()
    with tracer.CallRecorder("<made by exec>", "f") as recorder:
        assert made_by_exec()() == 1
    with pytest.raises(ValueError, match="source of f cannot be found"):
        recorder.data()


def test_threads():
    found = []

    def program():
        x = torch.ones(2, requires_grad=True)
        y = x.exp().sum()
        worker = threading.Thread(target=y.backward)
        worker.start()
        worker.join()
        return x.grad

    worker = threading.Thread(target=lambda: found.append(trace(program)))
    worker.start()
    worker.join()
    (seen,) = found
    assert seen.error is None
    freed = dict(freed_by(seen))
    assert freed["ExpBackward0"] in ("worker.start()", "worker.join()")


def test_a_failure_of_the_recorder_is_not_the_programs(monkeypatch):
    def broken(*args):
        raise RuntimeError("second time")

    monkeypatch.setattr(tracer, "reach", broken)
    with pytest.raises(RuntimeError, match="bug of gradtrace"):
        trace(lambda: torch.ones(1))


# What the variables reach

GLOBAL = {"kept": torch.ones(1, requires_grad=True)}
Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Record:
    value: torch.Tensor


@dataclasses.dataclass(slots=True)
class Slotted:
    value: torch.Tensor


class Lazy(dict):
    """A mapping whose methods must not be run by looking at it."""

    def items(self):
        raise AssertionError("looked at")

    __iter__ = __len__ = keys = values = items


def test_variables_inside_containers_modules_and_objects():
    captured = torch.ones(1, requires_grad=True)

    class Program:
        def __init__(self):
            self.cache = [torch.ones(1)]

        def run(self):
            def x():
                return torch.ones(1)

            listed, nested = [x()], {"a": [x(), (x(),)], 3: x(), Record: x()}
            record, slotted, pair = Record(x()), Slotted(x()), Pair(x(), x())
            queue, ordered, lazy = deque([x()]), OrderedDict(a=x()), Lazy(a=x())
            deep = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False)))
            text, number, flag = "s" * 100, 1 / 3, True
            return (GLOBAL, captured, listed, nested, record, slotted, pair, queue, ordered, lazy,
                    deep, text, number, flag)  # fmt: skip

    seen = trace(Program().run)
    assert seen.error is None
    assert set(names(seen)) == {
        "self.cache[0]", "captured", "GLOBAL['kept']", "listed[0]", "nested['a'][0]",
        "nested['a'][1][0]", "nested[3]", "nested[type 2]", "record.value", "slotted.value",
        "pair.first", "pair.second", "queue[0]", "ordered['a']", "lazy['a']", "deep.0.0.weight",
    }  # fmt: skip
    values = dict(seen.steps[-1].values)
    assert values["number"] == "0.333333"
    assert values["flag"] == "True"
    assert len(values["text"]) < 50


def test_a_tensor_is_found_under_each_of_its_names():
    def program():
        x = again = torch.ones(1, requires_grad=True)
        kept = [x]
        y = x.exp()
        return again, kept, y

    seen = trace(program)
    assert names(seen) == ["x", "again", "y"]
    assert {v.node for v in seen.steps[-1].variables[:2]} == {0}
    assert seen.nodes[0].label == "x"


def test_cycles_and_long_containers_end():
    def program():
        loop = []
        loop.append(loop)
        long = [torch.ones(1)] * 3 + list(range(5_000))
        big = 10**5_000
        odd = float("nan")
        return loop, long, big, odd

    seen = trace(program)
    assert names(seen) == ["long[0]"]
    values = dict(seen.steps[-1].values)
    assert (values["big"], values["odd"]) == ("a large integer", "nan")


def test_grad_is_shown_and_rounded():
    def program():
        x = torch.full((2,), 1 / 3, requires_grad=True)
        y = torch.ones(9, requires_grad=True)
        e = torch.nn.Embedding(4, 3, sparse=True)
        c = torch.ones(2, dtype=torch.complex64, requires_grad=True)
        m = torch.ones(2, device="meta", requires_grad=True)
        (x * x).sum().backward()
        (y * 2).sum().backward()
        e(torch.tensor([1])).sum().backward()
        (c * c).abs().sum().backward()
        (m * 2).sum().backward()

    seen = trace(program)
    assert {v.name: v.grad for v in seen.steps[-1].variables} == {
        "x": "[0.667, 0.667]",
        "y": "norm 6",
        "e.weight": "norm 1.73",
        "c": "[2+0j, 2+0j]",
        "m": "without values",
    }


def test_a_gradient_with_a_graph_is_part_of_the_picture():
    def program():
        x = torch.ones(2, requires_grad=True)
        x.grad, = torch.autograd.grad((x**3).sum(), x, create_graph=True)  # fmt: skip

    assert "x.grad" in names(trace(program))


def test_leaves_without_a_variable_and_names_of_leaves():
    def program():
        x = torch.ones(1, requires_grad=True)
        y = x * torch.ones(1, requires_grad=True)
        return y

    labels = {node.label for node in trace(program).nodes if node.leaf}
    assert labels == {"x", "a leaf no variable holds"}


def test_inference_and_functional_transforms():
    def inner(x):
        y = x.exp()
        return (y * y).sum()

    def program():
        p = torch.ones(2, requires_grad=True)
        with torch.inference_mode():
            q = torch.ones(2, requires_grad=True)
        g = torch.func.grad(inner)(torch.ones(2))
        return p, q, g

    seen = trace(program)
    assert seen.error is None
    assert {v.name: v.version for v in seen.steps[-1].variables} == {"p": 0, "q": None, "g": 0}
    assert trace(torch.func.grad(inner), torch.ones(2)).error is None
    assert trace(torch.func.vmap(inner), torch.ones(2, 2)).error is None


# Lines that were passed by


def test_the_lines_inside_of_match_are_steps():
    def program():
        match 1 + 1:
            case 1:
                x = 1
            case _:
                x = 2
                y = 3
        return x, y

    seen = trace(program)
    ran = [seen.source[step.ran].strip() for step in seen.steps[1:]]
    assert ran[0] == "match 1 + 1:"
    assert ran[-3:] == ["x = 2", "y = 3", "return x, y"]


def branches(choice, fail=False):
    if choice == 1:
        x = 1
    elif choice == 2:
        x = 2
    else:
        x = 3
        y = 4
    for _ in range(0):
        x += 1
    match choice:
        case 1:
            x += 1
        case _:
            x += 2
    if fail:
        raise ValueError
    if choice == 3:
        y += 1
        return y
    return x


SKIPPED = {
    (1, False): ["elif choice == 2:", "x = 2", "x = 3", "y = 4", "x += 1", "case _:", "x += 2",
                 "raise ValueError", "y += 1", "return y"],
    (3, False): ["x = 1", "x = 2", "x += 1", "x += 1", "raise ValueError", "return x"],
    # What stands behind the error was not passed by.
    (2, True): ["x = 1", "x = 3", "y = 4", "x += 1", "x += 1"],
}  # fmt: skip


@pytest.mark.parametrize("given", SKIPPED)
def test_lines_that_were_passed_by(given):
    seen = trace(branches, *given)
    assert [seen.source[line].strip() for line in seen.skipped] == SKIPPED[given]


def test_what_follows_an_error_in_the_body_of_a_loop_was_not_passed_by():
    def program():
        for i in range(2):
            if i == 7:
                i = 8
            int("no number")
            i = 9

    seen = trace(program)
    assert [seen.source[line].strip() for line in seen.skipped] == ["i = 8"]


def test_nothing_is_passed_by_in_a_program_that_runs_through():
    assert everything().skipped == ()
    assert trace(lambda: 1).skipped == ()


# The most bytes inside of a line


def peaks_of(seen):
    return [step.peak for step in seen.steps]


def test_a_line_has_more_alive_inside_than_before_and_after():
    def program():
        x = torch.ones(100, requires_grad=True)
        y = (x * 2).sin().sum()
        y.backward()

    seen = trace(program, peaks=True)
    before, made, forward, backward = peaks_of(seen)
    assert before is None
    assert made == 400  # x
    assert forward >= 400 + 400 + 400 + 4  # and twice x, its sine, the sum
    assert backward > seen.steps[2].held[0] + seen.steps[3].gradients
    assert peaks_of(trace(program)) == [None] * 4
    assert {step.device for step in trace(program).steps} == {None}


def test_peaks_are_the_same_each_time_and_change_nothing():
    kept = []

    def program():
        kept.append(train())

    plain = train()
    state = torch.get_rng_state()
    seen = trace(program, peaks=True)
    assert torch.equal(torch.get_rng_state(), state)
    for one, other in zip(plain, kept[0], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    kept.clear()
    again = trace(program, peaks=True)
    assert peaks_of(seen) == peaks_of(again)
    assert seen.to_json() == again.to_json()


def test_no_mode_stays_after_a_program_that_fails():
    def program():
        x = torch.ones(100)
        raise ValueError(x)

    before = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    assert trace(program, peaks=True).error.type == "ValueError"
    assert torch.utils._python_dispatch._get_current_dispatch_mode_stack() == before


# Nothing disturbed


def train(steps=3):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.rand(5, 3)).square().sum()
        loss.backward()
        optimizer.step()
    return [p.grad for p in model.parameters()], [p.detach() for p in model.parameters()]


def test_gradients_random_numbers_and_results_are_the_same():
    kept = []

    def program():
        kept.append(train())
        grads, weights = kept[0]
        return grads, weights

    plain = train()
    seen = trace(program)
    inner = trace(train)
    assert seen.error is inner.error is None
    for one, other in zip(plain, kept[0], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert {v.name for v in inner.steps[-1].variables} >= {"loss", "model.0.weight"}


def test_nothing_is_kept_alive_and_no_hook_stays():
    class Token:
        pass

    def recorders():
        names = ("_Recorder", "LiveGraph")
        return {id(o): o for o in gc.get_objects() if type(o).__name__ in names}

    gc.collect()
    before = recorders()  # what other tests still hold

    token = Token()
    gone, holder = weakref.ref(token), []

    def program(token):
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        y.grad_fn.metadata["token"] = token
        holder.append(y)
        z = y * y
        return z

    seen = trace(program, token)
    del token
    assert [node.name for node in seen.nodes if not node.leaf] == ["ExpBackward0", "MulBackward0"]
    # A hook left on the graph that the program still holds would hold the recorder.
    assert not recorders().keys() - before.keys()
    assert gone() is not None
    holder.clear()
    assert gone() is None


# Traces are data


def everything():
    def program(scale):
        x = torch.ones(3, requires_grad=True)
        weight = torch.nn.Parameter(torch.ones(3))
        y = (x * weight).exp()
        label, empty = "<script>alert(1)</script>", None
        y.sum().backward()
        with contextlib.suppress(RuntimeError):
            y.sum().backward()
        y.mul_(scale)
        raise ValueError(label, empty, "<script>\u2028 ä \0")

    return trace(program, 2.0)


def test_json_round_trip_is_exact():
    seen = everything()
    text = seen.to_json()
    assert read_back(text) == seen
    assert read_back(text).to_json() == text
    assert json.loads(text)["schema"] == SCHEMA


def test_the_same_program_gives_the_same_text():
    assert everything().to_json() == everything().to_json()


def test_text_that_cannot_be_encoded_can_be_stored():
    def program():
        table = {"\udcff": torch.ones(1)}
        raise FileNotFoundError("bad file name \udcff", table)

    def short():
        raise FileNotFoundError("bad file name \udcff")

    assert trace(short).error.message == r"bad file name \udcff"
    for seen in (trace(program), trace(short)):
        assert read_back(seen.to_json().encode().decode()) == seen
        assert r"\udcff" in static_html([seen]).encode().decode()


def test_a_step_lists_what_differs_from_the_step_before():
    """So a thousand lines of a large graph take no thousand times the room of one."""

    def program():
        x = torch.ones(3, requires_grad=True)
        for _ in range(50):
            x = x.exp()
        x = x.sum()
        x.backward()

    seen = trace(program)
    at = [len(step.changed) + len(step.gone) for step in seen.steps]
    assert max(at[:-2]) <= 2 and at[-1] >= 50
    assert len(seen.states(-1)) == len(seen.nodes) == 52
    for step, known in enumerate(seen.steps):
        before = {} if not step else {state.node: state for state in seen.states(step - 1)}
        now = {state.node: state for state in seen.states(step)}
        assert list(known.changed) == [s for node, s in now.items() if before.get(node) != s]
        assert list(known.gone) == [node for node in before if node not in now]


def test_without_matplotlib_plot_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'gradtrace\[plot\]'"):
        everything().plot()


def test_plot_draws_a_bar_for_each_step():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    seen = everything()
    axes = seen.plot()
    assert [bar.get_height() for bar in axes.patches] == seen.retained_bytes
    assert "ValueError" in [text.get_text() for text in axes.texts]
    _, own = plt.subplots()
    assert seen.plot(own) is own
    plt.close("all")


def test_in_a_notebook_a_local_variable_may_have_a_name_of_ipythons(monkeypatch):
    hidden = SimpleNamespace(user_ns_hidden={"_": None, "exit": None})
    monkeypatch.setattr(frames, "running_ipython", lambda: hidden)

    def program():
        y, _ = torch.ones(2, 3, requires_grad=True).exp().unbind()
        return y, exit

    names = {variable.name for variable in trace(program).steps[-1].variables}
    assert names == {"_", "y"}


def test_a_key_that_is_an_address_is_named_by_its_place():
    def program():
        x = torch.ones(1, requires_grad=True)
        states = {id(x): {"found": x.exp()}, 7: x.exp()}
        return states

    names = {variable.name for variable in trace(program).steps[-1].variables}
    assert names == {"x", "states[int 0]['found']", "states[7]"}
