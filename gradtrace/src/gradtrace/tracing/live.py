"""The live graph, updated from line to line.

Reading the whole graph at every line would make a trace quadratic in its lines. But a node never
changes its edges, so counting shows which nodes are alive: a node lives as long as a variable or
the edge of a live node refers to it. The nodes that a backward pass may have changed are read again
(:meth:`LiveGraph.read_again`), and all nodes if a tensor that shares memory with a saved one has a
new version. A change through a tensor that no variable reaches is missed. Therefore a graph of up
to ``_SMALL`` nodes is read at every line, a larger one as often as an average of ``_READ_A_LINE``
nodes per line allows.

A node is recognized by its index in ``node.metadata``, a dict that lives as long as the node, and a
leaf by its tensor, because PyTorch makes a new AccumulateGrad when the old one died.  Between the
lines, nothing here refers to a node or a tensor.
"""

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import torch

from gradtrace import _torch
from gradtrace.autograd.nodes import (
    FREED,
    NOT_NEEDED,
    Leaf,
    Node,
    SavedTensor,
    shapes_of,
    state_of,
)
from gradtrace.autograd.saved import describe
from gradtrace.autograd.tensors import gradient_of, has_graph, shape_of, storage_of
from gradtrace.autograd.traversal import root_node, walk
from gradtrace.tracing.calls import Calls
from gradtrace.tracing.steps import ModuleCall, NodeState, Slot, TraceNode, TraceTensor

_graphs = itertools.count()

_SMALL = 256  # nodes
_READ_A_LINE = 16  # nodes


