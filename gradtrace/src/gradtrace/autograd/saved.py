"""Read what live nodes saved for backward, without keeping any of it alive.

Saved tensors are read through the node attributes ``_raw_saved_*``. Their ``data`` is the tensor,
or None once backward has freed it; reading it runs no saved-tensor hook, recomputes nothing and
skips the version check, so freed and modified graphs can be read too. These attributes are private
to PyTorch: each is looked up on the node's own type, and none is assumed to exist. A handle must
not outlive its node (it would dangle), so the caller keeps every node alive until the reading ends.
Older PyTorch has no ``data`` (2.10 does not, 2.13 does). There the tensor itself is
requested, as backward would: saved-tensor hooks then run, and a checkpoint recomputes.

Reading is the hot loop, so it stores bare tuples; ``GraphData.nodes`` builds named tuples from them
on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from gradtrace._torch import (
    CHECKED_SAVED,
    CUSTOM,
    LEAF,
    RAW_SAVED,
    SAVED_TENSORS_SHOW_THEIR_DATA,
    LiveNode,
    Output,
    outputs_of,
    sequence_nr,
    storage_identity,
    version_of,
)
from gradtrace.autograd.collector import no_garbage_collection
from gradtrace.autograd.nodes import (
    ALIVE,
    FREED,
    HIDDEN,
    MODIFIED,
    NOT_NEEDED,
    NOTHING_SAVED,
    PACKED,
    HeldBytes,
    Leaf,
    Node,
    SavedTensor,
    state_of,
)
from gradtrace.autograd.tensors import shape_of, storage_of

# On ``node.metadata``: a trace saw backward free this node, which hides what it saves (CopySlices).
FREED_UNSEEN_TAG = "gradtrace.freed"


class GraphData:
    """Plain data about nodes that were live when they were read.

    ``model`` is the name of the model's class, or empty.
    """

    def __init__(self, records: list[_Record], roles: dict[int, str]):
        self._records = records
        self._roles = roles
        self._outputs: list[tuple[Output, ...]] = []
        self.model = ""

    def read_outputs(self, live: Sequence[LiveNode]) -> None:
        """Read the shapes and dtypes of each operation's outputs."""
        self._outputs = list(map(outputs_of, live))

    def name_leaves(self, live: Sequence[LiveNode], model: torch.nn.Module) -> None:
        """Give the leaves the names of the model's parameters."""
        self.model = type(model).__name__
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        for i, (layout, number, successors, content) in enumerate(self._records):
            if isinstance(content, Leaf):
                named = content._replace(name=names.get(id(live[i].variable)))
                self._records[i] = (layout, number, successors, named)

    @cached_property
    def nodes(self) -> list[Node]:
        """The nodes, breadth first from the roots."""
        with no_garbage_collection():
            outputs = self._outputs or [()] * len(self._records)
            return [
                _node(*record, node_outputs, self._roles)
                for record, node_outputs in zip(self._records, outputs, strict=True)
            ]

    @cached_property
    def edges(self) -> list[tuple[int, int]]:
        """Pairs ``(from, to)`` of node indices, in the direction of the backward pass."""
        return [(i, j) for i, node in enumerate(self.nodes) for j in node.next]

    @cached_property
    def leaves(self) -> list[Node]:
        """The AccumulateGrad nodes: where backward ends in some tensor's ``.grad``."""
        return [node for node in self.nodes if node.leaf is not None]

    @cached_property
    def freed(self) -> list[Node]:
        """The nodes whose saved tensors are freed, so that a backward pass through them fails."""
        return [node for node in self.nodes if node.state == FREED]

    @cached_property
    def held(self) -> HeldBytes:
        """The bytes that saved tensors keep alive now."""
        storages = {
            fields[-2]: fields[-1]
            for _, _, _, content in self._records
            if not isinstance(content, (Leaf, _Hidden))
            for fields in content
            if len(fields) > 2
        }
        totals = {"activation": 0, "leaf": 0, "input": 0}
        for storage, nbytes in storages.items():
            totals[self._roles.get(storage, "activation")] += nbytes
        return HeldBytes(totals["activation"], totals["leaf"], totals["input"])


def describe(
    live: Sequence[LiveNode],
    links: Sequence[Sequence[int]],
    roles: Mapping[int, str] | None = None,
) -> GraphData:
    """Copy the state of traversed nodes into plain data, as :func:`read_records` does."""
    return GraphData(*read_records(live, links, roles or {}))


