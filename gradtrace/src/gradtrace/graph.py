"""A snapshot of the live autograd graph behind some tensors.

Autograd links the result of every recorded operation to a *node* (``tensor.grad_fn``), and every
node to the nodes that made its inputs (``node.next_functions``).  :func:`snapshot` walks these
links breadth first, without recursion, and copies what it finds into plain data: names, edges,
and for each saved tensor its state, shape, bytes and version.  The copy holds no tensor and no
node, so taking it keeps nothing alive.

Saved tensors are read through the node attributes ``_raw_saved_*``.  Their ``data`` is the tensor,
or None once backward has freed it; reading it runs no saved-tensor hook, recomputes nothing and
skips the version check, so freed and modified graphs can be read too.  These attributes are
private to PyTorch: every one is looked up on the node's own type, none is assumed to be there.
A handle must not outlive its node (it would dangle), so the walk holds every node until it ends.
Older PyTorch has no ``data`` (2.10 does not, 2.13 does).  There the tensor itself is asked for, as
backward would: saved-tensor hooks then run, and a checkpoint recomputes.

Reading is the hot loop: it stores bare tuples.  ``Graph.nodes`` gives the values their names when
somebody looks.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from gradtrace._torch import (
    CUSTOM,
    LEAF,
    RAW_SAVED,
    SAVED_TENSORS_SHOW_THEIR_DATA,
    LiveNode,
    Output,
    edges_of,
    grad_fn_of,
    no_dispatch_modes,
    no_torch_function,
    outputs_of,
    sequence_nr,
    storage_identity,
    version_of,
)

if TYPE_CHECKING:
    from gradtrace.picture import Comparison

ALIVE = "alive"
MODIFIED = "modified"
PACKED = "packed"
FREED = "freed"
NOT_NEEDED = "not needed"
NOTHING_SAVED = "saves nothing"
HIDDEN = "hidden"

# On ``node.metadata``: a trace saw backward free this node, which hides what it saves (CopySlices).
FREED_UNSEEN_TAG = "gradtrace.freed"

_FEW = 5_000  # nodes: what they made is read without being asked for


class SavedTensor(NamedTuple):
    """One tensor that a node saved for its backward.

    ``state`` is ``"alive"``, ``"modified"`` (its version is no longer the one that was saved:
    backward will refuse it), ``"packed"`` (a saved-tensor hook or a checkpoint holds something in
    its place), ``"freed"`` or ``"not needed"`` (the node has room for it but never saved it).
    ``role`` says who else holds its memory: ``"leaf"`` (a parameter or another leaf of this
    graph), ``"input"`` (named by the caller) or ``"activation"`` (the graph itself).  What is not
    known, as after freeing, is None.  ``storage`` identifies the storage it lies in within one
    snapshot, and ``storage_nbytes`` is the size of that storage in bytes.
    """

    name: str
    state: str
    shape: torch.Size | None = None
    dtype: torch.dtype | None = None
    device: torch.device | None = None
    version: int | None = None
    storage: int | None = None
    storage_nbytes: int | None = None
    role: str | None = None

    @property
    def nbytes(self) -> int | None:
        """Bytes of its elements; fewer than ``storage_nbytes`` for a view of something larger."""
        if self.shape is None or self.dtype is None:
            return None
        return self.shape.numel() * self.dtype.itemsize


class Leaf(NamedTuple):
    """The tensor into whose ``.grad`` a leaf node accumulates.  ``storage`` as in SavedTensor.

    ``name`` is that of a parameter of the ``model`` given to :func:`snapshot`, else None.
    """

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    version: int | None
    storage: int
    storage_nbytes: int
    has_grad: bool
    name: str | None = None


class Node(NamedTuple):
    """One node of the graph.

    ``next`` holds, for each input that needs a gradient, the index of the node that made it in
    ``Graph.nodes``.  ``sequence_nr`` is PyTorch's counter of recorded operations (one for each
    thread), None for leaves.  ``leaf`` describes the leaf tensor of an AccumulateGrad node and is
    None for every other node.  ``state`` is ``"freed"`` when any of its saved tensors is, else the
    first of ``"modified"``, ``"packed"``, ``"alive"`` that applies, else ``"saves nothing"``;
    ``"hidden"`` when PyTorch shows Python nothing of what the node saves.  ``outputs`` are the
    tensors that the operation made, empty where PyTorch does not tell (2.4.1 never does), and in a
    graph of more than 5,000 nodes whose ``model`` is not given: asking takes as long as all else.
    """

    name: str
    state: str
    next: tuple[int, ...]
    saved: tuple[SavedTensor, ...]
    sequence_nr: int | None
    leaf: Leaf | None
    outputs: tuple[Output, ...] = ()


class HeldBytes(NamedTuple):
    """Bytes of the storages that saved tensors keep alive, each storage counted once.

    ``activations`` are held by the graph; ``leaves`` (parameters and other leaves) and ``inputs``
    are tensors that the program holds anyway: those named to :func:`snapshot`, and what its model
    holds besides (buffers, frozen parameters).
    """

    activations: int
    leaves: int
    inputs: int

    @property
    def total(self) -> int:
        return sum(self)


class ModuleBytes(NamedTuple):
    """What one module, with all inside of it, has of a graph.

    ``name`` is as in ``model.named_modules()``, empty for the graph as a whole.  ``nodes`` counts
    operations, ``freed`` those of them whose saved tensors are freed.  ``activations`` and
    ``parameters`` are bytes; a storage that several hold counts once, for the first operation that
    saved it, here and in the picture.  ``shared`` are the bytes of activations that this module
    holds, too, and that count for others: those in ``shared_with`` (an empty name is what belongs
    to no module within the model).  An operation without parameters belongs to the innermost module
    around it: the one whose parameters are used before it and after it.
    """

    name: str
    nodes: int
    freed: int
    activations: int
    parameters: int
    shared: int
    shared_with: tuple[str, ...]


class Graph:
    """Plain data about one autograd graph, made by :func:`snapshot`.

    ``model`` is the name of the model's class, if one was given.
    """

    def __init__(self, records: list[_Record], roles: dict[int, str]):
        self._records = records
        self._roles = roles
        self._outputs: list[tuple[Output, ...]] = []
        self.model = ""

    def read_outputs(self, live: Sequence[LiveNode]) -> None:
        """Note what each operation made."""
        self._outputs = list(map(outputs_of, live))

    def name_leaves(self, live: Sequence[LiveNode], model: torch.nn.Module) -> None:
        """Give leaves the names of the model's parameters."""
        self.model = type(model).__name__
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        for i, (layout, number, successors, held) in enumerate(self._records):
            if isinstance(held, Leaf):
                named = held._replace(name=names.get(id(live[i].variable)))
                self._records[i] = (layout, number, successors, named)

    @cached_property
    def nodes(self) -> list[Node]:
        """The nodes, breadth first from the roots."""
        with no_garbage_collection():
            outputs = self._outputs or [()] * len(self._records)
            return [
                _node(*record, made, self._roles)
                for record, made in zip(self._records, outputs, strict=True)
            ]

    @cached_property
    def edges(self) -> list[tuple[int, int]]:
        """Pairs ``(from, to)`` of node indices, in the direction that backward runs."""
        return [(i, j) for i, node in enumerate(self.nodes) for j in node.next]

    @cached_property
    def leaves(self) -> list[Node]:
        """The AccumulateGrad nodes: where backward ends in some tensor's ``.grad``."""
        return [node for node in self.nodes if node.leaf is not None]

    @cached_property
    def freed(self) -> list[Node]:
        """The nodes whose saved tensors have been freed: backward cannot run through them."""
        return [node for node in self.nodes if node.state == FREED]

    @cached_property
    def held(self) -> HeldBytes:
        """What the saved tensors hold now, in bytes."""
        storages = {
            fields[-2]: fields[-1]
            for _, _, _, held in self._records
            if not isinstance(held, (Leaf, _Hidden))
            for fields in held
            if len(fields) > 2
        }
        totals = {"activation": 0, "leaf": 0, "input": 0}
        for storage, nbytes in storages.items():
            totals[self._roles.get(storage, "activation")] += nbytes
        return HeldBytes(totals["activation"], totals["leaf"], totals["input"])

    @cached_property
    def modules(self) -> list[ModuleBytes]:
        """The bytes of each module, as far as parameters have names: see ``model`` of snapshot().

        The first row is the whole graph; the others are in the order in which they ran.

        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
        >>> for row in snapshot(model(torch.ones(4, 2)), model=model).modules:
        ...     print(row.name or "all", row.activations, row.shared, row.shared_with)
        all 80 0 ()
        0 32 0 ()
        2 0 48 ('',)
        """
        from gradtrace.picture import modules

        return modules(self)

    def compare(self, later: Graph) -> Comparison:
        """What is new, gone, freed or changed in a later snapshot.

        Raises:
            TypeError: ``later`` is not a snapshot.
        """
        from gradtrace.picture import Comparison

        if not isinstance(later, Graph):
            raise TypeError(
                f"compare() takes a later snapshot, but got {type(later).__name__!r}: pass "
                "snapshot(loss)"
            )
        return Comparison(self, later)

    def to_svg(self, path: str | Path | None = None) -> str:
        """The graph drawn as SVG text, written to the file ``path`` where one is given.

        A large graph is folded, as in the player: by module where parameters have names, else by
        what repeats.
        """
        from gradtrace.picture import graph_svg, write

        return write(graph_svg(self), path)

    def _repr_html_(self) -> str:
        from gradtrace.picture import graph_html

        return graph_html(self)

    def __repr__(self) -> str:
        return (
            f"Graph({len(self.nodes)} nodes, {len(self.leaves)} leaves, "
            f"{len(self.freed)} freed, {self.held.activations} bytes of activations)"
        )


