"""The live graph: equal to the graph that is read at each line, at a cost linear in the lines."""

import functools
import gc
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from trace_helpers import modified_at

from gradtrace import trace
from gradtrace.autograd.traversal import undisturbed
from gradtrace.tracing import live


@pytest.fixture
def only_what_changed(monkeypatch):
    """Treat every graph as a large one, which is read whole at the last line only."""
    monkeypatch.setattr(live, "_SMALL", 0)
    monkeypatch.setattr(live, "_READ_A_LINE", 0)


def text(seen, line):
    return None if line is None else seen.source[line].strip()


def lines_of(seen, found):
    return sorted((seen.nodes[node].name, text(seen, line)) for node, line in found.items())


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y, grad * x


def backwards():
    x = torch.ones(3, requires_grad=True)
    y = x.exp()
    a, b, c = y.sin().sum(), Product.apply(y, y).sum(), (y * x).sum()
    a.backward(retain_graph=True)
    a.backward()
    torch.autograd.grad(c, y)
    del a
    b.backward()


def training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []
    for row in torch.ones(3, 2, 3):
        loss = model(row).square().sum()
        kept.append(loss)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
    kept.pop(0)
    return kept


def in_place():
    x = torch.ones(4, requires_grad=True)
    y = x.exp()
    view = y[:2]
    z = y.sin()
    view.mul_(2)
    y.add_(1)
    with torch.no_grad():
        x.mul_(2)
    w = torch.stack([y, z]).sum()
    w = w * w
    return w


def hooked_and_hidden():
    x = torch.ones(4, requires_grad=True)
    y = checkpoint(torch.exp, x, use_reentrant=False)
    z = x.clone()
    z[0] = 2.0
    loss = (y * z).sum()
    loss.backward()
    x.grad = None
    return loss


def comes_back():
    x = torch.ones(3, requires_grad=True)
    y = x.exp()

    def hidden(y=y):
        return y

    z = x.sin()
    del y
    y = hidden()
    y.sum().backward()
    return y, z


def unnamed_leaves():
    y = torch.ones(2)
    for _ in range(4):
        y = y * torch.ones(2, requires_grad=True)
    shared = {"a": y, "b": y}
    y = None
    shared["a"] = None
    return shared


PROGRAMS = [backwards, training, in_place, hooked_and_hidden, comes_back, unnamed_leaves]


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_may_have_changed_is_all_that_changed(program, request):
    whole = trace(program)
    request.getfixturevalue("only_what_changed")
    assert trace(program) == whole
    assert len(whole.steps) > 6


def test_a_node_that_comes_back_is_the_same_one():
    seen = trace(comes_back)
    (exp,) = [i for i, node in enumerate(seen.nodes) if node.name == "ExpBackward0"]
    there = [[state.node for state in seen.states(step)] for step in range(len(seen.steps))]
    assert there == [sorted(nodes) for nodes in there]
    alive = [exp in nodes for nodes in there]
    first, gone = alive.index(True), alive.index(False, alive.index(True))
    assert True in alive[gone:]
    assert text(seen, seen.steps[first].ran) == "y = x.exp()"
    assert lines_of(seen, seen.freed) == [("ExpBackward0", "y.sum().backward()")]


def chain(length):
    y = torch.ones(2, requires_grad=True)
    for _ in range(length):
        y = y.exp()
    return y


def many_nodes():
    first = chain(live._SMALL)
    weight = torch.ones(2, requires_grad=True)
    second = weight * weight
    third = first * second
    second.sum().backward()
    with torch.no_grad():
        weight.add_(1)
    return third


def test_in_a_large_graph_the_line_that_frees_or_writes_is_told_at_once():
    seen = trace(many_nodes)
    assert lines_of(seen, seen.freed) == [("MulBackward0", "second.sum().backward()")]

    def changed_first():
        first = chain(live._SMALL)
        weight = torch.ones(2, requires_grad=True)
        second = weight * weight
        third = first + second
        with torch.no_grad():
            weight.add_(1)
        done = True
        return third, done

    seen = trace(changed_first)
    assert lines_of(seen, modified_at(seen)) == [("MulBackward0", "weight.add_(1)")]


def test_what_no_variable_reaches_is_told_late_in_a_large_graph_but_told(only_what_changed):
    def program():
        y = torch.ones(2, requires_grad=True)
        z = y.exp()
        unnamed = functools.partial(z.detach().add_, 1)

        loss = z.sum()
        del z
        unnamed()
        done = True
        return loss, done

    seen = trace(program)
    assert lines_of(seen, modified_at(seen)) == [("ExpBackward0", "return loss, done")]


def nodes_read(monkeypatch, program, *arguments):
    read = []
    real = live.describe
    monkeypatch.setattr(
        live, "describe", lambda live, *rest: read.append(len(live)) or real(live, *rest)
    )
    seen = trace(program, *arguments, max_steps=10**6)
    monkeypatch.undo()
    assert seen.error is None
    return sum(read), len(seen.steps)


def growing(length):
    y = torch.ones(2, requires_grad=True)
    for _ in range(length):
        y = y.exp()
    y.sum().backward()


def many_losses(count):
    x = torch.ones(2, requires_grad=True)
    losses = [x.exp().sum() for _ in range(count)]
    for loss in losses:
        loss.backward()


@pytest.mark.parametrize("program", [growing, many_losses])
def test_the_nodes_read_are_linear_in_the_lines(program, monkeypatch):
    few, lines = nodes_read(monkeypatch, program, 300)
    many, more_lines = nodes_read(monkeypatch, program, 600)
    assert more_lines - lines >= 600
    assert many - few < (more_lines - lines) * (live._READ_A_LINE + 8)