class LiveGraph:
    """The graph that the variables reached when :meth:`look` was called last."""

    def __init__(self) -> None:
        self.nodes: list[TraceNode] = []  # all ever seen
        self.tensors = _Tensors()  # all that nodes saved, or that variables with a graph named
        self.tensor_of: dict[str, int | None] = {}  # by the name of a variable
        self.changed: tuple[NodeState, ...] = ()  # new or other ones at the last look, by index
        self.gone: tuple[int, ...] = ()  # nodes that have died since the look before, by index
        self.last_run: int | None = None  # by this line's backward pass; None if it did not fail
        self.whole = True  # whether the last look read every node
        self._tag = f"gradtrace.index.{next(_graphs)}"  # on node.metadata
        self._new_index = itertools.count()
        self._leaf_indices = _torch.WeakIdKeyDictionary()  # in nodes, by the leaf tensor
        self._unread_lines = 0  # since everything was read

        # Of the live nodes only:
        self._named: set[int] = set()  # by variables
        self._users: dict[int, int] = {}  # for each, how many edges of live nodes lead to it
        self._leaves: dict[int, _torch.TensorWeakRef] = {}
        self.states: dict[int, NodeState] = {}
        self.memory = _Memory()

    def in_order(self, calls: Calls) -> tuple[tuple[TraceNode, ...], tuple[ModuleCall, ...]]:
        """Return ``nodes``, operations numbered in order of creation, and the calls of modules."""
        nodes = list(self.nodes)
        orders = [(node.order, i) for i, node in enumerate(nodes) if node.order is not None]
        orders.sort()
        module_calls, inner = calls.found([number for number, _ in orders])
        for order, ((_, index), call) in enumerate(zip(orders, inner, strict=True)):
            nodes[index] = dataclasses.replace(nodes[index], order=order, call=call)
        return tuple(nodes), tuple(module_calls)

    def look(
        self,
        tensors: dict[str, torch.Tensor],
        line: int | None,
        last: bool = False,
        roots: Sequence[_torch.LiveNode] = (),
    ) -> dict[str, int]:
        """Update the graph, and map each variable with a graph to the index of its tensor's node.

        ``line`` is the line that has just run; ``last`` is True if no other look will follow.  The
        graph of ``roots``, the nodes of a running backward pass, is read, too.
        """
        named, starts = dict[str, int](), dict[str, _torch.LiveNode]()
        for name, tensor in tensors.items():
            if has_graph(tensor):
                index = self._leaf_indices.get(tensor) if tensor.is_leaf else None
                if index in self._users:  # the node of a leaf takes long to get
                    named[name] = index
                else:
                    starts[name] = root_node(tensor)
        links = self._enter([*starts.values(), *roots])
        named |= {name: self._index(node) for name, node in starts.items()}
        self._forget_dead({*named.values(), *map(self._index, roots)})

        self._unread_lines += 1
        limit = max(_SMALL, self._unread_lines * _READ_A_LINE)
        self.whole = last or len(self._users) <= limit
        all_leaves = self.whole or len(self._leaves) <= _SMALL
        leaves = {
            index: leaf()
            for index, leaf in self._leaves.items()
            if all_leaves or index not in self.memory.leaves
        }
        self.whole |= self.memory.look(tensors, leaves)
        nodes = dict.fromkeys(links)
        if self.whole:
            self._unread_lines = 0
            nodes |= dict.fromkeys(walk([*starts.values(), *roots])[0])
        names = {id(tensor): name for name, tensor in reversed(tensors.items())}
        self._read(nodes, links, names, line)
        self._name(tensors, named, line)
        return named

    def read_again(self, nodes: Iterable[_torch.LiveNode]) -> None:
        """Read the states of those of these nodes that were alive at the last look."""
        self._read([node for node in nodes if self.index_of(node) >= 0], {}, {}, None)

    def index_of(self, node: _torch.LiveNode) -> int:
        """Return the index in ``nodes`` of a node; -1 if it was not alive at the last look."""
        table, key = self._table(node)
        index: int = table.get(key, -1)
        return index if index in self._users else -1

    def _table(self, node: _torch.LiveNode) -> tuple[Any, Any]:
        """Return the table that has the index of a node, and its key there."""
        if isinstance(node, _torch.LEAF):
            return self._leaf_indices, node.variable
        return node.metadata, self._tag

    def _index(self, node: _torch.LiveNode) -> int:
        """Return the index of a node in ``nodes``; the next free one if the node was never seen."""
        table, key = self._table(node)
        index: int | None = table.get(key)
        if index is None:
            index = table[key] = next(self._new_index)
        return index

    def _enter(self, roots: Iterable[_torch.LiveNode]) -> dict[_torch.LiveNode, list[int]]:
        """Return the nodes that have come alive, each with the indices of its successors."""
        entered: dict[_torch.LiveNode, list[_torch.LiveNode]] = {}
        pending = [*roots]
        for node in pending:  # grows while it is read
            index = self._index(node)
            if index not in self._users:
                self._users[index] = 0
                if isinstance(node, _torch.LEAF):
                    self._leaves[index] = _torch.TensorWeakRef(node.variable)
                entered[node] = [n for n, _ in _torch.edges_of(node) if n is not None]
                pending += entered[node]
        links = {node: [*map(self._index, inputs)] for node, inputs in entered.items()}
        for successor in itertools.chain.from_iterable(links.values()):
            self._users[successor] += 1
        return links

    def _forget_dead(self, named: set[int]) -> None:
        """Forget the nodes that died: no variable names them, and no live node refers to them."""
        pending = list(self._named - named)
        self._named = named
        dead = []
        for index in pending:  # grows while it is read
            if index in named or self._users.get(index) != 0:
                continue
            tables = (self._users, self.states, self._leaves)
            for alive in (*tables, self.memory.leaves, self.memory.gradients_of_leaves):
                alive.pop(index, None)
            self.memory.release(index)
            dead.append(index)
            for successor in self.nodes[index].next:
                self._users[successor] -= 1
                pending.append(successor)
        self.gone = tuple(sorted(dead))

    def _read(
        self,
        nodes: Collection[_torch.LiveNode],
        links: Mapping[_torch.LiveNode, Sequence[int]],
        names: Mapping[int, str],
        line: int | None,
    ) -> None:
        """Read the state of these nodes; ``links`` are those of new ones, sorted by index.

        ``names`` are those of variables, by the identity of their tensor.
        """
        described = describe([*nodes], [links.get(node, ()) for node in nodes], self.memory.roles())
        changed = []
        for node, now in zip(nodes, described, strict=True):
            index = self._index(node)
            if index == len(self.nodes):
                label = names.get(id(node.variable), _UNNAMED) if now.leaf else now.name
                shapes = shapes_of(now.outputs or _torch.outputs_of(node))  # a leaf's are known
                self.nodes.append(self._first_seen(now, label, line, shapes))
            state = _state(index, self.nodes[index], now)
            if self.states.get(index) != state:
                self.states[index] = state
                changed.append(state)
            self.memory.hold(index, now)
        self.changed = tuple(sorted(changed, key=lambda state: state.node))

    def _name(
        self, tensors: dict[str, torch.Tensor], named: dict[str, int], line: int | None
    ) -> None:
        """Record which tensor each variable names."""
        if not _torch.SAVED_TENSORS_SHOW_THEIR_DATA:
            self.tensors.forget_others(self.memory.identities())
        self.tensor_of = {}
        for name, tensor in tensors.items():
            storage, nbytes = self.memory.storages[name]
            if name in named:
                role = "leaf" if self.nodes[named[name]].leaf else "activation"
                shape, dtype = tuple(shape_of(tensor)), _dtype(tensor.dtype) or ""
                self.tensors.meet(storage, TraceTensor(name, shape, dtype, nbytes, role, line))
            self.tensor_of[name] = self.tensors.find(storage, name)

    def _first_seen(self, node: Node, label: str, line: int | None, made: str) -> TraceNode:
        slots, tensor = [], None
        for saved in node.saved:
            which = None
            if saved.storage is not None:
                label_of_slot = f"{node.name} {saved.name}"
                seen = _first_view(saved, label_of_slot, saved.role or "activation", line)
                which = self.tensors.meet(saved.storage, seen, is_named=False)
            slots.append(
                Slot(
                    saved.name,
                    saved.state == NOT_NEEDED,
                    None if saved.shape is None else tuple(saved.shape),
                    _dtype(saved.dtype),
                    saved.storage_nbytes,
                    saved.version,
                    saved.role,
                    which,
                )
            )
        if (leaf := node.leaf) is not None:
            seen = _first_view(leaf, label, "leaf", line)
            tensor = self.tensors.meet(leaf.storage, seen, is_named=label != _UNNAMED)
        return TraceNode(
            name=node.name,
            label=label,
            leaf=leaf is not None,
            line=line,
            next=node.next,
            slots=tuple(slots),
            order=node.sequence_nr,
            tensor=tensor,
            made=made,
        )


