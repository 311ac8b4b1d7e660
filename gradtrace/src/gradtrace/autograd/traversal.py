"""Traverse the live graph from tensors to nodes, and from each node to those of its inputs.

Autograd links the result of every recorded operation to a *node* (``tensor.grad_fn``), and every
node to the nodes that computed its inputs (``node.next_functions``).
"""

import gc
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from graphlib import TopologicalSorter
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from gradtrace import _torch


def root_node(tensor: torch.Tensor) -> _torch.LiveNode:
    """Return the node at which backward from ``tensor`` starts; AccumulateGrad for a leaf."""
    if (node := _torch.grad_fn_of(tensor)) is not None:
        return node
    # get_gradient_edge takes a view, which these refuse, or some of them.
    if tensor.is_nested or tensor.layout is not torch.strided:
        with torch.enable_grad():
            copied: _torch.LiveNode = tensor.clone().grad_fn
        return copied.next_functions[0][0]
    with torch.inference_mode(False):  # in which no operation has a node
        return get_gradient_edge(tensor).node


def roots_of(
    outputs: torch.Tensor | Iterable[torch.Tensor | GradientEdge],
) -> list[_torch.LiveNode]:
    """Return the nodes at which backward starts from ``outputs``, except those without a graph."""
    outputs = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
    return [
        root_node(output) if isinstance(output, torch.Tensor) else output.node
        for output in outputs
        if not isinstance(output, torch.Tensor) or _has_node(output)
    ]


def _has_node(tensor: torch.Tensor) -> bool:
    """Whether a graph can hold the tensor: one created in inference mode is in none."""
    if not tensor.requires_grad or tensor.is_inference():
        return False
    return not _torch.is_leaf_of_transform(tensor)


def walk(roots: Iterable[_torch.LiveNode]) -> tuple[list[_torch.LiveNode], list[list[int]]]:
    """Return all nodes that ``roots`` reach, breadth first, and the indices of their successors."""
    live = list(dict.fromkeys(roots))
    index = {node: i for i, node in enumerate(live)}
    links: list[list[int]] = []
    for node in live:  # grows while it is read
        successors = []
        for successor, _ in _torch.edges_of(node):
            if successor is not None:
                i = index.get(successor)
                if i is None:
                    i = index[successor] = len(live)
                    live.append(successor)
                successors.append(i)
        links.append(successors)
    return live, links


def leaves_of(nodes: Iterable[_torch.LiveNode]) -> list[torch.Tensor]:
    """Return the tensors of the leaves among these nodes."""
    return [node.variable for node in nodes if isinstance(node, _torch.LEAF)]


def leaves_within(depth: int, node: _torch.LiveNode) -> frozenset[_torch.LiveNode]:
    """Return the nodes of the leaves that at most ``depth`` links separate from a node."""
    leaves: set[_torch.LiveNode] = set()
    pending = [(node, 0)]
    for current, distance in pending:  # grows while it is read
        if isinstance(current, _torch.LEAF):
            leaves.add(current)
        elif distance < depth:
            inputs = (n for n, _ in _torch.edges_of(current) if n is not None)
            pending.extend((n, distance + 1) for n in inputs)
    return frozenset(leaves)


def users_of(links: Sequence[Sequence[int]]) -> list[list[int]]:
    """Invert the links of :func:`walk`: return for each node the nodes that use it."""
    users: list[list[int]] = [[] for _ in links]
    for i, successors in enumerate(links):
        for j in successors:
            users[j].append(i)
    return users


def leading_to(targets: Iterable[int], users: Sequence[Sequence[int]]) -> set[int]:
    """Return the indices of the nodes from which a path leads to one of ``targets``.

    >>> sorted(leading_to([2], users_of([[1, 2], [2], []])))
    [0, 1]
    """
    return reachable(users, (user for target in targets for user in users[target]))


def reachable(
    links: Sequence[Sequence[int]], starts: Iterable[int], blocked: Collection[int] = ()
) -> set[int]:
    """Return ``starts`` and all indices reachable from them without passing a blocked node."""
    visited = {*starts}
    pending = list(visited)
    for i in pending:  # grows while it is read
        for j in links[i] if i not in blocked else ():
            if j not in visited:
                visited.add(j)
                pending.append(j)
    return visited


class NodeGraph:
    """The nodes from which some tensors were computed, with their links, users and leaves."""

    def __init__(self, outputs: Any):
        self.live, self.links = walk(roots_of(outputs))

    @cached_property
    def users(self) -> list[list[int]]:
        return users_of(self.links)

    @cached_property
    def leaves(self) -> dict[int, torch.Tensor]:
        """The leaves, by their indices among the nodes."""
        nodes = enumerate(self.live)
        return {i: node.variable for i, node in nodes if isinstance(node, _torch.LEAF)}

    @cached_property
    def numbers(self) -> dict[int, int]:
        """The indices of the operations among the nodes, by their sequence numbers."""
        nodes = enumerate(self.live)
        return {_torch.sequence_nr(node): i for i, node in nodes if i not in self.leaves}


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector, which would scan a traversal's growing lists repeatedly."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Disable the program's modes and tensor subclasses, so that reading runs none of its code."""
    with (
        no_garbage_collection(),
        _torch.no_torch_function(),
        _torch.no_dispatch_modes(),
        torch.inference_mode(False),
    ):
        yield


def sources(
    owners: Mapping[int, Collection[int]], links: Sequence[Sequence[int]]
) -> list[set[int]]:
    """Return, for each node, the owners of all leaves that it reaches."""
    visited: list[set[int]] = [set(owners.get(i, ())) for i in range(len(links))]
    for i in leaves_first(links):
        visited[i].update(*(visited[j] for j in links[i]))
    return visited


def upstream(
    owners: Mapping[int, Collection[int]], links: Sequence[Sequence[int]]
) -> set[tuple[int, int]]:
    """Return the pairs of owners (x, y) where an operation on y's leaves uses a result of x's."""
    visited = sources(owners, links)
    pairs = set()
    for successors in links:
        for j in successors:
            chain = j
            while len(links[chain]) == 1:  # a transposed weight
                chain = links[chain][0]
            inputs = set().union(*(visited[k] for k in successors if k != j), set())
            pairs |= {(x, y) for x in inputs for y in owners.get(chain, ()) if x != y}
    return pairs


def leaves_first(links: Sequence[Sequence[int]]) -> Iterable[int]:
    """Return the nodes in an order in which each comes after its inputs."""
    return TopologicalSorter(dict(enumerate(links))).static_order()
