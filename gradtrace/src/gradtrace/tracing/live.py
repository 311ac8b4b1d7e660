"""The live graph, updated from line to line.

Reading the whole graph at every line would make a trace quadratic in its lines.  But a node never
changes its edges, so counting shows which nodes are alive: a node lives as long as a variable or
the edge of a live node refers to it.  Its state is read again only when something may have changed
the state: a backward pass ran the node (:meth:`LiveGraph.ran`), or a tensor that shares memory with
its saved tensors has a new version.

A change through a tensor that no variable reaches is not noticed in this way.  Therefore a graph of
up to ``_SMALL`` nodes is read completely at every line, and a larger one only as often as an
average of ``_READ_A_LINE`` nodes per line allows.

A node is recognized by a number in ``node.metadata``, a dict that lives as long as the node, and a
leaf by its tensor, because PyTorch makes a new AccumulateGrad when the old one died.  Between the
lines, nothing here refers to a node or a tensor.  To read a node again, known edges are followed up
to a node that a variable names, and real edges down from there.
"""

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

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
from gradtrace.autograd.traversal import root_node
from gradtrace.tracing.calls import Calls
from gradtrace.tracing.steps import ModuleCall, NodeState, Slot, TraceNode, TraceTensor

_NUMBER_TAG = "gradtrace.number"
_numbers = itertools.count()

_SMALL = 256  # nodes
_READ_A_LINE = 16  # nodes