def snapshot(
    *tensors: torch.Tensor,
    inputs: Iterable[torch.Tensor] = (),
    model: torch.nn.Module | None = None,
) -> Graph:
    """Describe the autograd graph that ``tensors`` reach, as it is now.

    Args:
        tensors: losses, outputs or leaves that require grad, of any shape, dtype and device.
        inputs: tensors that the program holds anyway (the data).  Their bytes, where the graph
            saved them, are counted apart from the activations.
        model: gives leaves the names of its parameters, so that the graph folds by module and
            ``Graph.modules`` tells the bytes of each.  What else it holds, such as the running
            statistics of a batch norm, counts as inputs do.

    Returns:
        A :class:`Graph` of plain data.  Nothing of the graph is changed or kept alive.

    Raises:
        TypeError: called with nothing, or with something that is not a tensor, or ``model`` is not
            a module.
        ValueError: a tensor has no graph behind it; the message says why.

    >>> import torch
    >>> x = torch.ones(3, requires_grad=True)
    >>> y = x.exp()
    >>> loss = y.sum()
    >>> graph = snapshot(loss)
    >>> [node.name for node in graph.nodes]
    ['SumBackward0', 'ExpBackward0', 'AccumulateGrad']
    >>> graph.nodes[1].saved[0].name, graph.nodes[1].saved[0].state, graph.held.activations
    ('result', 'alive', 12)
    >>> loss.backward()
    >>> snapshot(loss).freed[0].name
    'ExpBackward0'
    """
    if not tensors:
        raise TypeError(
            "snapshot() needs at least one tensor: pass the loss, or the output of the model"
        )
    inputs = list(inputs)
    for given in inputs:
        if not isinstance(given, torch.Tensor):
            raise TypeError(
                f"snapshot() takes tensors as inputs, but one is of type {type(given).__name__!r}"
            )
    if model is not None and not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"snapshot() takes a torch.nn.Module as model, but got one of type "
            f"{type(model).__name__!r}"
        )
    with undisturbed():
        roots = [_root(tensor, position) for position, tensor in enumerate(tensors)]
        live, links = walk(roots)
        if model is not None:
            inputs += [*model.parameters(), *model.buffers()]
        found = describe(live, links, {storage_of(tensor)[0]: "input" for tensor in inputs})
        if model is not None or len(live) <= _FEW:
            found.read_outputs(live)
        if model is not None:
            found.name_leaves(live, model)
        return found


