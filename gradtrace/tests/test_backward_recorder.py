"""What a trace tells of the inside of backward, compared with the gradients that PyTorch gives."""

import gc
import threading
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from trace_helpers import read_back

from gradtrace import Trace, trace, watch
from gradtrace.tracing import backward_recorder
from gradtrace.tracing.values import gradient_text


def runs(seen: Trace, call: int | None = None) -> list:
    """The steps of all nodes, or of those of one line: the one that backward ran there."""
    lines = [step for step in seen.steps if step.inside]
    steps = lines if call is None else [lines[call]]
    return [node for step in steps for node in step.inside]


def names(steps: list) -> list[str]:
    return [step.node for step in steps]


def two_losses():
    x = torch.arange(3.0, requires_grad=True)
    features = x.exp()
    loss1 = features.sum()
    loss2 = (features * 2).sum()
    loss1.backward()
    loss2.backward()


def test_each_node_is_a_step_with_the_gradients_that_pytorch_gives():
    seen = trace(two_losses)
    first, second = runs(seen, 0), runs(seen, 1)
    assert names(first) == ["SumBackward0", "ExpBackward0", "AccumulateGrad"]

    x = torch.arange(3.0, requires_grad=True)
    features = x.exp()
    to_features, to_x = torch.autograd.grad(features.sum(), [features, x])
    assert first[0].run.passed == first[1].run.received == (gradient_text(to_features),)
    assert first[1].run.passed == first[2].run.received == (gradient_text(to_x),)
    assert first[2].run.written == (None, gradient_text(to_x))
    assert (first[1].run.released, first[1].run.returned) == (("result",), 12)

    # The second call stops in the node that the first one freed, and what ran before it is freed.
    assert names(second) == ["SumBackward0", "MulBackward0", "ExpBackward0"]
    (stopped,) = (step for step in second if step.run.passed is None)
    assert stopped is second[-1]
    assert stopped.run.received == ("[2, 2, 2]",)
    assert seen.error.node == stopped.run.node
    assert seen.nodes[stopped.run.node].name == "ExpBackward0"


def test_a_second_call_that_changes_nothing_is_recorded_up_to_where_it_stops():
    def twice():
        loss = torch.ones(2, requires_grad=True).exp().sum()
        loss.backward()
        loss.backward()

    second = runs(trace(twice), 1)
    assert names(second) == ["SumBackward0", "ExpBackward0"]
    assert [step.run.passed is None for step in second] == [False, True]


def test_a_line_is_as_it_was_without_its_inside():
    """The states of lines follow from lines alone, those inside from the line before."""
    seen = trace(two_losses)
    assert [step.node for step in seen.steps] == [None] * len(seen.steps)
    for index, step in enumerate(seen.steps):
        if not step.inside:
            continue
        states = {state.node: state for state in seen.states(index - 1)}
        for node in step.inside:
            assert (node.ran, node.line) == (step.ran, step.ran)
            for gone in node.gone:
                del states[gone]
            states.update((state.node, state) for state in node.changed)
        assert tuple(states[node] for node in sorted(states)) == seen.states(index)
        assert step.inside[-1].held == step.held


def test_it_is_stored_with_the_trace():
    seen = trace(two_losses)
    assert read_back(seen.to_json()) == seen