class LiveGraph:
    """The graph that the variables reached when :meth:`look` was called last.

    ``nodes`` are all nodes ever seen; ``states`` has the states of those that are alive.
    ``changed`` are the states that the last look found new or different, ``gone`` the nodes that
    have died since the look before, both in the order of ``nodes``. ``tensors`` are all tensors
    ever seen that a node saved or that a variable with a graph named; ``tensor_of`` maps each
    variable to its tensor, if any. ``memory`` counts bytes. ``last_run`` is the index of the node
    that this line's backward pass ran last, None after a pass that did not fail. ``whole`` is True
    if the last look read every node, not only those that may have changed.
    """

    def __init__(self) -> None:
        self.nodes: list[TraceNode] = []
        self.tensors = _Tensors()
        self.tensor_of: dict[str, int | None] = {}
        self.changed: tuple[NodeState, ...] = ()
        self.gone: tuple[int, ...] = ()
        self.last_run: int | None = None
        self.whole = True
        self._new_index = itertools.count()
        self._indices: dict[int, int] = {}  # in nodes, by the node's number
        self._leaf_indices = _torch.WeakIdKeyDictionary()  # in nodes, by the leaf tensor
        self._ran: set[int] = set()  # since the last look
        self._unread_lines = 0  # since everything was read

        # Of the live nodes only:
        self._named: set[int] = set()  # by variables
        self._users: dict[int, set[int]] = {}  # for each, the live nodes that lead to it
        self._leaves: dict[int, _torch.TensorWeakRef] = {}
        self.states: dict[int, NodeState] = {}
        self.memory = _Memory()

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
        live_nodes = _LiveNodes()
        named = {
            name: self._meet_tensor(tensor, live_nodes)
            for name, tensor in tensors.items()
            if has_graph(tensor)
        }
        running = {self._meet(node, live_nodes) for node in roots}
        for index in live_nodes.entered:  # grows while it is read
            live_nodes.links[index] = [
                self._meet(node, live_nodes) for node in _next(live_nodes.nodes[index])
            ]
            for successor in live_nodes.links[index]:
                self._users[successor].add(index)
        self._forget_dead(running.union(named.values()))

        self._unread_lines += 1
        self.whole = last or len(self._users) <= max(_SMALL, self._unread_lines * _READ_A_LINE)
        if self.whole:
            self._unread_lines = 0
        written = self.memory.look(tensors, self._leaves, self.whole)
        in_doubt = self._drain_ran() | written
        if self.whole:
            in_doubt = self._users.keys() - self._leaves.keys()
        in_doubt = (in_doubt & self._users.keys()).difference(live_nodes.entered)
        self._fetch(in_doubt, live_nodes)
        self._read([*live_nodes.entered, *in_doubt], live_nodes, tensors, line)
        self._name(tensors, named, line)
        return named

    def ran(self, index: int) -> None:
        """Mark a node that a backward pass runs, so that the next :meth:`look` reads its state."""
        self._ran.add(index)

    def index_of(self, node: _torch.LiveNode) -> int:
        """Return the index in ``nodes`` of a node; -1 if it was not alive at the last look."""
        if isinstance(node, _torch.LEAF):
            index = self._leaf_indices.get(node.variable)
        else:
            index = self._indices.get(node.metadata.get(_NUMBER_TAG))
        return index if index in self._users else -1

    # Which nodes are alive

    def _meet_tensor(self, tensor: torch.Tensor, live_nodes: "_LiveNodes") -> int:
        index = self._leaf_indices.get(tensor) if tensor.is_leaf else None
        if index is not None and index in self._users:
            return index  # the node of a leaf takes long to get
        return self._meet(root_node(tensor), live_nodes)

    def _meet(self, node: _torch.LiveNode, live_nodes: "_LiveNodes") -> int:
        """Return the index of a node; the node enters the graph if it was not alive before."""
        leaf = node.variable if isinstance(node, _torch.LEAF) else None
        index = self._index(node, leaf)
        if index not in self._users:
            self._users[index] = set()
            if leaf is not None:
                self._leaves[index] = _torch.TensorWeakRef(leaf)
            live_nodes.entered.append(index)
        live_nodes.nodes[index] = node
        return index

    def _index(self, node: _torch.LiveNode, leaf: torch.Tensor | None) -> int:
        """Return the index of a node in ``nodes``; the next free one if the node was never seen."""
        if leaf is not None:
            index = self._leaf_indices.get(leaf)
            if index is None:
                index = self._leaf_indices[leaf] = next(self._new_index)
            return index
        number = node.metadata.get(_NUMBER_TAG)
        if number is None:
            number = node.metadata[_NUMBER_TAG] = next(_numbers)
        index = self._indices.get(number)
        if index is None:
            index = self._indices[number] = next(self._new_index)
        return index

    def _forget_dead(self, named: set[int]) -> None:
        """Forget the nodes that died: no variable names them, and no live node refers to them."""
        pending = list(self._named - named)
        self._named = named
        dead = []
        for index in pending:  # grows while it is read
            if index in named or index not in self._users or self._users[index]:
                continue
            for alive in (self._users, self.states, self._leaves):
                alive.pop(index, None)
            self.memory.remove(index)
            dead.append(index)
            for successor in self.nodes[index].next:
                self._users[successor].discard(index)
                pending.append(successor)
        self.gone = tuple(sorted(dead))

    # What state they are in

    def _drain_ran(self) -> set[int]:
        indices = set()
        while self._ran:  # other threads may run backward meanwhile
            indices.add(self._ran.pop())
        return indices

    def _fetch(self, targets: Iterable[int], live_nodes: "_LiveNodes") -> None:
        """Add the nodes of ``targets`` to ``live_nodes`` by following edges from nodes in it."""
        down: dict[int, set[int]] = defaultdict(set)
        for index in targets:
            while index not in live_nodes.nodes:
                user = next(iter(self._users[index]))
                been_there = user in down
                down[user].add(index)
                if been_there:
                    break
                index = user
        pending = [index for index in down if index in live_nodes.nodes]
        for index in pending:  # grows while it is read
            successors = zip(self.nodes[index].next, _next(live_nodes.nodes[index]), strict=True)
            for successor, node in successors:
                if successor in down[index] and successor not in live_nodes.nodes:
                    live_nodes.nodes[successor] = node
                    if successor in down:
                        pending.append(successor)

    def _read(
        self,
        indices: Sequence[int],
        live_nodes: "_LiveNodes",
        tensors: dict[str, torch.Tensor],
        line: int | None,
    ) -> None:
        """Read the state of the nodes ``indices``, new ones of which must be sorted by index."""
        nodes = [live_nodes.nodes[index] for index in indices]
        links = [live_nodes.links.get(index, ()) for index in indices]
        described = describe(nodes, links, self.memory.roles())
        names = {id(tensor): name for name, tensor in reversed(tensors.items())}
        changed = []
        for index, node, now in zip(indices, nodes, described, strict=True):
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


@dataclass
class _LiveNodes:
    """The live nodes that one :meth:`LiveGraph.look` has reached, and those that are new."""

    nodes: dict[int, _torch.LiveNode] = field(default_factory=dict)
    entered: list[int] = field(default_factory=list)
    links: dict[int, list[int]] = field(default_factory=dict)


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


