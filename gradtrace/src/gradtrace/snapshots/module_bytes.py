"""The bytes of a snapshot, module by module."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from gradtrace.autograd.nodes import FREED
from gradtrace.autograd.saved import GraphData
from gradtrace.draw.module_paths import module_paths, topological_order
from gradtrace.snapshots.boxes import activations_of, module_path, scene_of_nodes, storage_owners


class ModuleBytes(NamedTuple):
    """The part of a graph that belongs to one module and the modules inside it.

    ``name`` is as in ``model.named_modules()``, empty for the graph as a whole. ``nodes`` counts
    operations, ``freed`` those whose saved tensors are freed. ``activations`` and ``parameters``
    are bytes; a storage that several operations saved counts once, for the first of them, here and
    in the picture. ``shared`` are bytes of activations that operations of this module saved, too,
    but that count for others: those in ``shared_with`` (an empty name stands for operations of no
    module within the model). An operation without parameters belongs to the innermost module around
    it: the one whose parameters are used before it and after it.
    """

    name: str
    nodes: int
    freed: int
    activations: int
    parameters: int
    shared: int
    shared_with: tuple[str, ...]


def modules(graph: GraphData) -> list[ModuleBytes]:
    """Return the bytes of each module, as in ``Graph.modules``."""
    nodes = graph.nodes
    scene = scene_of_nodes(nodes, [node.next for node in nodes])
    paths = module_paths(scene, topological_order(scene))
    owners = storage_owners(nodes)
    rows: dict[tuple[str, ...], _Row] = defaultdict(_Row)
    for i in sorted(paths, key=lambda i: nodes[i].sequence_nr or 0):
        enclosing = [rows[paths[i][:depth]] for depth in range(len(paths[i]) + 1)]
        for row in enclosing:
            row.nodes += 1
            row.freed += nodes[i].state == FREED
        for storage, nbytes in activations_of(nodes[i]).items():
            owner = paths[owners[storage]]
            for depth, row in enumerate(enclosing):
                if owner[:depth] == paths[i][:depth]:
                    row.activations[storage] = nbytes
                else:
                    row.shared[storage] = nbytes, owner
    counted = set(owners)
    for node in graph.leaves:
        if node.leaf is not None and node.leaf.storage not in counted:
            counted.add(node.leaf.storage)
            path = module_path(node, "")
            for depth in range(len(path) + 1):
                rows[path[:depth]].parameters += node.leaf.storage_nbytes
    return [row.told(".".join(path)) for path, row in rows.items()]


@dataclass
class _Row:
    """The sums of one module: storages with their bytes, and shared storages with their owners."""

    nodes: int = 0
    freed: int = 0
    parameters: int = 0
    activations: dict[int, int] = field(default_factory=dict)
    shared: dict[int, tuple[int, tuple[str, ...]]] = field(default_factory=dict)

    def told(self, name: str) -> ModuleBytes:
        own_bytes, shared = sum(self.activations.values()), self.shared.values()
        return ModuleBytes(
            name,
            self.nodes,
            self.freed,
            own_bytes,
            self.parameters,
            sum(nbytes for nbytes, _ in shared),
            tuple(dict.fromkeys(".".join(owner) for _, owner in shared)),
        )
