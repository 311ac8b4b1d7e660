"""The order of the operations, and the module of each operation if no calls were recorded."""

import heapq
from collections.abc import Sequence
from graphlib import TopologicalSorter

from gradtrace.draw.groups import common_prefix
from gradtrace.draw.scene import Scene


def topological_order(scene: Scene) -> list[int]:
    """Return the operations, inputs before users, else in the order of their creation."""
    operations = [i for i, node in enumerate(scene.nodes) if not node.leaf]
    operations.sort(key=lambda i: scene.nodes[i].order or 0)
    place = {node: k for k, node in enumerate(operations)}
    inputs = [[place[j] for j in scene.nodes[i].next if j in place] for i in operations]
    if all(j < k for k, places in enumerate(inputs) for j in places):
        return operations
    # Each thread counts its own operations, and backward may have run in several.
    sorter = TopologicalSorter(dict(enumerate(inputs)))
    sorter.prepare()
    ready: list[int] = []
    ordered = []
    while sorter.is_active():
        for k in sorter.get_ready():
            heapq.heappush(ready, k)
        k = heapq.heappop(ready)
        ordered.append(operations[k])
        sorter.done(k)
    return ordered


def infer_module_paths(scene: Scene, order: list[int]) -> dict[int, tuple[str, ...]]:
    """Infer each operation's module path, () outside all modules, from the parameters around it."""
    direct = parameter_modules(scene, order)

    def nearest(row: Sequence[int]) -> dict[int, tuple[str, ...]]:
        """Map each operation to its module, or else to the last module before it on its line."""
        nearest_paths: dict[int, tuple[str, ...]] = {}
        path: tuple[str, ...] = ()
        line: int | None = None
        for i in row:
            if scene.nodes[i].line != line:
                line, path = scene.nodes[i].line, ()
            path = nearest_paths[i] = direct.get(i, path)
        return nearest_paths

    preceding, following = nearest(order), nearest(order[::-1])
    paths = {
        i: direct[i] if i in direct else common_prefix([preceding[i], following[i]]) for i in order
    }
    _align_tails(scene, order, direct, paths)
    return paths


def parameter_modules(scene: Scene, order: list[int]) -> dict[int, tuple[str, ...]]:
    """Map each operation with parameters among its inputs to the module that contains them."""
    modules: dict[int, tuple[str, ...]] = {}
    for i in order:
        if used := [path for j in scene.nodes[i].next if (path := scene.nodes[j].module)]:
            modules[i] = common_prefix(used)
    return modules


def _align_tails(
    scene: Scene,
    order: list[int],
    own: dict[int, tuple[str, ...]],
    paths: dict[int, tuple[str, ...]],
) -> None:
    """Assign operations after a stack's last layer to that layer if they end the others, too."""
    tails: list[tuple[int, list[int]]] = []
    for i in order:
        if i in own:
            tails.append((i, []))
        elif tails and scene.nodes[i].line == scene.nodes[tails[-1][0]].line:
            tails[-1][1].append(i)
    patterns: dict[tuple[str, ...], tuple[int, int, tuple[str, ...]]] = {}
    for begin, tail in tails:
        key = _stack_key(scene, begin, own[begin])
        if tail and (depth := len(paths[tail[0]])):
            pattern = depth, len(tail), tuple(scene.nodes[i].name for i in tail)
            patterns[key] = max(patterns.get(key, pattern), pattern)
    for begin, tail in tails:
        depth, length, names = patterns.get(_stack_key(scene, begin, own[begin]), (0, 0, ()))
        matching = len(common_prefix([names, tuple(scene.nodes[i].name for i in tail)]))
        if 2 * matching > length and len(paths[tail[0]]) < depth:  # the next layer may begin in it
            paths.update(dict.fromkeys(tail[:matching], own[begin][:depth]))


def _stack_key(scene: Scene, node: int, path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the module and the operation as a key that is equal for all layers of a stack."""
    return (*("" if part.isdecimal() else part for part in path), scene.nodes[node].name)