class _Memory:
    """The storages that the live nodes saved, and the variables and leaves that share them."""

    def __init__(self) -> None:
        self._bytes: dict[int, int] = {}  # of each storage that a node holds
        self._holders: dict[int, set[int]] = {}  # of each storage: indices of nodes
        self._held_by: dict[int, set[int]] = {}  # for each node: storages
        self._total = 0
        self._versions: set[tuple[int, int | None]] = set()  # of storages, at the last look
        self._leaves: dict[int, int] = {}  # for each leaf node: the storage of its tensor
        self._inputs: set[int] = set()  # storages
        self.storages: dict[str, tuple[int, int]] = {}  # of each variable: identity and bytes
        self._gradients: dict[int, int] = {}  # of variables: the bytes of each storage
        self._gradients_of_leaves: dict[int, tuple[int, int]] = {}  # by the leaf node

    def look(
        self,
        tensors: Mapping[str, torch.Tensor],
        leaves: Mapping[int, _torch.TensorWeakRef],
        whole: bool,
    ) -> set[int]:
        """Record what refers to each storage; return nodes whose saved memory has a new version."""
        versions = set()
        self._inputs.clear()
        self._gradients.clear()
        self.storages = {}
        for name, tensor in tensors.items():
            storage, _ = self.storages[name] = storage_of(tensor)
            versions.add((storage, _torch.version_of(tensor)))
            if not tensor.requires_grad:
                self._inputs.add(storage)
            if (grad := gradient_of(tensor)) is not None:
                self._gradients.update([storage_of(grad)])
        for index, reference in leaves.items():
            if whole or len(leaves) <= _SMALL or index not in self._leaves:
                leaf = reference()
                self._leaves[index] = storage = storage_of(leaf)[0]
                versions.add((storage, _torch.version_of(leaf)))
                self._gradients_of_leaves.pop(index, None)
                if leaf.grad is not None:
                    self._gradients_of_leaves[index] = storage_of(leaf.grad)
        new = versions - self._versions
        self._versions = versions
        return {index for storage, _ in new for index in self._holders.get(storage, ())}

    def roles(self) -> dict[int, str]:
        """Map each storage of an input or a leaf to its role, ``"input"`` or ``"leaf"``."""
        return dict.fromkeys(self._inputs, "input") | dict.fromkeys(self._leaves.values(), "leaf")

    def hold(self, index: int, node: Node) -> None:
        """Record which storages a node saves now."""
        storages = {
            saved.storage: saved.storage_nbytes
            for saved in node.saved
            if saved.storage is not None and saved.storage_nbytes is not None
        }
        self._release(index, self._held_by.get(index, _NOTHING) - storages.keys())
        self._held_by[index] = set(storages)
        for storage, nbytes in storages.items():
            self._holders.setdefault(storage, set()).add(index)
            self._total += nbytes - self._bytes.get(storage, 0)
            self._bytes[storage] = nbytes

    def remove(self, index: int) -> None:
        self._release(index, self._held_by.pop(index, _NOTHING))
        self._leaves.pop(index, None)
        self._gradients_of_leaves.pop(index, None)

    def _release(self, index: int, storages: Set[int]) -> None:
        for storage in storages:
            self._holders[storage].discard(index)
            if not self._holders[storage]:
                del self._holders[storage]
                self._total -= self._bytes.pop(storage)

    def identities(self) -> Set[int]:
        """Return the identities of all storages that nodes, leaves and variables refer to."""
        named = (storage for storage, _ in self.storages.values())
        return {*self._holders, *self._leaves.values(), *named}

    def held(self) -> tuple[int, int, int]:
        """Return the bytes of activations, leaves and inputs; each storage counts once."""
        leaves = set(self._leaves.values())
        of_leaves = sum(self._bytes.get(storage, 0) for storage in leaves)
        of_inputs = sum(self._bytes.get(storage, 0) for storage in self._inputs - leaves)
        return self._total - of_leaves - of_inputs, of_leaves, of_inputs

    def gradients(self) -> int:
        """Return the bytes of the gradients of variables and leaves; each storage counts once."""
        return sum((dict(self._gradients_of_leaves.values()) | self._gradients).values())


_NOTHING: frozenset[int] = frozenset()
_UNNAMED = "a leaf no variable holds"


def _first_view(part: SavedTensor | Leaf, label: str, role: str, line: int | None) -> TraceTensor:
    nbytes, dtype = part.storage_nbytes or 0, _dtype(part.dtype) or "unknown"
    return TraceTensor(label, tuple(part.shape or ()), dtype, nbytes, role, line)


def _next(node: _torch.LiveNode) -> list[_torch.LiveNode]:
    return [successor for successor, _ in _torch.edges_of(node) if successor is not None]


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