class _Tensors:
    """Every storage that was seen, each stored once, even if PyTorch reuses an address.

    PyTorch before 2.13 may show a copy of a saved tensor, to whose storage no reference is
    possible. So its address counts as free once no node and no variable has it between two lines.
    """

    def __init__(self) -> None:
        self._known: list[TraceTensor] = []
        self._labelled: set[int] = set()  # indices: a variable has named these
        self._indices: dict[int, int] = {}  # by the storage's identity
        self._references: list[_torch.StorageReference] = []  # so that no identity comes twice

    def __iter__(self) -> Iterator[TraceTensor]:
        return iter(self._known)

    def meet(self, storage: int, tensor: TraceTensor, is_named: bool = True) -> int:
        """Return the index of a storage, known or, as ``tensor``, new.

        If ``is_named``, the label of ``tensor`` is a variable's name.
        """
        index = self._indices.get(storage)
        if index is None:
            index = self._indices[storage] = len(self._known)
            if storage > 0 and _torch.SAVED_TENSORS_SHOW_THEIR_DATA:
                self._references.append(_torch.StorageReference.at(storage))
            self._known.append(tensor)
        if tensor.role == "leaf" != self._known[index].role:
            self._known[index] = dataclasses.replace(self._known[index], role="leaf")
        if is_named:
            self.find(storage, tensor.label)
        return index

    def forget_others(self, storages: Set[int]) -> None:
        """Forget all storages except ``storages``, the only ones that are alive."""
        self._indices = {s: i for s, i in self._indices.items() if s in storages}

    def find(self, storage: int, label: str) -> int | None:
        """Return the index of a storage, None if unknown; ``label`` is a variable that names it."""
        index = self._indices.get(storage)
        if index is not None and index not in self._labelled:
            self._labelled.add(index)
            self._known[index] = dataclasses.replace(self._known[index], label=label)
        return index