def _root(tensor: object, position: int) -> LiveNode:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"snapshot() takes tensors, but argument {position} is of type "
            f"{type(tensor).__name__!r}: pass the loss, or the output of the model"
        )
    if not has_graph(tensor):
        if tensor.is_inference():
            reason = "it was made in torch.inference_mode(), which records no graph"
        elif tensor.requires_grad:
            reason = (
                "it is one of several views, as split() makes them, and a view or their base was "
                "written in place: PyTorch no longer knows its history"
            )
        else:
            reason = (
                "it does not require grad: it is plain data, or was made under torch.no_grad(), "
                "by detach(), or by an operation that has no derivative"
            )
        raise ValueError(f"no graph is behind argument {position} of snapshot(): {reason}")
    return root_node(tensor)


def has_graph(tensor: torch.Tensor) -> bool:
    """Whether backward can start from it.  An inference tensor may require grad, but to no end."""
    return tensor.requires_grad and not tensor.is_inference() and not is_cut_off(tensor)


def is_cut_off(tensor: torch.Tensor) -> bool:
    """Whether PyTorch refuses every question about its history, ``is_leaf`` among them.

    So it does for views that must not be written in place (those of ``split`` and ``unbind``), once
    their base or one of them was.
    """
    try:
        _ = tensor.is_leaf
    except RuntimeError:
        return True
    return False


