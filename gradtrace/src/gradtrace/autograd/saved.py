"""Read the tensors that live nodes saved for backward, without keeping any of them alive.

Saved tensors are read through the node attributes ``_raw_saved_*``. Their ``data`` is the tensor,
or None once backward has freed it; reading it runs no saved-tensor hook, recomputes nothing and
skips the version check, so freed and modified graphs can be read too. These attributes are private
to PyTorch: each is looked up on the node's own type, and none is assumed to exist. A handle must
not outlive its node (it would dangle), so the caller keeps every node alive until the reading ends.
Older PyTorch has no ``data``; there a modified tensor is shown to explanations only.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from gradtrace import _torch
from gradtrace.autograd.nodes import (
    ALIVE,
    FREED,
    HIDDEN,
    MODIFIED,
    NOT_NEEDED,
    NOTHING_SAVED,
    PACKED,
    Leaf,
    Node,
    SavedTensor,
    state_of,
)
from gradtrace.autograd.tensors import shape_of, storage_of
from gradtrace.autograd.traversal import no_garbage_collection

# On ``node.metadata``: a trace saw backward free this node, which hides what it saves (CopySlices).
FREED_UNSEEN_TAG = "gradtrace.freed"


_NOTHING: Mapping[int, str] = {}


def describe(
    live: Sequence[_torch.LiveNode],
    links: Sequence[Sequence[int]],
    roles: Mapping[int, str] = _NOTHING,
    names: Mapping[int, str] = _NOTHING,
    with_outputs: bool = False,
) -> list[Node]:
    """Copy the state of traversed nodes into plain data.

    ``roles`` has the role of each storage that something else keeps alive (the nodes' leaves are
    added), ``names`` the name of each parameter, by identity.
    """
    with no_garbage_collection():
        leaves = {node: _leaf(node.variable, names) for node in live if type(node) is _torch.LEAF}
        roles = {**roles, **{leaf.storage: "leaf" for leaf in leaves.values()}}
        nodes = []
        for node, successors in zip(live, links, strict=True):
            if (leaf := leaves.get(node)) is not None:
                output = _torch.Output(leaf.shape, leaf.dtype)
                nodes.append(Node(name_of(node), NOTHING_SAVED, (), (), None, leaf, (output,)))
            else:
                outputs = _torch.outputs_of(node) if with_outputs else ()
                nodes.append(_read_node(node, tuple(successors), outputs, roles))
        return nodes


def _leaf(variable: torch.Tensor, names: Mapping[int, str]) -> Leaf:
    return Leaf(*_tensor(variable), variable.grad is not None, names.get(id(variable)))


def _read_node(
    node: _torch.LiveNode,
    successors: tuple[int, ...],
    outputs: tuple[_torch.Output, ...],
    roles: "_Roles",
) -> Node:
    layout = _LAYOUTS.get(type(node)) or _layout(node)
    number = _torch.sequence_nr(node)
    if layout.hidden:  # C++ extensions share one node type, so each node has its own name
        state = FREED if FREED_UNSEEN_TAG in node.metadata else HIDDEN
        return Node(name_of(node), state, successors, (), number, None, outputs)
    saved = _read(node, layout, roles) if layout.slots else []
    if layout.custom:
        saved += _read_attributes(node, roles)
    state = state_of({slot[1] for slot in saved}) if saved else NOTHING_SAVED
    return _new(Node, (layout.name, state, successors, tuple(saved), number, None, outputs))


_Roles = Mapping[int, str]
_Getter = Callable[[_torch.LiveNode], Any]
_new = tuple.__new__  # half the time of a named tuple's own constructor


class _Layout(NamedTuple):
    """The properties that all nodes of one type have in common, looked up once."""

    name: str
    slots: tuple[tuple[str, _Getter, _Getter], ...]  # name; the second getter checks versions
    custom: bool
    hidden: bool  # whether Python never sees the saved tensors


# Weak keys: a torch.autograd.Function has a node type of its own, which holds the Function.
_LAYOUTS: WeakKeyDictionary[type, _Layout] = WeakKeyDictionary()


def _layout(node: _torch.LiveNode) -> _Layout:
    kind, custom = type(node), isinstance(node, _torch.CUSTOM)
    attributes = (name for name in dir(kind) if name.startswith(_torch.RAW_SAVED))
    names = [attribute.removeprefix(_torch.RAW_SAVED) for attribute in attributes]
    slots = tuple((name, *_torch.slot_getters(name, custom)) for name in names)
    # An in-place write to a view wraps the node of that write; C++ extensions save on their own.
    hidden = kind.__name__ in ("CopySlices", "CppFunction")
    layout = _LAYOUTS[kind] = _Layout(name_of(node), slots, custom, hidden)
    return layout


def name_of(node: _torch.LiveNode) -> str:
    """Return the name of a node's operation."""
    # Not node.name(): a torch.autograd.Function may have set ctx.name to something else.
    return type(node).name(node).removeprefix("torch::autograd::")


def _read(node: _torch.LiveNode, layout: _Layout, roles: _Roles) -> list[SavedTensor]:
    slots: list[SavedTensor] = []
    for name, handle_of, checked in layout.slots:
        try:
            handle = handle_of(node)
        except RuntimeError as error:  # lists and Python functions: the attribute itself is freed
            state = MODIFIED if "inplace operation" in str(error) else FREED
            slots.append(SavedTensor(name, state))
            continue
        if type(handle) is tuple:
            for i, item in enumerate(handle):
                slot = f"{name}[{i}]"
                if item.data is None and item.unpack_hook is None:
                    slots.append(SavedTensor(slot, NOT_NEEDED))
                else:
                    slots.append(_read_slot(slot, item, node, checked, roles))
            continue
        slots.append(_read_slot(name, handle, node, checked, roles))
    return slots


def _read_slot(
    name: str, handle: Any, node: _torch.LiveNode, checked: _Getter, roles: _Roles
) -> SavedTensor:
    data = handle.data
    if handle.unpack_hook is not None:  # bytes are known if it stored a tensor
        parts = _parts(data)
        return _slot_of(name, PACKED, parts[0][1], roles) if parts else SavedTensor(name, PACKED)
    if data is None:
        try:
            checked(node)  # nothing is there, so nothing runs: raises if it was freed
        except RuntimeError:
            return SavedTensor(name, FREED)
        return SavedTensor(name, NOT_NEEDED)
    return _slot_of(name, _checked_state(node, handle, checked), data, roles)


def _slot_of(name: str, state: str, tensor: torch.Tensor, roles: _Roles) -> SavedTensor:
    fields = _tensor(tensor)
    return SavedTensor(name, state, *fields, roles.get(fields[-2], "activation"))


def _checked_state(node: _torch.LiveNode, handle: Any, checked: _Getter) -> str:
    """Return "alive" if PyTorch can unpack this saved tensor, else "modified"."""
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


def _read_attributes(node: _torch.LiveNode, roles: _Roles) -> list[SavedTensor]:
    """Read the tensors that a ``torch.autograd.Function`` stored on ``ctx`` itself."""
    return [
        _slot_of(f"ctx.{name}{key}", ALIVE, part, roles)
        for name, value in vars(node).items()
        for key, part in _parts(value)
    ]


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


def _tensor(
    tensor: torch.Tensor,
) -> tuple[torch.Size, torch.dtype, torch.device, int | None, int, int]:
    """Return the fields that SavedTensor and Leaf share."""
    return (shape_of(tensor), tensor.dtype, tensor.device, _torch.version_of(tensor),
            *storage_of(tensor))  # fmt: skip
