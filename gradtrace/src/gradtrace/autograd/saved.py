"""Read what live nodes saved for backward, without keeping any of it alive.

Saved tensors are read through the node attributes ``_raw_saved_*``.  Their ``data`` is the tensor,
or None once backward has freed it; reading it runs no saved-tensor hook, recomputes nothing and
skips the version check, so freed and modified graphs can be read too.  These attributes are
private to PyTorch: every one is looked up on the node's own type, none is assumed to be there.
A handle must not outlive its node (it would dangle), so the caller keeps every node alive until
the reading ends.
Older PyTorch has no ``data`` (2.10 does not, 2.13 does).  There the tensor itself is asked for, as
backward would: saved-tensor hooks then run, and a checkpoint recomputes.

Reading is the hot loop: it stores bare tuples.  ``GraphData.nodes`` gives the values their names
when somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from gradtrace._torch import (
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
from gradtrace.autograd.traversal import no_garbage_collection

# On ``node.metadata``: a trace saw backward free this node, which hides what it saves (CopySlices).
FREED_UNSEEN_TAG = "gradtrace.freed"


class GraphData:
    """Plain data about the nodes that were live when it was read.

    ``model`` is the name of the model's class, empty where none was given.
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


def describe(
    live: Sequence[LiveNode],
    links: Sequence[Sequence[int]],
    roles: Mapping[int, str] | None = None,
) -> GraphData:
    """Copy what the live nodes of a traversal say, as :func:`read_records` does, into plain
    data."""
    return GraphData(*read_records(live, links, roles or {}))


def read_records(
    live: Sequence[LiveNode], links: Sequence[Sequence[int]], roles: Mapping[int, str]
) -> tuple[list[_Record], dict[int, str]]:
    """Copy what live nodes say into the tuples from which :class:`GraphData` is made.

    ``roles`` says for storages what else owns them; a leaf among the nodes owns its own.
    """
    roles = dict(roles)
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
    return records, roles


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
    checked = attrgetter("saved_tensors" if custom else f"_saved_{name}")
    shown = SAVED_TENSORS_SHOW_THEIR_DATA
    return name, attrgetter(RAW_SAVED + name) if shown else _unpacking(checked), checked


def name_of(node: LiveNode) -> str:
    """Return the name of a node's operation."""
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
    return _Hidden(name_of(node), FREED if FREED_UNSEEN_TAG in node.metadata else HIDDEN)


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