def test_grad_hands_on_what_it_returns():
    def program():
        x = torch.arange(1.0, 3.0, requires_grad=True)
        (gradient,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        gradient.sum().backward()

    seen = trace(program)
    first, second = runs(seen, 0), runs(seen, 1)
    assert names(first) == ["SumBackward0", "PowBackward0"]  # x is read from the last of them
    assert first[-1].run.passed == ("[3, 12]",)
    assert not any(step.run.released for step in first)
    assert second[-1].node == "AccumulateGrad"
    assert second[-1].run.written == (None, "[6, 12]")
    assert any(step.run.released for step in second)


def test_inputs_name_what_runs():
    def program(which):
        a = torch.ones(2, requires_grad=True)
        b = torch.full((2,), 3.0, requires_grad=True)
        product = a * b
        loss = (product * 2).sum()
        loss.backward(inputs=[{"a": a, "product": product}[which]])

    to_leaf, to_product = runs(trace(program, "a")), runs(trace(program, "product"))
    assert names(to_leaf) == ["SumBackward0", "MulBackward0", "MulBackward0", "AccumulateGrad"]
    assert to_leaf[2].run.passed == ("[6, 6]", None)  # none to b
    # PyTorch runs the node of an input that is no leaf, although its gradient arrives before that.
    assert names(to_product) == ["SumBackward0", "MulBackward0", "MulBackward0"]
    assert to_product[1].run.passed == to_product[2].run.received == ("[2, 2]",)
    assert to_product[2].run.passed == (None, None)


def test_several_roots_and_a_gradient_that_arrives_twice():
    def program():
        x = torch.ones(2, requires_grad=True)
        shared = x * 3
        torch.autograd.backward([shared.sum(), shared.exp().sum()])

    seen = trace(program)
    steps = runs(seen)
    assert sorted(names(steps))[:2] == ["AccumulateGrad", "ExpBackward0"]
    assert names(steps).count("SumBackward0") == 2
    x = torch.ones(2, requires_grad=True)
    shared = x * 3
    (arrives,) = torch.autograd.grad([shared.sum(), shared.exp().sum()], shared)
    (product,) = (step for step in steps if step.node == "MulBackward0")
    assert product.run.received == (gradient_text(arrives),)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        if x.sum() < 0:
            raise ValueError("negative")
        return 2 * gradient


def test_a_custom_function_and_an_error_in_the_middle():
    def program(value):
        x = torch.tensor([value, value], requires_grad=True)
        loss = (Doubled.apply(x.exp() * value) * 5).sum()
        loss.backward()

    well, failed = trace(program, 1.0), trace(program, -1.0)
    (custom,) = (step for step in runs(well) if step.node == "DoubledBackward")
    assert (custom.run.received, custom.run.passed) == (("[5, 5]",), ("[10, 10]",))
    assert custom.run.released == ("tensors[0]",)
    assert names(runs(failed)) == ["SumBackward0", "MulBackward0", "DoubledBackward"]
    assert [step.run.passed is None for step in runs(failed)] == [False, False, True]
    assert failed.nodes[failed.error.node].name == "DoubledBackward"


class Reentrant(torch.autograd.Function):
    """Runs a backward pass of its own during backward, and fails after it."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            torch.ones(1, requires_grad=True).exp().backward()
        raise ValueError("after the inner pass")


def test_an_error_is_in_a_node_only_if_a_backward_pass_stopped_there():
    def fails_later(loss):
        loss.backward()
        raise ValueError("after the pass")

    def succeeds():
        fails_later(torch.ones(1, requires_grad=True).exp())

    def stops():
        Reentrant.apply(torch.ones(1, requires_grad=True)).backward()

    assert trace(succeeds).error.node is None
    seen = trace(stops)
    assert seen.nodes[seen.error.node].name == "ReentrantBackward"


def test_hooks_that_ran_and_what_they_changed():
    def program():
        x = torch.ones(2, requires_grad=True)
        y = x * 3

        def halve(gradient):
            return gradient / 2

        def look(leaf):
            pass

        y.register_hook(halve)
        x.register_post_accumulate_grad_hook(look)
        y.sum().backward()

    steps = {step.node: step.run for step in runs(trace(program))}
    assert steps["SumBackward0"].passed == ("[1, 1]",)
    assert steps["MulBackward0"].hooks == ("halve",)
    assert steps["MulBackward0"].received == ("[0.5, 0.5]",)  # after the tensor's hook
    assert steps["AccumulateGrad"].hooks == ("look",)
    assert steps["AccumulateGrad"].written == (None, "[1.5, 1.5]")


def test_what_python_calls_for_an_object_that_a_node_freed_is_no_hook():
    def program():
        torch.ones(3, requires_grad=True).exp().exp().sum().backward()

    def deleted():
        y = torch.ones(3, requires_grad=True).exp()
        loss = y.sin().sum()
        del y
        loss.backward()

    # A finalizer of each storage counts bytes: it runs when a node frees the last tensor there.
    # PyTorch's dictionaries with weak keys remove a tensor when its last reference is dropped.
    for function in (program, deleted):
        assert {step.run.hooks for step in runs(trace(function, peaks=True))} == {()}


def test_functions_that_pytorch_calls_to_count_bytes_are_no_hooks():
    def program():
        x = torch.ones(2, requires_grad=True)
        (x * 3).sum().backward()

    assert {step.run.hooks for step in runs(trace(program, peaks=True))} == {()}


def block(x):
    return (x * 2).sin().cos()


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_runs_again(reentrant):
    def program():
        x = torch.ones(2, requires_grad=True)
        loss = checkpoint(block, x, use_reentrant=reentrant).sum()
        loss.backward()

    seen = trace(program)
    again = [step for step in runs(seen) if step.run.recomputed]
    assert [step.run.recomputed for step in again] == [("mul", "sin", "cos")]
    nested = [step.node for step in runs(seen) if step.run.depth]
    if reentrant:
        assert again[0].node == "CheckpointFunctionBackward"
        assert nested == ["CosBackward0", "SinBackward0", "MulBackward0", "AccumulateGrad"]
    else:
        assert again[0].node == "CosBackward0"
        assert nested == []
    x = torch.ones(2, requires_grad=True)
    (expected,) = torch.autograd.grad(block(x).sum(), x)
    written = [step.run.written for step in runs(seen) if step.node == "AccumulateGrad"]
    assert written[-1] == (None, gradient_text(expected))


def test_a_graph_that_no_variable_names_is_read_while_backward_runs():
    def program():
        x = torch.ones(2, requires_grad=True)
        (x * x).sum().backward()
        x.grad = None
        (x * 3).sum().backward()

    seen = trace(program)
    assert [seen.nodes[step.run.node].name for step in runs(seen, 0)] == names(runs(seen, 0))
    product = next(step for step in runs(seen, 0) if step.node == "MulBackward0")
    assert product.run.released == ("other", "self") or product.run.released == ("self", "other")
    assert runs(seen, 1)[-1].run.written == (None, "[3, 3]")  # a new node of the same leaf
    assert [len(seen.states(step)) for step in range(len(seen.steps))] == [0, 1, 1, 1, 1]


def test_a_limit_and_the_node_that_fails_beyond_it(monkeypatch):
    monkeypatch.setattr(backward_recorder, "MAX_NODES", 5)

    def program(depth):
        x = torch.ones(2, requires_grad=True)
        y = x.exp()
        z = y
        for _ in range(depth):
            z = z * 1
        y.sum().backward()
        z.sum().backward()

    seen = trace(program, 20)
    first, last = (step for step in seen.steps if step.inside)
    assert (len(first.inside), first.unrecorded) == (3, 0)
    assert names(last.inside) == ["SumBackward0"] + ["MulBackward0"] * 4 + ["ExpBackward0"]
    assert last.inside[-1].run.passed is None
    assert last.unrecorded == 16


def test_the_program_computes_the_same_and_nothing_stays():
    class Token:
        pass

    token = Token()
    gone = weakref.ref(token)

    def program(token):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        output = model(torch.ones(2, 3))
        output.grad_fn.metadata["token"] = token
        output.sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])

    gradients = []
    gc.disable()
    try:
        trace(program, token)
        program(token)
        del token
        assert gone() is None  # without the collector: no cycle refers to the node
    finally:
        gc.enable()
    for traced, plain in zip(*gradients, strict=True):
        assert torch.equal(traced, plain)


def test_a_deep_graph_can_be_freed():
    def program():
        x = torch.ones(1, requires_grad=True)
        y = x
        for _ in range(30_000):
            y = y + 1
        return y.sum().backward()

    seen = []

    def run():  # on a small stack, as other platforms have
        seen.append(trace(program, max_steps=5))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen[0].error is None


def test_a_watch_may_begin_and_end_while_a_program_is_traced():
    def program():
        x = torch.ones(2, requires_grad=True)
        with watch():
            y = x.exp()
            y.sum().backward()
        (x * 2).sum().backward()

    with watch():
        seen = trace(program)
        with watch():
            torch.ones(1, requires_grad=True).exp().backward()
    assert [len(step.inside) for step in seen.steps if step.inside] == [3, 3]