def test_bytes_go_with_the_nodes_that_hold_them():
    def program():
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        z = y.sin()
        del z
        del y
        return x

    assert trace(program).retained_bytes == [0, 0, 12, 12, 12, 0, 0]


def test_a_leaf_that_is_also_data_counts_as_leaf():
    def program():
        x = torch.ones(3, requires_grad=True)
        data = x.detach()
        y = x * x
        return data, y

    seen = trace(program)
    assert seen.steps[-1].held == (0, 12, 0)
    assert {slot.role for node in seen.nodes for slot in node.slots} == {"leaf"}


def test_the_trace_keeps_no_node_alive():
    class Token:
        pass

    gone = []

    def program():
        y = chain(3)
        token = Token()
        y.grad_fn.metadata["token"] = token
        gone.append(weakref.ref(token))
        del token
        y = y.exp()
        alive = gone[0]() is not None
        y.sum().backward()
        y = None
        dead = gone[0]() is None
        return alive, dead

    gc.disable()  # counting must be enough
    try:
        seen = trace(program)
    finally:
        gc.enable()
    values = dict(seen.steps[-1].values)
    assert (values["alive"], values["dead"]) == ("True", "True")


def test_backward_in_a_node_of_a_large_graph_is_laid_at_its_door():
    def program():
        first = chain(3_000)
        first.sum().backward()
        first.sum().backward()

    seen = trace(program)
    assert seen.nodes[seen.error.node].name == "ExpBackward0"
    assert seen.freed[seen.error.node] == seen.error.line - 1


def test_a_view_that_lost_its_history_is_shown_without_a_graph():
    base = torch.ones(6, requires_grad=True).clone()
    first, _ = base.split(3)
    base.mul_(2)
    picture = live.LiveGraph()
    with undisturbed():
        assert picture.look({"first": first, "base": base}, None).keys() == {"base"}


# Tensors


def holders(seen, label):
    """The nodes that saved a tensor, and the variables that named it at the last step."""
    (index,) = [i for i, tensor in enumerate(seen.tensors) if tensor.label == label]
    nodes = [node.name for node in seen.nodes for slot in node.slots if slot.tensor == index]
    return nodes, [v.name for v in seen.steps[-1].variables if v.tensor == index]


def test_who_shares_memory_refers_to_the_same_tensor():
    def program():
        x = torch.ones(4, requires_grad=True)
        features = x.exp()
        half = features[:2]
        plain = features.detach()
        a = features.sin()
        b = half.cos()
        return a, b, plain

    seen = trace(program)
    nodes, names = holders(seen, "features")
    assert sorted(nodes) == ["CosBackward0", "ExpBackward0", "SinBackward0"]
    assert names == ["features", "half", "plain"]
    by_label = {tensor.label: tensor for tensor in seen.tensors}
    assert by_label.keys() == {"x", "features", "a", "b"}
    assert (by_label["x"].role, by_label["features"].role) == ("leaf", "activation")
    assert by_label["features"].nbytes == 16
    (leaf,) = [node for node in seen.nodes if node.leaf]
    assert seen.tensors[leaf.tensor].label == "x"


def test_an_address_that_is_used_again_is_another_tensor():
    def program():
        x = torch.ones(1000, requires_grad=True)
        for _ in range(20):
            y = x + 1
            del y
        return x

    seen = trace(program)
    assert [tensor.label for tensor in seen.tensors] == ["x"] + ["y"] * 20


def test_data_is_a_tensor_of_the_graph_once_a_node_saved_it():
    def program():
        weight = torch.ones(2, requires_grad=True)
        data, unused = torch.full((2,), 3.0), torch.ones(2)
        y = weight * data
        return y, unused

    seen = trace(program)
    (slot,) = [s for node in seen.nodes for s in node.slots if s.role == "input"]
    assert seen.tensors[slot.tensor].label == "data"
    tensors = {v.name: v.tensor for v in seen.steps[-1].variables}
    assert tensors["data"] == slot.tensor
    assert tensors["unused"] is None


def test_tensors_without_a_storage_are_told_apart():
    def inner(x):
        y = x.exp()
        return (y * y).sum()

    seen = trace(torch.func.grad(inner), torch.ones(2))
    assert seen.error is None


def test_a_tensor_that_no_variable_named_is_called_after_its_slot():
    def program():
        return torch.ones(2, requires_grad=True).exp().exp().sum()

    def around():
        z = program()
        return z

    labels = {tensor.label for tensor in trace(around).tensors}
    assert labels == {"ExpBackward0 result", "a leaf no variable holds", "z"}


def test_gradients_count_once_for_leaves_and_for_those_that_are_retained():
    def program():
        model = torch.nn.Linear(2, 1)
        y = torch.ones(3, requires_grad=True).exp()
        y.retain_grad()
        loss = model(torch.ones(1, 2)).sum() + y.sum()
        loss.backward()
        y.grad = None
        alias = model.weight
        model.zero_grad()
        return model, alias

    seen = trace(program)
    held = {text(seen, step.ran): step.gradients for step in seen.steps}
    assert held["y.retain_grad()"] == 0
    assert held["loss.backward()"] == (2 + 1 + 3 + 3) * 4  # weight, bias, y, and the unnamed leaf
    assert held["y.grad = None"] == (2 + 1 + 3) * 4
    assert held["model.zero_grad()"] == 3 * 4


def test_operations_are_numbered_as_they_were_made():
    def program():
        x = torch.ones(2, requires_grad=True)
        y = x.exp().sin().cos()
        return y

    seen = trace(program)
    made = {node.order: node.name for node in seen.nodes}
    assert made == {None: "AccumulateGrad", 0: "ExpBackward0", 1: "SinBackward0", 2: "CosBackward0"}