def gradient_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Its ``.grad``, where it has one: a leaf, or a tensor that was asked to retain it."""
    if is_cut_off(tensor) or not (tensor.is_leaf or tensor.retains_grad):
        return None
    return tensor.grad


def root_node(tensor: torch.Tensor) -> LiveNode:
    """The node at which backward from ``tensor`` starts; AccumulateGrad for a leaf."""
    if (node := grad_fn_of(tensor)) is not None:
        return node
    # get_gradient_edge takes a view, which these refuse, or some of them.
    if tensor.is_nested or tensor.layout is not torch.strided:
        with torch.enable_grad():
            copied: LiveNode = tensor.clone().grad_fn
        return copied.next_functions[0][0]
    return get_gradient_edge(tensor).node


def roots_of(outputs: torch.Tensor | Iterable[torch.Tensor | GradientEdge]) -> list[LiveNode]:
    """The nodes at which a backward over ``outputs`` begins."""
    outputs = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
    return [
        root_node(output) if isinstance(output, torch.Tensor) else output.node
        for output in outputs
        if getattr(output, "requires_grad", True)
    ]


def walk(roots: Iterable[LiveNode]) -> tuple[list[LiveNode], list[list[int]]]:
    """All nodes that ``roots`` reach, breadth first, and for each the indices of its successors."""
    live = list(dict.fromkeys(roots))
    index = {node: i for i, node in enumerate(live)}
    links: list[list[int]] = []
    for node in live:  # grows while it is read
        successors = []
        for successor, _ in edges_of(node):
            if successor is not None:
                i = index.get(successor)
                if i is None:
                    i = index[successor] = len(live)
                    live.append(successor)
                successors.append(i)
        links.append(successors)
    return live, links


def users_of(links: Sequence[Sequence[int]]) -> list[list[int]]:
    """The links of :func:`walk` turned round: for each node the indices of those that lead to it.

    >>> users_of([[1, 2], [2], []])
    [[], [0], [0, 1]]
    """
    users: list[list[int]] = [[] for _ in links]
    for i, successors in enumerate(links):
        for j in successors:
            users[j].append(i)
    return users


def leading_to(targets: Iterable[int], users: Sequence[Sequence[int]]) -> set[int]:
    """The nodes from which a path leads to one of ``targets``, by the users of each node.

    >>> sorted(leading_to([2], users_of([[1, 2], [2], []])))
    [0, 1]
    """
    pending, leading = list(targets), set()
    for i in pending:  # grows while it is read
        for user in users[i]:
            if user not in leading:
                leading.add(user)
                pending.append(user)
    return leading


def describe(
    live: Sequence[LiveNode],
    links: Sequence[Sequence[int]],
    roles: Mapping[int, str] | None = None,
) -> Graph:
    """Copy what the live nodes of :func:`walk` say into a :class:`Graph`.

    ``roles`` tells of storages who else holds them; that of a leaf among the nodes is the leaf's.
    """
    roles = dict(roles or {})
    records: list[_Record] = []
    layouts: dict[type, _Layout] = {}  # _LAYOUTS is slower: its keys are weak
    for node, successors in zip(live, links, strict=True):
        layout = layouts.get(type(node))
        if layout is None:
            layout = layouts[type(node)] = _LAYOUTS.get(type(node)) or _layout(node)
        held = layout.read(node, layout) if layout.read else []
        records.append((layout, sequence_nr(node), successors, held))
        if isinstance(held, Leaf):
            roles[held.storage] = "leaf"
    return Graph(records, roles)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """The collector would look through the growing lists of a walk again and again, for nothing."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Read tensors without running the program's code: none of its modes and tensor subclasses."""
    with (
        no_garbage_collection(),
        no_torch_function(),
        no_dispatch_modes(),
        torch.inference_mode(False),
    ):
        yield