class _Memory:
    """The storages that the live nodes saved, and the variables and leaves that share them."""

    def __init__(self) -> None:
        self._bytes: dict[int, int] = {}  # of each storage that a node holds
        self._holders = defaultdict[int, int](int)  # for each storage, how many nodes
        self._held_by: dict[int, Mapping[int, int]] = {}  # for each node: storages and their bytes
        self._total = 0
        self._versions: set[tuple[int, int | None]] = set()  # of storages, at the last look
        self._inputs: set[int] = set()  # storages
        self.leaves: dict[int, int] = {}  # for each leaf node: the storage of its tensor
        self.gradients_of_leaves: dict[int, tuple[int, int]] = {}  # by the leaf node
        self.storages: dict[str, tuple[int, int]] = {}  # of each variable: identity and bytes
        self.gradients = 0  # the bytes of those of variables and leaves; each storage counts once

    def look(self, tensors: Mapping[str, torch.Tensor], leaves: Mapping[int, torch.Tensor]) -> bool:
        """Record what refers to each storage; return whether saved memory has a new version."""
        self.storages = {name: storage_of(tensor) for name, tensor in tensors.items()}
        data = (name for name, tensor in tensors.items() if not tensor.requires_grad)
        self._inputs = {self.storages[name][0] for name in data}
        self.leaves |= {index: storage_of(leaf)[0] for index, leaf in leaves.items()}

        self.gradients_of_leaves |= zip(leaves, map(_gradient, leaves.values()), strict=True)
        of_variables = map(_gradient, tensors.values())
        self.gradients = sum(dict([*self.gradients_of_leaves.values(), *of_variables]).values())

        before = self._versions
        self._versions = {(self.storages[n][0], _torch.version_of(t)) for n, t in tensors.items()}
        self._versions |= {(self.leaves[i], _torch.version_of(leaf)) for i, leaf in leaves.items()}
        return any(storage in self._holders for storage, _ in self._versions - before)

    def roles(self) -> dict[int, str]:
        """Map each storage of an input or a leaf to its role, ``"input"`` or ``"leaf"``."""
        return dict.fromkeys(self._inputs, "input") | dict.fromkeys(self.leaves.values(), "leaf")

    def hold(self, index: int, node: Node) -> None:
        """Record which storages a node saves now."""
        storages = {
            saved.storage: saved.storage_nbytes
            for saved in node.saved
            if saved.storage is not None and saved.storage_nbytes is not None
        }
        if self._held_by.get(index) == storages:
            return
        self.release(index)
        self._held_by[index] = storages
        for storage, nbytes in storages.items():
            self._holders[storage] += 1
            self._total += nbytes - self._bytes.get(storage, 0)
            self._bytes[storage] = nbytes

    def release(self, index: int) -> None:
        """Record that a node saves nothing any more."""
        for storage in self._held_by.pop(index, ()):
            self._holders[storage] -= 1
            if not self._holders[storage]:
                del self._holders[storage]
                self._total -= self._bytes.pop(storage)

    def identities(self) -> Set[int]:
        """Return the identities of all storages that nodes, leaves and variables refer to."""
        named = (storage for storage, _ in self.storages.values())
        return {*self._holders, *self.leaves.values(), *named}

    def held(self) -> tuple[int, int, int]:
        """Return the bytes of activations, leaves and inputs; each storage counts once."""
        leaves = set(self.leaves.values())
        of_leaves = sum(self._bytes.get(storage, 0) for storage in leaves)
        of_inputs = sum(self._bytes.get(storage, 0) for storage in self._inputs - leaves)
        return self._total - of_leaves - of_inputs, of_leaves, of_inputs


def _gradient(tensor: torch.Tensor) -> tuple[int, int]:
    """Return identity and bytes of the storage of a tensor's gradient; zeros if it has none."""
    gradient = gradient_of(tensor)
    return (0, 0) if gradient is None else storage_of(gradient)


_UNNAMED = "a leaf no variable holds"


def _first_view(part: SavedTensor | Leaf, label: str, role: str, line: int | None) -> TraceTensor:
    nbytes, dtype = part.storage_nbytes or 0, _dtype(part.dtype) or "unknown"
    return TraceTensor(label, tuple(part.shape or ()), dtype, nbytes, role, line)


def _dtype(dtype: torch.dtype | None) -> str | None:
    return None if dtype is None else str(dtype).removeprefix("torch.")


def _state(index: int, known: TraceNode, node: Node) -> NodeState:
    """Return a node's state, with its slots in the order of ``known``; missing ones are freed."""
    now = {saved.name: saved for saved in node.saved}
    slots = []
    for slot in known.slots:
        saved = now.get(slot.name) or now.get(slot.name.partition("[")[0])
        slots.append((saved.state, saved.version) if saved is not None else (FREED, None))
    # A torch.autograd.Function calls itself freed even when it had saved nothing.
    state = state_of(state for state, _ in slots) if node.saved else node.state
    return NodeState(index, state, tuple(slots))
