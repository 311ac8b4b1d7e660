"""The order of the operations, and the module that each belongs to where no call was seen."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence

from gradtrace.draw.groups import common_prefix
from gradtrace.draw.scene import Scene


def topological_order(scene: Scene) -> list[int]:
    """The operations, each after those that it builds on, as far as possible as they were made."""
    operations = [i for i, node in enumerate(scene.nodes) if not node.leaf]
    operations.sort(key=lambda i: scene.nodes[i].order or 0)
    place = {node: k for k, node in enumerate(operations)}
    if all(
        place[j] < k for k, i in enumerate(operations) for j in scene.nodes[i].next if j in place
    ):
        return operations
    # Each thread counts its own operations, and backward may have run in several.
    users: dict[int, list[int]] = defaultdict(list)
    waits_for = {i: sum(j in place for j in scene.nodes[i].next) for i in operations}
    for i in operations:
        for j in scene.nodes[i].next:
            if j in place:
                users[j].append(i)
    ready = [(place[i], i) for i in operations if not waits_for[i]]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, i = heapq.heappop(ready)
        ordered.append(i)
        for user in users[i]:
            waits_for[user] -= 1
            if not waits_for[user]:
                heapq.heappush(ready, (place[user], user))
    return ordered


def modules_of(scene: Scene) -> dict[int, tuple[str, ...]]:
    """The module that each operation belongs to; those of no module have an empty one."""
    return module_paths(scene, topological_order(scene))


def module_paths(scene: Scene, order: list[int]) -> dict[int, tuple[str, ...]]:
    """The module of each operation."""
    own = parameter_modules(scene, order)

    def nearest(row: Sequence[int]) -> dict[int, tuple[str, ...]]:
        """For each operation the module of the last one before that has any, made by this line."""
        found: dict[int, tuple[str, ...]] = {}
        path: tuple[str, ...] = ()
        line: int | None = None
        for i in row:
            if scene.nodes[i].line != line:
                line, path = scene.nodes[i].line, ()
            path = found[i] = own.get(i, path)
        return found

    before, after = nearest(order), nearest(order[::-1])
    paths = {i: own[i] if i in own else common_prefix([before[i], after[i]]) for i in order}
    _align_tails(scene, order, own, paths)
    return paths


def parameter_modules(scene: Scene, order: list[int]) -> dict[int, tuple[str, ...]]:
    """The module of the parameters that an operation uses."""
    own: dict[int, tuple[str, ...]] = {}
    for i in order:
        used = [scene.nodes[j].module for j in scene.nodes[i].next if scene.nodes[j].leaf]
        used = [path for path in used if path]
        if used:
            own[i] = common_prefix(used)
    return own


def _align_tails(
    scene: Scene,
    order: list[int],
    own: dict[int, tuple[str, ...]],
    paths: dict[int, tuple[str, ...]],
) -> None:
    """What follows the last of several layers belongs to them as what follows the others does."""
    tails: list[tuple[int, list[int]]] = []
    for i in order:
        if i in own:
            tails.append((i, []))
        elif tails and scene.nodes[i].line == scene.nodes[tails[-1][0]].line:
            tails[-1][1].append(i)
    known: dict[tuple[str, ...], tuple[int, int, list[str]]] = {}  # depth, length, operations
    for begin, tail in tails:
        key = _stack_key(scene, begin, own[begin])
        if tail and (depth := len(paths[tail[0]])):
            found = depth, len(tail), [scene.nodes[i].name for i in tail]
            known[key] = max(known.get(key, found), found)
    for begin, tail in tails:
        depth, length, names = known.get(_stack_key(scene, begin, own[begin]), (0, 0, []))
        alike = 0
        while alike < min(length, len(tail)) and scene.nodes[tail[alike]].name == names[alike]:
            alike += 1
        if 2 * alike > length and len(paths[tail[0]]) < depth:  # the next layer may begin in it
            paths.update(dict.fromkeys(tail[:alike], own[begin][:depth]))


def _stack_key(scene: Scene, node: int, path: tuple[str, ...]) -> tuple[str, ...]:
    """The module and the operation, the same for all layers of a stack."""
    return (*("" if part.isdecimal() else part for part in path), scene.nodes[node].name)