# What a slot holds: name, state and, where the tensor is known, the other fields of a SavedTensor
# but its role.
_Fields = tuple[Any, ...]
_Getter = Callable[[LiveNode], Any]


class _Hidden(NamedTuple):
    """A node that hides what it saves.  C++ extensions share a type, but each node has a name."""

    name: str
    state: str


_Held = Leaf | _Hidden | list[_Fields]


class _Layout(NamedTuple):
    """What is the same for all nodes of one type, looked up once."""

    name: str
    # Copies what such a node holds; None where there is nothing to copy.
    read: Callable[[LiveNode, _Layout], _Held] | None
    # For each slot its name, the getter of its handle, and the getter that checks its version.
    slots: tuple[tuple[str, _Getter, _Getter], ...] = ()


# Of one node: its type's layout, its sequence number, the indices of its successors, what it holds.
_Record = tuple[_Layout, int, Sequence[int], _Held]

# Weak keys: a torch.autograd.Function has a node type of its own, which holds the Function.
_LAYOUTS: WeakKeyDictionary[type, _Layout] = WeakKeyDictionary()


def _layout(node: LiveNode) -> _Layout:
    kind, name = type(node), _name(node)
    slots = tuple(
        _slot(attribute.removeprefix(RAW_SAVED), isinstance(node, CUSTOM))
        for attribute in dir(kind)
        if attribute.startswith(RAW_SAVED)
    )
    if isinstance(node, LEAF):
        layout = _Layout(name, _read_leaf)
    elif kind.__name__ in ("CopySlices", "CppFunction"):
        # An in-place write to a view wraps the node of that write, and C++ extensions save
        # tensors, that Python never sees.
        layout = _Layout(name, _read_hidden)
    elif isinstance(node, CUSTOM):
        layout = _Layout(name, _read_custom, slots)
    else:
        layout = _Layout(name, _read if slots else None, slots)
    _LAYOUTS[kind] = layout
    return layout


def _slot(name: str, custom: bool) -> tuple[str, _Getter, _Getter]:
    checked = attrgetter("saved_tensors" if custom else f"_saved_{name}")
    shown = SAVED_TENSORS_SHOW_THEIR_DATA
    return name, attrgetter(RAW_SAVED + name) if shown else _unpacking(checked), checked


