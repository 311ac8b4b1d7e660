"""The :class:`~gradtrace.draw.scene.Scene` of a trace."""

import ast
from collections import defaultdict
from collections.abc import Mapping

from gradtrace.draw.scene import DOT, Scene, SceneNode, SceneTensor, Scope, clipped, module_of
from gradtrace.tracing.function_source import parsed
from gradtrace.tracing.steps import TraceData, TraceNode

_LONGEST_VALUES = 30  # characters of a leaf's value and of its gradient

_LONGEST_NAMES = 22  # characters of the variables that hold a tensor, together: "a, b and c"


def scene_of(trace: TraceData) -> Scene:
    """Return the scene of all nodes and tensors that ever existed in a trace."""
    count = len(trace.nodes)
    first, last = [-1] * count, [len(trace.steps)] * count
    leaf_rows = _leaf_rows(trace)
    for moment, step in enumerate(trace.steps):
        changed_nodes = {state.node for inner in step.inside for state in inner.changed}
        for node in changed_nodes:
            if first[node] < 0:
                first[node] = last[node] = moment
        for node in step.gone:
            last[node] = moment - 1
        for state in step.changed:
            node = state.node
            if first[node] < 0:
                first[node] = moment
            last[node] = len(trace.steps)
    names = _names(trace)
    tensors = _tensors(trace, names)
    lives = list(zip(first, last, strict=True))
    for tensor, (_, begin, end) in names.items():
        if (place := tensors[tensor]) is not None and not place.data:
            lives[place.home] = min(lives[place.home][0], begin), max(lives[place.home][1], end)
    loops = _loops(trace)
    calls = _calls(trace)
    nodes = [
        SceneNode(
            node.name,
            node.label,
            node.leaf,
            node.next,
            node.order,
            first[i],
            node.line,
            max(leaf_rows[i]) if node.leaf else _longest_text(node),
            len(leaf_rows[i]) if node.leaf else sum(not slot.empty for slot in node.slots),
            module_of(node.label) if node.leaf else (),
            ()
            if node.leaf
            else (
                *loops[first[i]],
                Scope("line", first[i], node.line),
                *(calls[node.call] if node.call is not None else ()),
            ),
            node.made,
        )
        for i, node in enumerate(trace.nodes)
    ]
    return Scene(nodes, tensors, lives, trace.source, bool(calls))


def _leaf_rows(trace: TraceData) -> dict[int, list[int]]:
    """Map each leaf to the longest text's length in each row: bytes and value, and gradient."""
    without_value = len("999.9 MB")
    rows = {i: [without_value] for i, node in enumerate(trace.nodes) if node.leaf}
    for step in (inner for line in trace.steps for inner in (*line.inside, line)):
        for variable in step.variables:
            if variable.node is None or not variable.leaf:
                continue
            row = rows[variable.node]
            if variable.value and not variable.value.startswith("norm"):
                length = len(variable.value[:_LONGEST_VALUES].rstrip())
                row[0] = max(row[0], without_value + len("  ") + length)
            if variable.grad is not None:
                length = len("∇ ") + min(len(variable.grad), _LONGEST_VALUES)
                row[1:] = [max(length, *row[1:], 0)]
    return rows


def _calls(trace: TraceData) -> list[tuple[Scope, ...]]:
    """Map each call of a module to its scopes: the surrounding ones, and its own.

    A module that contains others without being called, such as a ``ModuleList``, is a scope, too.
    """
    scopes_by_call: list[tuple[Scope, ...]] = []
    for number, (name, parent) in enumerate(trace.calls):
        path = (*module_of(name), DOT.split(name)[-1])
        enclosing = scopes_by_call[parent] if parent is not None else ()
        prefix = enclosing[-1].path if enclosing else ()
        begin = len(prefix) + 1 if path[: len(prefix)] == prefix else len(path)
        holders = [Scope("module", None, None, path[:k]) for k in range(begin, len(path))]
        scopes_by_call.append((*enclosing, *holders, Scope("module", number, None, path)))
    return scopes_by_call


def _loops(trace: TraceData) -> list[tuple[Scope, ...]]:
    """Return, for each step, the loops and iterations around the line that ran, outermost first.

    An iteration begins with the loop's header, or, as in ``while True``, with its first line.
    """
    loops = sorted(
        (node.lineno, node.body[0].lineno, node.body[-1].end_lineno or node.lineno)
        for node in ast.walk(parsed(trace.source))
        if isinstance(node, ast.For | ast.While)
    )
    entries, counts = [0] * len(loops), [0] * len(loops)
    scopes_by_step: list[tuple[Scope, ...]] = []
    previous = None
    for step in trace.steps:
        scopes: list[Scope] = []
        for k, (head, begin, end) in enumerate(loops):
            line = step.ran
            if line is None or not head <= line <= end:
                continue
            if previous is None or not head <= previous <= end:
                entries[k], counts[k] = entries[k] + 1, 0
            nested = any(inner == begin for inner, _, _ in loops)
            body_again = line == begin and previous != head and not nested
            if line == head or body_again or counts[k] == 0:
                counts[k] += 1
            if line != head or head == begin:
                scopes += [Scope("loop", entries[k], head), Scope("iteration", counts[k], head)]
        previous = step.ran
        scopes_by_step.append(tuple(scopes))
    return scopes_by_step


def _longest_text(node: TraceNode) -> int:
    """Return the length of the longest text that a box of this node ever has."""
    slots = [len(slot.name) + len("  ▲ v1 ≠ v0") for slot in node.slots if not slot.empty]
    return max(len(clipped(node.label)) + len("  freed"), *slots, 0)


def _names(trace: TraceData) -> dict[int, tuple[int, int, int]]:
    """Map each tensor that variables name to its longest label's length, first and last step."""
    rooms: dict[int, tuple[int, int, int]] = {}
    for moment, step in enumerate(trace.steps):
        now: dict[int, list[str]] = defaultdict(list)
        for variable in step.variables:
            if variable.tensor is not None:
                now[variable.tensor].append(variable.name)
        for tensor, names in now.items():
            length = len(", ".join(names)) + (len(" and ") - len(", ")) * (len(names) > 1)
            room, begin, _ = rooms.get(tensor, (0, moment, moment))
            rooms[tensor] = max(room, min(length, _LONGEST_NAMES)), begin, moment
    return rooms


def _tensors(
    trace: TraceData, names: Mapping[int, tuple[int, int, int]]
) -> list[SceneTensor | None]:
    savers: list[set[int]] = [set() for _ in trace.tensors]
    homes: list[set[int]] = [set() for _ in trace.tensors]
    for i, node in enumerate(trace.nodes):
        for slot in node.slots:
            if slot.tensor is not None:
                savers[slot.tensor].add(i)
    for step in trace.steps:
        for variable in step.variables:
            if variable.tensor is not None and variable.node is not None:
                homes[variable.tensor].add(variable.node)

    def made(node: int) -> int:
        order = trace.nodes[node].order
        return -1 if order is None else order

    tensors: list[SceneTensor | None] = []
    for i, tensor in enumerate(trace.tensors):
        neighbours = homes[i] | savers[i]
        if tensor.role == "leaf" or not neighbours:
            tensors.append(None)
            continue
        room, *life = names.get(i, (0,))
        data = tensor.role == "input"
        tensors.append(
            SceneTensor(
                tensor.nbytes,
                min(neighbours, key=made),
                frozenset(savers[i]),
                i in names,
                room,
                data,
                (life[0], life[1]) if data and life else None,
            )
        )
    return tensors