def read_records(
    live: Sequence[LiveNode], links: Sequence[Sequence[int]], roles: Mapping[int, str]
) -> tuple[list[_Record], dict[int, str]]:
    """Copy the state of live nodes into the tuples from which :class:`GraphData` is built.

    ``roles`` maps storages to what else keeps them alive; the storages of leaves among the nodes
    are added to the copy that is returned.
    """
    roles = dict(roles)
    records: list[_Record] = []
    layouts: dict[type, _Layout] = {}  # _LAYOUTS is slower: its keys are weak
    for node, successors in zip(live, links, strict=True):
        layout = layouts.get(type(node))
        if layout is None:
            layout = layouts[type(node)] = _LAYOUTS.get(type(node)) or _layout(node)
        content = layout.read(node, layout) if layout.read else []
        records.append((layout, sequence_nr(node), successors, content))
        if isinstance(content, Leaf):
            roles[content.storage] = "leaf"
    return records, roles


# What a slot holds: name, state and, where the tensor is known, the other fields of a SavedTensor
# but its role.
_Fields = tuple[Any, ...]

_Getter = Callable[[LiveNode], Any]


class _Hidden(NamedTuple):
    """A node whose saved tensors cannot be read from Python.

    C++ extensions share one node type, so each node has its own name.
    """

    name: str
    state: str


_Held = Leaf | _Hidden | list[_Fields]


class _Layout(NamedTuple):
    """The properties that all nodes of one type have in common, looked up once."""

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
    kind, name = type(node), name_of(node)
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
    checked = attrgetter("saved_tensors" if custom else CHECKED_SAVED + name)
    data_readable = SAVED_TENSORS_SHOW_THEIR_DATA
    return name, attrgetter(RAW_SAVED + name) if data_readable else _unpacking(checked), checked


def name_of(node: LiveNode) -> str:
    """Return the name of a node's operation."""
    # Not node.name(): a torch.autograd.Function may have set ctx.name to something else.
    return type(node).name(node).removeprefix("torch::autograd::")


_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))


class _Unpacked(NamedTuple):
    """A stand-in for PyTorch's handle on releases that do not expose its tensor."""

    data: torch.Tensor | None
    unpack_hook: None = None


def _unpacking(checked: _Getter) -> _Getter:
    def handle_of(node: LiveNode) -> Any:
        value = checked(node)
        return tuple(map(_Unpacked, value)) if type(value) is tuple else _Unpacked(value)

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
            entry: _Fields = (name, ALIVE, data.shape, data.dtype, data.device, version,
                             storage_identity(storage), storage.nbytes())  # fmt: skip
        except RuntimeError:  # sparse, nested, or inside a transform of torch.func
            entry = _read_slot(name, handle, node, checked)
        else:
            if version:  # versions start at 0 and only grow: at 0 nothing was written
                entry = (name, _checked_state(node, handle, checked), *entry[2:])
        fields.append(entry)
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
    """Return whether PyTorch would unpack this saved tensor, as the state alive or modified."""
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
    """Read a ``torch.autograd.Function``: saved tensors, and tensors stored on ``ctx`` itself."""
    fields = _read(node, layout)
    for name, value in vars(node).items():
        for key, part in _parts(value):
            fields.append((f"ctx.{name}{key}", ALIVE, *_tensor(part)))
    return fields


def _parts(value: object) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors in ``value``: itself, or the items of a plain container."""
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
    return _Hidden(name_of(node), FREED if FREED_UNSEEN_TAG in node.metadata else HIDDEN)


def _packed(name: str, data: object) -> _Fields:
    """Describe what a hook stored in place of a tensor; bytes are known if it holds a tensor."""
    parts = _parts(data)
    return (name, PACKED, *_tensor(parts[0][1])) if parts else (name, PACKED)


def _tensor(
    tensor: torch.Tensor,
) -> tuple[torch.Size, torch.dtype, torch.device, int | None, int, int]:
    """Return the fields that SavedTensor and Leaf share."""
    return (shape_of(tensor), tensor.dtype, tensor.device, version_of(tensor),
            *storage_of(tensor))  # fmt: skip


def _node(
    layout: _Layout,
    number: int,
    successors: Sequence[int],
    content: _Held,
    outputs: tuple[Output, ...],
    roles: dict[int, str],
) -> Node:
    """Build a :class:`Node` from the values of one record."""
    if isinstance(content, Leaf):
        output = (_new(Output, (content.shape, content.dtype)),)
        return Node(layout.name, NOTHING_SAVED, tuple(successors), (), None, content, output)
    if isinstance(content, _Hidden):
        return Node(content.name, content.state, tuple(successors), (), number, None, outputs)
    saved = []
    for fields in content:
        if len(fields) > 2:
            role = roles.get(fields[-2], "activation")
            saved.append(_new(SavedTensor, (*fields, role)))
        else:
            saved.append(SavedTensor(*fields))
    state = state_of({fields[1] for fields in content}) if content else NOTHING_SAVED
    return _new(Node, (layout.name, state, tuple(successors), tuple(saved), number, None, outputs))


_new = tuple.__new__  # half the time of a named tuple's own constructor