def _name(node: LiveNode) -> str:
    # Not node.name(): a torch.autograd.Function may have set ctx.name to something else.
    return type(node).name(node).removeprefix("torch::autograd::")


_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))


class _Unpacked(NamedTuple):
    """Stands in for a handle where PyTorch's own does not show its tensor."""

    data: torch.Tensor | None
    unpack_hook: None = None


def _unpacking(checked: _Getter) -> _Getter:
    def handle_of(node: LiveNode) -> Any:
        held = checked(node)
        return tuple(map(_Unpacked, held)) if type(held) is tuple else _Unpacked(held)

    return handle_of


def _read(node: LiveNode, layout: _Layout) -> list[_Fields]:
    fields: list[_Fields] = []
    for name, handle_of, checked in layout.slots:
        try:
            handle = handle_of(node)
        except RuntimeError as error:  # lists and Python functions: the attribute itself is freed
            fields.append((name, MODIFIED if "inplace operation" in str(error) else FREED))
            continue
        if type(handle) is tuple:
            for i, item in enumerate(handle):
                empty = item.data is None and item.unpack_hook is None
                slot = f"{name}[{i}]"
                fields.append(
                    (slot, NOT_NEEDED) if empty else _read_slot(slot, item, node, checked)
                )
            continue
        data = handle.data
        if type(data) not in _PLAIN or handle.unpack_hook is not None:
            fields.append(_read_slot(name, handle, node, checked))
            continue
        try:  # most slots: what _read_slot would do, written out for speed
            version = data._version
            storage = data.untyped_storage()
            held: _Fields = (name, ALIVE, data.shape, data.dtype, data.device, version,
                             storage_identity(storage), storage.nbytes())  # fmt: skip
        except RuntimeError:  # sparse, nested, or inside a transform of torch.func
            held = _read_slot(name, handle, node, checked)
        else:
            if version:  # versions start at 0 and only grow: at 0 nothing was written
                held = (name, _checked_state(node, handle, checked), *held[2:])
        fields.append(held)
    return fields


def _read_slot(name: str, handle: Any, node: LiveNode, checked: _Getter) -> _Fields:
    data = handle.data
    if handle.unpack_hook is not None:
        return _packed(name, data)
    if data is None:
        try:
            checked(node)  # nothing is there, so nothing runs: raises if it was freed
        except RuntimeError:
            return (name, FREED)
        return (name, NOT_NEEDED)
    return (name, _checked_state(node, handle, checked), *_tensor(data))


def _checked_state(node: LiveNode, handle: Any, checked: _Getter) -> str:
    """Whether PyTorch would hand out this saved tensor, which is there."""
    try:
        checked(node)
        return ALIVE
    except RuntimeError:
        pass
    try:
        handle.unpack()  # of a list, another item may be the modified one
    except (RuntimeError, AttributeError):  # torch before 2.12 has no unpack()
        return MODIFIED
    return ALIVE


def _read_custom(node: LiveNode, layout: _Layout) -> list[_Fields]:
    """A torch.autograd.Function: its saved tensors, and tensors put on ``ctx`` past autograd."""
    fields = _read(node, layout)
    for name, value in vars(node).items():
        for key, part in _parts(value):
            fields.append((f"ctx.{name}{key}", ALIVE, *_tensor(part)))
    return fields


def _parts(value: object) -> list[tuple[str, torch.Tensor]]:
    """The tensors in ``value``: itself, or those of a plain container."""
    if isinstance(value, torch.Tensor):
        return [("", value)]
    if isinstance(value, dict):
        items: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, (tuple, list)):
        items = enumerate(value)
    else:
        return []
    return [(f"[{key!r}]", part) for key, part in items if isinstance(part, torch.Tensor)]


def _read_leaf(node: LiveNode, layout: _Layout) -> Leaf:
    variable = node.variable
    return Leaf(*_tensor(variable), variable.grad is not None)


