"""What there is to draw, whoever it was read from: a trace, a snapshot, two snapshots.

A :class:`Scene` knows nodes, the tensors that they saved, and when each of them was there.  The
fold, the layout and the drawing know nothing else, so that all graphs are folded and drawn in one
way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gradtrace.graph import FREED
from gradtrace.steps import Trace

_LONGEST_TITLE = 30  # characters
_LONGEST_NAMES = 18  # of the variables that hold a tensor, together


class SceneNode(NamedTuple):
    """A node of the graph.

    ``order`` is a number that grows from operation to operation, None for leaves.  ``moment`` is
    the step at which the node was first seen, ``line`` the line that had just run; both are None
    where nobody knows.  ``text`` is the number of characters of the longest text that its box will
    ever show, ``rows`` the number of rows below the title.
    """

    name: str
    label: str
    leaf: bool
    next: Sequence[int]
    order: int | None
    moment: int | None
    line: int | None
    text: int
    rows: int


class SceneTensor(NamedTuple):
    """A tensor that is a thing of its own in the picture.

    It is at ``home`` with the node that made it, or else with the first that saved it.  ``savers``
    are the nodes that saved it; ``named`` tells whether a variable ever named it, and ``room`` is
    the number of characters of its names.
    """

    nbytes: int
    home: int
    savers: frozenset[int]
    named: bool
    room: int


@dataclass(frozen=True)
class Scene:
    """Nodes and tensors by index.

    ``tensors`` has None for a leaf's: its box is the tensor.  ``lives`` are, for each node, the
    first and the last moment at which it, or a tensor at home with it, was there.  ``source`` maps
    lines to their text.
    """

    nodes: Sequence[SceneNode]
    tensors: Sequence[SceneTensor | None]
    lives: Sequence[tuple[int, int]]
    source: Mapping[int, str] = field(default_factory=dict)


def clipped(label: str) -> str:
    """What stands at the top of a box.

    >>> clipped("a" * 31)
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaa…'
    """
    return label if len(label) <= _LONGEST_TITLE else label[: _LONGEST_TITLE - 1] + "…"


def scene_of(trace: Trace) -> Scene:
    """Everything that was ever there in a trace."""
    count = len(trace.nodes)
    first, last = [-1] * count, [len(trace.steps)] * count
    texts = [len(clipped(node.label)) for node in trace.nodes]
    for moment, (step, changed, gone) in enumerate(trace.changes()):
        for node in gone:
            last[node] = moment - 1
        for state in changed:
            node = state.node
            if first[node] < 0:
                first[node] = moment
            last[node] = len(trace.steps)
            texts[node] = max(texts[node], _text(trace, node, state.state, state.slots))
        if step.raised is not None and step.raised.node is not None:
            node = step.raised.node
            texts[node] = max(
                texts[node], len(clipped(trace.nodes[node].label)) + len("  ✗ stopped")
            )
    names = _names(trace)
    tensors = _tensors(trace, names)
    lives = list(zip(first, last, strict=True))
    for tensor, (_, begin, end) in names.items():
        if (seen := tensors[tensor]) is not None:
            lives[seen.home] = min(lives[seen.home][0], begin), max(lives[seen.home][1], end)
    nodes = [
        SceneNode(
            node.name,
            node.label,
            node.leaf,
            node.next,
            node.order,
            first[i],
            node.line,
            texts[i],
            sum(not slot.empty for slot in node.slots),
        )
        for i, node in enumerate(trace.nodes)
    ]
    return Scene(nodes, tensors, lives, trace.source)


def _text(trace: Trace, node: int, state: str, slots: Sequence[tuple[str, int | None]]) -> int:
    """The length of the longest text of a node in this state."""
    known = trace.nodes[node]
    longest = len(clipped(known.label)) + (len("  freed") if state == FREED else 0)
    for slot, (now, _) in zip(known.slots, slots, strict=True):
        longest = max(longest, len(f"■ {slot.name}  {now}"))
    return longest


def _names(trace: Trace) -> dict[int, tuple[int, int, int]]:
    """For each tensor that variables name: the length of their names, first and last step."""
    found: dict[int, tuple[int, int, int]] = {}
    for moment, step in enumerate(trace.steps):
        now: dict[int, int] = {}
        for variable in step.variables:
            if variable.tensor is not None:
                before = now.get(variable.tensor, -2)
                now[variable.tensor] = before + 2 + len(variable.name)
        for tensor, length in now.items():
            room, begin, _ = found.get(tensor, (0, moment, moment))
            found[tensor] = max(room, min(length, _LONGEST_NAMES)), begin, moment
    return found


def _tensors(trace: Trace, names: Mapping[int, object]) -> list[SceneTensor | None]:
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
        around = homes[i] | savers[i]
        if tensor.role == "leaf" or not around:
            tensors.append(None)
            continue
        room = names[i][0] if i in names else 0  # type: ignore[index]
        tensors.append(
            SceneTensor(
                tensor.nbytes, min(around, key=made), frozenset(savers[i]), i in names, room
            )
        )
    return tensors
