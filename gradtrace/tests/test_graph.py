"""What snapshot() says, held to what PyTorch itself says about the same graph."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from gradtrace import snapshot
from gradtrace._torch import Output, outputs_of
from gradtrace.autograd.nodes import shapes_of
from gradtrace.autograd.traversal import root_node, roots_of, walk

READS_HANDLES = hasattr(torch._C._autograd.SavedTensor, "data")


def says_pytorch(node):
    """State of each slot of a live node, asked through the attributes that check and raise."""
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        slots = {"tensors": "saved_tensors"}
    else:
        slots = {a.removeprefix("_raw_saved_"): a.removeprefix("_raw") for a in dir(node)
                 if a.startswith("_raw_saved_")}  # fmt: skip
    states = {}
    for name, attribute in slots.items():
        try:
            value = getattr(node, attribute)
        except RuntimeError as error:
            states[name] = "freed" if "second time" in str(error) else "modified"
            continue
        if isinstance(value, tuple):
            for i, item in enumerate(value):
                states[f"{name}[{i}]"] = "not needed" if item is None else "alive"
        else:
            states[name] = "not needed" if value is None else "alive"
    return states


def assert_agrees(*outputs):
    """Compare every node behind ``outputs``; returns the snapshot."""
    graph = snapshot(*outputs)
    live, _ = walk(root_node(output) for output in outputs)
    assert len(live) == len(graph.nodes)
    for node, said in zip(live, graph.nodes, strict=True):
        ours = {tensor.name: tensor.state for tensor in said.saved if tensor.name[:4] != "ctx."}
        assert ours == says_pytorch(node), said.name
    return graph


def leaf(*shape, low=0.5):
    """Distinct positive numbers that require grad, fit for logarithms and square roots."""
    count = torch.Size(shape).numel()
    return torch.linspace(low, low + 1, count).reshape(shape).requires_grad_()


IDS = torch.tensor([0, 2, 2])
OPERATIONS = {
    "add": lambda x: x + x,
    "sub": lambda x: x - 1,
    "neg": lambda x: -x,
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(0),
    "view": lambda x: x.view(-1),
    "permute": lambda x: x.permute(1, 0),
    "transpose": lambda x: x.t(),
    "select": lambda x: x[0],
    "slice": lambda x: x[1:],
    "cat": lambda x: torch.cat([x, x]),
    "cat of squares": lambda x: torch.cat([x * x, x]),
    "stack": lambda x: torch.stack([x, x]),
    "chunk": lambda x: x.chunk(2)[0],
    "unbind": lambda x: x.unbind()[1],
    "expand": lambda x: x[:1].expand(3, 3),
    "clone": lambda x: x.clone(),
    "to double": lambda x: x.to(torch.float64),
    "to bfloat16": lambda x: x.to(torch.bfloat16),
    "cumsum": lambda x: x.cumsum(0),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1),
    "pad": lambda x: F.pad(x, (1, 1)),
    "scatter_add": lambda x: torch.zeros(3, 3).scatter_add(0, IDS.expand(3, 3), x),
    "mul": lambda x: x * x,
    "mul by a scalar": lambda x: x * 2,
    "mul by a constant": lambda x: x * torch.full((3,), 2.0),
    "div": lambda x: x / x,
    "div by a scalar": lambda x: x / 2,
    "pow": lambda x: x**3,
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "sqrt": lambda x: x.sqrt(),
    "abs": lambda x: x.abs(),
    "relu": lambda x: x.relu(),
    "sigmoid": lambda x: x.sigmoid(),
    "tanh": lambda x: x.tanh(),
    "gelu": lambda x: F.gelu(x),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "dropout": lambda x: F.dropout(x, 0.5),
    "matmul": lambda x: x @ x,
    "einsum": lambda x: torch.einsum("ij,jk->ik", x, x),
    "bmm": lambda x: torch.bmm(x[None], x[None]),
    "linear": lambda x: F.linear(x, x, x[0]),
    "where": lambda x: torch.where(x > 1, x, x * 2),
    "masked_fill": lambda x: x.masked_fill(x > 1, 0.0),
    "clamp": lambda x: x.clamp(0.6, 1.2),
    "max": lambda x: x.max(),
    "max over a dimension": lambda x: x.max(1).values,
    "sort": lambda x: x.sort(1).values,
    "topk": lambda x: x.topk(2).values,
    "norm": lambda x: x.norm(),
    "std": lambda x: x.std(),
    "logsumexp": lambda x: x.logsumexp(1),
    "prod": lambda x: x.prod(),
    "gather": lambda x: x.gather(0, IDS.expand(3, 3)),
    "index": lambda x: x[IDS],
    "index past a colon": lambda x: x[:, IDS],
    "index_put": lambda x: torch.zeros(3, 3).index_put((IDS, IDS), x[0], accumulate=True),
    "embedding": lambda x: F.embedding(IDS, x),
    "mse": lambda x: F.mse_loss(x, torch.zeros(3, 3)),
    "l1": lambda x: F.l1_loss(x, torch.zeros(3, 3)),
    "cross_entropy": lambda x: F.cross_entropy(x, IDS),
    "layer_norm": lambda x: F.layer_norm(x, (3,), x[0], x[1]),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "conv": lambda x: F.conv2d(x[None, None], x[None, None, :2, :2]),
    "max_pool": lambda x: F.max_pool2d(x[None, None], 2),
    "avg_pool": lambda x: F.avg_pool2d(x[None, None], 2),
    "interpolate": lambda x: F.interpolate(x[None, None], scale_factor=2),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.T + torch.eye(3)),
    "svd": lambda x: torch.linalg.svdvals(x),
    "solve": lambda x: torch.linalg.solve(x + torch.eye(3), x),
    "complex": lambda x: torch.view_as_real(torch.complex(x, x).exp()),
    "fft": lambda x: torch.fft.rfft(x).abs(),
    "in place": lambda x: x.clone().mul_(2).exp_(),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_operations_alive_freed_and_run_again(operation):
    x = leaf(3, 3)
    output = operation(x)
    saves = assert_agrees(output)
    assert not saves.freed
    output.backward(torch.ones_like(output))
    graph = assert_agrees(output)
    try:
        output.backward(torch.ones_like(output))
        runs_again = True
    except RuntimeError as error:
        assert "second time" in str(error)
        runs_again = False
    assert runs_again == (not graph.freed)
    assert {n.sequence_nr for n in graph.freed} == {
        n.sequence_nr for n in saves.nodes if n.state == "alive"
    }


@pytest.mark.parametrize("network", ["GRU", "LSTM", "GRUCell", "Transformer", "MLP"])
def test_networks_freed_and_retained(network):
    torch.manual_seed(0)
    if network == "GRUCell":
        cell, h = torch.nn.GRUCell(4, 4), torch.zeros(2, 4)
        for _ in range(5):
            h = cell(torch.ones(2, 4), h)
        loss = h.sum()
    elif network == "Transformer":
        layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        loss = layer(torch.ones(2, 3, 4)).sum()
    elif network == "MLP":
        layers = [torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.GELU()]
        loss = torch.nn.Sequential(*layers)(torch.rand(3, 4)).sum()
    else:
        loss = getattr(torch.nn, network)(4, 4, num_layers=2)(torch.ones(5, 2, 4))[0].sum()
    before = assert_agrees(loss)
    loss.backward(retain_graph=True)
    retained = assert_agrees(loss)
    assert [node.state for node in retained.nodes] == [node.state for node in before.nodes]
    assert retained.held == before.held
    loss.backward()
    after = assert_agrees(loss)
    assert after.freed
    assert after.held.activations == 0


def test_partial_grad_frees_only_what_it_ran():
    x = leaf(3)
    a = x.exp()
    b = a.sin()
    torch.autograd.grad(b.sum(), a)
    states = {node.name: node.state for node in assert_agrees(b).nodes}
    assert states["SinBackward0"] == "freed"
    assert states["ExpBackward0"] == "alive"


def test_a_failed_backward_frees_what_it_ran():
    x = leaf(3)
    y = x.exp()
    z = y.sin()
    y.add_(1)
    product = z * z
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    states = {node.name: node.state for node in assert_agrees(product).nodes}
    assert states["MulBackward0"] == "freed"
    assert states["SinBackward0"] == "modified"
    with pytest.raises(RuntimeError, match="second time"):
        product.sum().backward()


def test_modified_is_what_backward_refuses_and_nothing_else():
    x = leaf(3)
    y = x.exp()  # saves its result
    z = y.sin()  # saves y
    w = x.log()  # saves x
    assert not [n for n in assert_agrees(z, w).nodes if n.state == "modified"]
    with torch.no_grad():
        x.add_(1)
    y.mul_(2)
    states = {node.name: node.state for node in assert_agrees(z, w).nodes}
    assert states["SinBackward0"] == states["LogBackward0"] == "modified"
    saved = next(n for n in snapshot(w).nodes if n.name == "LogBackward0").saved[0]
    assert (saved.version, saved.shape, saved.nbytes) == (
        (1, (3,), 12) if READS_HANDLES else (None, None, None)
    )
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        w.sum().backward()


def test_a_tensor_written_before_it_was_saved_is_alive():
    weight = leaf(3)
    with torch.no_grad():
        weight.add_(1)
    loss = (weight * weight).sum()
    assert assert_agrees(loss).nodes[1].state == "alive"
    loss.backward()


@pytest.mark.skipif(
    not hasattr(torch._C._autograd.SavedTensor, "unpack"), reason="a list is unpacked as a whole"
)
def test_of_a_saved_list_only_the_modified_items_are():
    i, j = torch.tensor([0, 1]), torch.tensor([0, 1])
    i.add_(0)
    picked = leaf(2, 2)[i, j]
    j.add_(0)
    states = {tensor.name: tensor.state for tensor in snapshot(picked).nodes[0].saved}
    assert states["indices[0]"] == "alive"
    assert states["indices[1]"] == "modified"


class Keep(torch.autograd.Function):
    """Keeps tensors in every way there is."""

    @staticmethod
    def forward(ctx, x, how):
        y = x * 2
        ctx.how = how
        if how == "saved":
            ctx.save_for_backward(x, None, y)
        else:
            ctx.whole, ctx.both = x.detach(), [x.exp(), "text", {"not": "a tensor"}]
            ctx.name = ctx.variable = x.detach()  # what nodes of other kinds call their own
        return y

    @staticmethod
    def backward(ctx, grad):
        kept = ctx.saved_tensors if ctx.how == "saved" else ctx.both
        return grad * len(kept), None


def test_custom_function_saves_inputs_none_and_outputs():
    y = Keep.apply(leaf(3), "saved")
    saved = assert_agrees(y).nodes[0].saved
    assert [t.state for t in saved] == ["alive", "not needed", "alive"]
    assert saved[0].role == "leaf"
    assert saved[2].role == "activation"
    y.sum().backward()
    graph = assert_agrees(y)
    assert [(n.name, n.state) for n in graph.freed] == [("KeepBackward", "freed")]
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_custom_function_attributes_survive_backward_and_count():
    y = Keep.apply(leaf(3), "attributes")
    saved = {t.name: t for t in snapshot(y).nodes[0].saved}
    assert set(saved) == {"ctx.whole", "ctx.both[0]", "ctx.name", "ctx.variable"}
    assert snapshot(y).held.activations == 12  # exp only: the others share the leaf's storage
    assert snapshot(y).nodes[0].name == "KeepBackward"
    y.sum().backward()
    after = {t.name: t.state for t in snapshot(y).nodes[0].saved}
    assert after["ctx.both[0]"] == "alive"


def test_views_and_shared_storages_are_counted_once():
    base = leaf(4, 4).exp()
    loss = (base[0] * base[1]).sum() + (base * base).sum()
    held = assert_agrees(loss).held
    assert held.activations == 64
    row = next(t for n in snapshot(loss).nodes for t in n.saved if t.shape == (4,))
    assert (row.nbytes, row.storage_nbytes) == (16, 64)


def test_in_place_on_a_view_hides_what_it_saves_and_does_not_stop_the_walk():
    y = leaf(4).exp()
    y[:2].mul_(3)
    graph = snapshot(y.sum())
    hidden = next(n for n in graph.nodes if n.name == "CopySlices")
    assert hidden.state == "hidden"
    assert "ExpBackward0" in [n.name for n in graph.nodes]


def test_mlp_activations_minus_inputs_is_twelve_layers():
    layers = []
    for _ in range(12):
        layers += [torch.nn.Linear(256, 256), torch.nn.ReLU()]
    data = torch.ones(128, 256)
    output = torch.nn.Sequential(*layers)(data)
    held = snapshot(output, inputs=[data]).held
    assert held.activations == 12 * 131072
    assert held.inputs == 131072
    assert held.leaves == 11 * 256 * 256 * 4  # the data needs no gradient: the first weight rests
    assert snapshot(output).held.activations == 13 * 131072


def test_tied_weights_are_one_leaf():
    embedding = torch.nn.Embedding(5, 3)
    output = embedding(IDS) @ embedding.weight.T
    graph = assert_agrees(output.sum())
    assert len(graph.leaves) == 1
    assert graph.held.leaves == 60


def test_no_saved_tensor_hook_runs():
    calls = []

    def count(value):
        calls.append(value)
        return value

    with saved_tensors_hooks(count, count):
        loss = leaf(3).exp().sum()
    calls.clear()
    node = snapshot(loss).nodes[1]
    assert (node.state, node.saved[0].shape) == ("packed", (3,))
    assert calls == []
    loss.backward()
    calls.clear()
    assert snapshot(loss).freed[0].name == "ExpBackward0"
    assert calls == []


def test_save_on_cpu_and_hooks_that_hide_the_tensor():
    with save_on_cpu():
        kept = leaf(3).exp()
    assert snapshot(kept).nodes[0].saved[0].storage_nbytes == 12
    with saved_tensors_hooks(lambda t: object(), lambda o: torch.ones(3)):
        hidden = leaf(3).exp()
    saved = snapshot(hidden).nodes[0].saved[0]
    assert (saved.state, saved.shape, saved.storage_nbytes) == ("packed", None, None)


def test_checkpoint_is_not_recomputed():
    runs = []

    def block(x):
        runs.append(1)
        return x.exp().sin()

    output = checkpoint(block, leaf(3), use_reentrant=False).sum()
    assert [n.state for n in snapshot(output).nodes[1:3]] == ["packed", "packed"]
    assert len(runs) == 1
    output.backward()
    runs.clear()
    assert {n.name for n in snapshot(output).freed} == {"SinBackward0", "ExpBackward0"}
    assert runs == []


def test_reentrant_checkpoint_is_one_node_of_its_input():
    output = checkpoint(lambda x: x.exp().sin(), leaf(3) * 1, use_reentrant=True).sum()
    graph = assert_agrees(output)
    assert graph.nodes[1].name == "CheckpointFunctionBackward"
    output.backward()
    assert "CheckpointFunctionBackward" in [n.name for n in assert_agrees(output).freed]


def test_double_backward():
    x = leaf(3)
    y = (x**3).sum()
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    assert not assert_agrees(y, gradient.sum()).freed
    gradient.sum().backward()
    freed = {n.name for n in assert_agrees(y, gradient).freed}
    assert "PowBackward0" in freed
    assert torch.allclose(x.grad, 6 * x.detach())


def sparse(layout):
    return torch.eye(3).to_sparse(layout=layout).requires_grad_()


MATERIALS = {
    "sparse coo": lambda: torch.sparse.mm(sparse(torch.sparse_coo), leaf(3, 3)),
    "sparse csr": lambda: sparse(torch.sparse_csr) @ leaf(3, 3),
    "sparse gradient": lambda: torch.nn.Embedding(4, 3, sparse=True)(IDS),
    "complex": lambda: torch.ones(3, dtype=torch.complex64, requires_grad=True).exp(),
    "bfloat16": lambda: torch.ones(3, dtype=torch.bfloat16, requires_grad=True).exp(),
    "meta": lambda: torch.ones(3, device="meta", requires_grad=True).exp(),
    "parameter": lambda: torch.nn.Parameter(torch.ones(3)).exp(),
    "scalar": lambda: torch.tensor(1.0, requires_grad=True).exp(),
    "empty": lambda: torch.ones(0, requires_grad=True).exp(),
    "torch.func inside": lambda: torch.func.vmap(torch.exp)(leaf(3, 3)),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("make", MATERIALS.values(), ids=MATERIALS)
def test_all_kinds_of_tensors(make):
    output = make()
    graph = assert_agrees(output)
    assert all(t.shape is not None for n in graph.nodes for t in n.saved if t.state == "alive")
    output.backward(torch.ones_like(output))
    assert_agrees(output)


def test_bytes_of_sparse_and_nested_tensors_are_those_of_their_parts():
    matrix = sparse(torch.sparse_coo)
    held = snapshot(torch.sparse.mm(matrix, torch.ones(3, 3))).held
    assert held.leaves == 3 * 4 + 2 * 3 * 8
    pieces = [torch.ones(2), torch.ones(3)]
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor(pieces, requires_grad=True, layout=layout)
        product = nested * nested
        saved = snapshot(product).nodes[0].saved[0]
        assert (saved.shape, saved.nbytes, saved.storage_nbytes) == ((5,), 20, 20)
        assert snapshot(nested).nodes[0].leaf.shape == (5,)


class Loud(torch.Tensor):
    calls: list = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.calls.append(function)
        return super().__torch_function__(function, types, args, kwargs or {})


def test_a_subclass_runs_none_of_its_own_code():
    x = torch.ones(3).as_subclass(Loud).requires_grad_()
    loss = (x * x.exp()).sum()
    Loud.calls.clear()
    graph = snapshot(loss)
    snapshot(x)
    assert Loud.calls == []
    assert graph.held.activations == 12


def test_a_snapshot_keeps_nothing_alive():
    class Token:
        pass

    x = leaf(3)
    loss = x.exp().sum()
    token = Token()
    loss.grad_fn.metadata["token"] = token
    gone = weakref.ref(token)
    graph = snapshot(loss)
    graph.nodes  # noqa: B018  (named values are as detached as the records)
    del loss, token
    assert gone() is None
    assert graph.held.activations == 12
    assert x.grad is None


def test_a_snapshot_changes_nothing():
    x = leaf(3)
    y = x.exp()
    loss = (y * y).sum()
    versions = x._version, y._version
    snapshot(loss)
    assert (x._version, y._version) == versions
    assert [*loss.grad_fn.metadata] == ["gradtrace.edges"]  # which frees a deep graph in a loop
    assert not y.retains_grad
    loss.backward()
    assert torch.allclose(x.grad, 2 * (2 * x).exp())


def test_modes_of_the_program_do_not_disturb():
    x = leaf(3)
    loss = x.exp().sum()
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            assert len(snapshot(loss, x).nodes) == 3
    assert gc.isenabled()


def test_a_graph_deeper_than_the_recursion_limit():
    y = leaf(1)
    for _ in range(20_000):
        y = y + 1
    assert len(snapshot(y).nodes) == 20_001


def test_edges_run_from_the_loss_to_the_leaves():
    x = leaf(2)
    graph = snapshot((x.exp() + x).sum())
    named = {(node.name, graph.nodes[j].name) for node in graph.nodes for j in node.next}
    assert named == {
        ("SumBackward0", "AddBackward0"),
        ("AddBackward0", "ExpBackward0"),
        ("AddBackward0", "AccumulateGrad"),
        ("ExpBackward0", "AccumulateGrad"),
    }
    assert repr(graph) == "Graph(4 nodes, 1 leaves, 0 freed, 8 bytes of activations)"


def made_in_inference_mode(requires_grad):
    with torch.inference_mode():
        return torch.ones(2, requires_grad=requires_grad)


REFUSED = {
    "nothing": ((), TypeError, "at least one tensor"),
    "a number": ((3,), TypeError, "argument 0 is of type 'int'"),
    "a list": (([torch.ones(2)],), TypeError, "argument 0 is of type 'list'"),
    "a module": ((torch.nn.Linear(1, 1),), TypeError, "type 'Linear'.*output of the model"),
    "no grad": ((torch.ones(2),), ValueError, "argument 0 .*does not require grad.*no_grad"),
    "the second one": ((leaf(2), torch.ones(2)), ValueError, "argument 1"),
    "inference": ((made_in_inference_mode(False),), ValueError, "inference_mode"),
    "inference leaf": ((made_in_inference_mode(True),), ValueError, "inference_mode"),
}


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        snapshot(*arguments)


def test_bad_inputs_argument_is_named():
    with pytest.raises(TypeError, match="inputs, but one is of type 'int'"):
        snapshot(leaf(2), inputs=[3])


def test_a_view_that_lost_its_history_is_named():
    base = leaf(6).clone()
    first, _ = base.split(3)
    base.mul_(2)
    with pytest.raises(ValueError, match=r"one of several views.*written in place"):
        snapshot(first)


def test_a_leaf_that_is_also_named_as_input_counts_as_leaf():
    weight = leaf(3)
    graph = snapshot((weight * weight).sum(), inputs=[weight.detach()])
    assert graph.held == (0, weight.nbytes, 0)
    assert {saved.role for node in graph.nodes for saved in node.saved} == {"leaf"}


def test_no_function_is_kept_alive_by_a_snapshot():
    def look():
        table = torch.ones(10)

        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * table.sum()

            @staticmethod
            def backward(ctx, grad):
                return grad

        snapshot(Scale.apply(leaf(2)))
        return weakref.ref(table)

    gone = look()
    gc.collect()  # a class is part of a cycle
    assert gone() is None


@pytest.mark.skipif(
    not outputs_of(torch.ones(1, requires_grad=True).exp().grad_fn),
    reason="this PyTorch does not tell what an operation made",
)
def test_an_operation_tells_the_shapes_and_dtypes_that_it_made():
    x = torch.ones(2, 3, requires_grad=True)
    parts = (x.double() * 2).split(1)
    made = {node.name: shapes_of(node.outputs) for node in snapshot(parts[0].sum()).nodes}
    assert made == {
        "SumBackward0": "scalar float64",
        "SplitBackward0": "2 × [1, 3] float64",
        "MulBackward0": "[2, 3] float64",
        "ToCopyBackward0": "[2, 3] float64",
        "AccumulateGrad": "[2, 3]",
    }


def test_what_an_operation_made_is_unknown_where_pytorch_does_not_tell():
    class Silent:
        @property
        def _input_metadata(self):
            raise RuntimeError("nested tensors have no shape")

    assert outputs_of(Silent()) == outputs_of(object()) == ()
    assert shapes_of(()) == ""
    different = [Output(torch.Size((2,)), torch.float32), Output(torch.Size((3,)), torch.float32)]
    assert shapes_of(different) == "2 tensors"


def test_inference_mode_hides_no_node_and_its_own_leaves_have_none():
    parameter = torch.nn.Parameter(torch.ones(2))
    node = root_node(parameter)
    with torch.inference_mode():
        created_here = torch.ones(2).requires_grad_()
        assert roots_of([parameter, created_here]) == [node]
    assert roots_of(created_here) == []