def _read_hidden(node: LiveNode, layout: _Layout) -> _Hidden:
    return _Hidden(_name(node), FREED if FREED_UNSEEN_TAG in node.metadata else HIDDEN)


def _packed(name: str, data: object) -> _Fields:
    """What a hook put in a tensor's place; its bytes are known when that contains a tensor."""
    parts = _parts(data)
    return (name, PACKED, *_tensor(parts[0][1])) if parts else (name, PACKED)


def _tensor(
    tensor: torch.Tensor,
) -> tuple[torch.Size, torch.dtype, torch.device, int | None, int, int]:
    """The fields that SavedTensor and Leaf share."""
    return (shape_of(tensor), tensor.dtype, tensor.device, version_of(tensor),
            *storage_of(tensor))  # fmt: skip


def shape_of(tensor: torch.Tensor) -> torch.Size:
    """The shape; for a nested tensor, which has none, the number of its elements."""
    if not tensor.is_nested:
        return tensor.shape
    elements = tensor if tensor.layout is torch.strided else tensor.values()
    return torch.Size((elements.numel(),))


def storage_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Identity and bytes of the memory behind ``tensor``; negative for one without a storage."""
    if tensor.layout is torch.sparse_coo:
        parts = [tensor._values(), tensor._indices()]
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [tensor.values(), tensor.crow_indices(), tensor.col_indices()]
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = [tensor.values(), tensor.ccol_indices(), tensor.row_indices()]
    else:
        parts = [tensor]
    try:
        storages = [part.untyped_storage() for part in parts]
        return storage_identity(storages[0]), sum(storage.nbytes() for storage in storages)
    except (NotImplementedError, RuntimeError):  # tensors inside torch.func have no storage
        return -id(tensor), tensor.numel() * tensor.dtype.itemsize


def _node(
    layout: _Layout,
    number: int,
    successors: Sequence[int],
    held: _Held,
    outputs: tuple[Output, ...],
    roles: dict[int, str],
) -> Node:
    """Give the values of one record their names."""
    if isinstance(held, Leaf):
        one = (_new(Output, (held.shape, held.dtype)),)
        return Node(layout.name, NOTHING_SAVED, tuple(successors), (), None, held, one)
    if isinstance(held, _Hidden):
        return Node(held.name, held.state, tuple(successors), (), number, None, outputs)
    saved = []
    for fields in held:
        if len(fields) > 2:
            role = roles.get(fields[-2], "activation")
            saved.append(_new(SavedTensor, (*fields, role)))
        else:
            saved.append(SavedTensor(*fields))
    state = state_of({fields[1] for fields in held}) if held else NOTHING_SAVED
    return _new(Node, (layout.name, state, tuple(successors), tuple(saved), number, None, outputs))


_new = tuple.__new__  # half the time of a named tuple's own constructor


def shapes_of(outputs: Sequence[Output]) -> str:
    """The shapes of what an operation made, short; a dtype only where it is not float32.

    >>> shapes_of([Output(torch.Size((2, 4)), torch.float32)] * 3)
    '3 × [2, 4]'
    >>> shapes_of([Output(torch.Size(()), torch.float64)])
    'scalar float64'
    """
    if not outputs:
        return ""
    shape, dtype = outputs[0]
    text = f"[{', '.join(map(str, shape))}]" if shape else "scalar"
    if dtype != torch.float32:
        text += f" {str(dtype).removeprefix('torch.')}"
    if len(outputs) == 1:
        return text
    alike = all(output == outputs[0] for output in outputs)
    return f"{len(outputs)} × {text}" if alike else f"{len(outputs)} tensors"


def state_of(slots: Iterable[str]) -> str:
    """The state of a node whose slots are in these states."""
    states = set(slots)
    for state in (FREED, MODIFIED, PACKED, ALIVE):
        if state in states:
            return state
    return NOTHING_SAVED
