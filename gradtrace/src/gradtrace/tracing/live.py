"""The live graph, traversed at every line.

The state of a node is read again only when something may have changed it: a backward pass ran the
node (:meth:`LiveGraph.ran`), or a tensor that shares memory with its saved tensors has a new
version.  A change through a tensor that no variable reaches is not noticed in this way.  Therefore
a graph of up to ``_SMALL`` nodes is read completely at every line, and any graph at the last one.

A node is recognized by its index in ``node.metadata``, a dict that lives as long as the node, and a
leaf by its tensor, because PyTorch makes a new AccumulateGrad when the old one died.  Between the
lines, nothing here refers to a node or a tensor.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
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
from gradtrace.autograd.tensors import gradient_of, has_graph, shape_of, storage_of, storages_in
from gradtrace.autograd.traversal import reachable, root_node, walk
from gradtrace.tracing.calls import Calls
from gradtrace.tracing.steps import ModuleCall, NodeState, Slot, TraceNode, TraceTensor

_graphs = itertools.count()

_SMALL = 256  # nodes


class LiveGraph:
    """The graph that the variables reached when :meth:`look` was called last.

    ``nodes`` are all nodes ever seen; ``states`` has the states of those that are alive.
    ``changed`` are the states that the last look found new or different, ``gone`` the nodes that
    have died since the look before, both in the order of ``nodes``. ``tensors`` are all tensors
    ever seen that a node saved or that a variable with a graph named; ``tensor_of`` maps each
    variable to its tensor, if any. ``held`` and ``gradients`` are as in
    :class:`~gradtrace.tracing.steps.Step`. ``last_run`` is the index of the node that this line's
    backward pass ran last, None after a pass that did not fail.
    """

    def __init__(self) -> None:
        self.nodes: list[TraceNode] = []
        self.states: dict[int, NodeState] = {}
        self.changed: tuple[NodeState, ...] = ()
        self.gone: tuple[int, ...] = ()
        self.tensors = _Tensors()
        self.tensor_of: dict[str, int | None] = {}
        self.held = (0, 0, 0)
        self.gradients = 0
        self.last_run: int | None = None
        self._tag = f"gradtrace.index.{next(_graphs)}"  # on node.metadata
        self._new_index = itertools.count()
        self._links: list[list[int]] = []  # of each node
        self._leaf_indices = _torch.WeakIdKeyDictionary()  # in nodes, by the leaf tensor
        self._described: dict[int, Node] = {}  # those that are alive, as they were read last
        self._ran: set[int] = set()  # since the last look
        self._versions: set[tuple[int, int | None]] = set()  # of storages, at the last look

    def in_order(self, calls: Calls) -> tuple[tuple[TraceNode, ...], tuple[ModuleCall, ...]]:
        """Return ``nodes``, operations numbered in order of creation, and the calls of modules."""
        numbers = {index: node.order for index, node in enumerate(self.nodes)}
        operations = [index for index, number in numbers.items() if number is not None]
        operations.sort(key=lambda index: numbers[index] or 0)
        module_calls, inner = calls.found([numbers[index] or 0 for index in operations])
        nodes = list(self.nodes)
        for order, (index, call) in enumerate(zip(operations, inner, strict=True)):
            nodes[index] = dataclasses.replace(nodes[index], order=order, call=call)
        return tuple(nodes), tuple(module_calls)

    def look(
        self,
        tensors: dict[str, torch.Tensor],
        line: int | None,
        last: bool = False,
        roots: Iterable[_torch.LiveNode] = (),
    ) -> dict[str, int]:
        """Update the graph, and map each variable with a graph to the index of its tensor's node.

        ``line`` is the line that has just run; ``last`` is True if no other look will follow.  The
        graph of ``roots``, the nodes of a running backward pass, is read, too.
        """
        named, starts = self._find_starts(tensors)
        starts = [*dict.fromkeys((*starts, *roots))]
        nodes = self._enter(starts)
        alive = reachable(self._links, {*named.values(), *map(self._index, starts)})
        self._forget_dead(alive)

        storages = {name: storage_of(tensor) for name, tensor in tensors.items()}
        inputs = {storages[name][0] for name, tensor in tensors.items() if not tensor.requires_grad}
        leaves = [leaf for leaf, index in self._leaf_indices.items() if index in alive]
        owners = [*tensors.values(), *leaves]
        of_leaves = storages_in(leaves)
        in_doubt = (self._drain_ran() | self._written(owners)) & self.states.keys()
        if last or len(alive) <= _SMALL:
            in_doubt = {*self.states}
        if in_doubt:
            nodes += (node for node in walk(starts)[0] if self._index(node) in in_doubt)
        roles = dict.fromkeys(inputs, "input") | dict.fromkeys(of_leaves, "leaf")
        self._read(nodes, roles, tensors, line)
        self._count_bytes(inputs, of_leaves, owners)
        if not _torch.SAVED_TENSORS_SHOW_THEIR_DATA:
            self.tensors.forget_others(
                of_leaves | dict(storages.values()).keys() | self._saved().keys()
            )
        self._name(tensors, named, storages, line)
        return named

    def ran(self, index: int) -> None:
        """Mark a node that a backward pass runs, so that the next :meth:`look` reads its state."""
        self._ran.add(index)

    def index_of(self, node: _torch.LiveNode) -> int:
        """Return the index in ``nodes`` of a node that was alive at the last look."""
        table, key = self._table(node)
        index: int = table[key]
        return index

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

    # Which nodes are alive

    def _find_starts(
        self, tensors: Mapping[str, torch.Tensor]
    ) -> tuple[dict[str, int], list[_torch.LiveNode]]:
        """Return the index of each variable's node, and the nodes without those of known leaves.

        To get the node of a leaf records an operation, so it is done once only.
        """
        named, starts = {}, []
        for name, tensor in tensors.items():
            if has_graph(tensor):
                index = self._leaf_indices.get(tensor) if tensor.is_leaf else None
                if index not in self.states:
                    starts.append(root_node(tensor))
                    index = self._index(starts[-1])
                named[name] = index
        return named, starts

    def _enter(self, roots: Sequence[_torch.LiveNode]) -> list[_torch.LiveNode]:
        """Return the nodes that were not alive before, each after a node that leads to it."""
        entered = dict.fromkeys(node for node in roots if self._index(node) not in self.states)
        pending = [*entered]
        for node in pending:  # grows while it is read
            successors = [
                successor for successor, _ in _torch.edges_of(node) if successor is not None
            ]
            indices = [*map(self._index, successors)]
            if self._index(node) == len(self._links):
                self._links.append(indices)
            for successor, index in zip(successors, indices, strict=True):
                if index not in self.states and successor not in entered:
                    entered[successor] = None
                    pending.append(successor)
        return pending

    def _forget_dead(self, alive: Set[int]) -> None:
        self.gone = tuple(sorted(self.states.keys() - alive))
        for index in self.gone:
            del self.states[index], self._described[index]

    def _drain_ran(self) -> set[int]:
        indices = set()
        while self._ran:  # other threads may run backward meanwhile
            indices.add(self._ran.pop())
        return indices

    def _written(self, tensors: Iterable[torch.Tensor]) -> set[int]:
        """Return the nodes that saved memory of these tensors which has a new version."""
        versions = {(storage_of(tensor)[0], _torch.version_of(tensor)) for tensor in tensors}
        written = {storage for storage, version in versions - self._versions if version != 0}
        self._versions = versions
        if not written:
            return set()
        return {
            index
            for index, node in self._described.items()
            if not written.isdisjoint(saved.storage for saved in node.saved)
        }

    def _read(
        self,
        nodes: Sequence[_torch.LiveNode],
        roles: Mapping[int, str],
        tensors: dict[str, torch.Tensor],
        line: int | None,
    ) -> None:
        """Read the state of nodes; new ones must come in the order of their indices."""
        indices = [*map(self._index, nodes)]
        described = describe(nodes, [self._links[index] for index in indices], roles).nodes
        names = {id(tensor): name for name, tensor in reversed(tensors.items())}
        changed = []
        for index, node, now in zip(indices, nodes, described, strict=True):
            if index == len(self.nodes):
                label = names.get(id(node.variable), _UNNAMED) if now.leaf else now.name
                shapes = shapes_of(now.outputs or _torch.outputs_of(node))  # a leaf's are known
                self.nodes.append(self._first_seen(now, label, line, shapes))
            self._described[index] = now
            state = _state(index, self.nodes[index], now)
            if self.states.get(index) != state:
                self.states[index] = state
                changed.append(state)
        self.changed = tuple(sorted(changed, key=lambda state: state.node))

    def _saved(self) -> dict[int, int]:
        """Map the storage of each saved tensor to its bytes."""
        slots = (slot for node in self._described.values() for slot in node.saved)
        return {
            slot.storage: slot.storage_nbytes or 0 for slot in slots if slot.storage is not None
        }

    def _count_bytes(
        self, inputs: Set[int], leaves: Set[int], owners: Iterable[torch.Tensor]
    ) -> None:
        """Count the bytes of saved tensors, and of the gradients of variables and leaves."""
        saved = self._saved()
        of_leaves = sum(saved.get(storage, 0) for storage in leaves)
        of_inputs = sum(saved.get(storage, 0) for storage in inputs - leaves)
        self.held = sum(saved.values()) - of_leaves - of_inputs, of_leaves, of_inputs
        gradients = (grad for tensor in owners if (grad := gradient_of(tensor)) is not None)
        self.gradients = sum(dict(map(storage_of, gradients)).values())

    def _name(
        self,
        tensors: Mapping[str, torch.Tensor],
        named: Mapping[str, int],
        storages: Mapping[str, tuple[int, int]],
        line: int | None,
    ) -> None:
        """Record which tensor each variable names."""
        self.tensor_of = {}
        for name, tensor in tensors.items():
            storage, nbytes = storages[name]
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

    PyTorch before 2.13 may show a copy of a saved tensor, which dies as soon as it was read.  No
    reference to such a storage is possible, so its address counts as free once no node and no
    variable has it between two lines.
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
