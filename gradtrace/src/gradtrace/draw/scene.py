"""What there is to draw, whoever it was read from: a trace, a snapshot, two snapshots.

A :class:`Scene` knows nodes, the tensors that they saved, and when each of them was there.  The
fold, the layout and the drawing know nothing else, so that all graphs are folded and drawn in one
way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_LONGEST_TITLE = 32  # characters


class Place(NamedTuple):
    """Something within which operations were made.

    ``kind`` is ``"loop"``, ``"iteration"``, ``"line"``, ``"module"`` or ``"layer"`` (of a recurrent
    module).  ``number`` tells it from others of its kind: of a line the step, of an iteration its
    count from 1, of a module the call.  ``line`` is that of a loop's head, or the line itself;
    ``path`` the module's, part by part.
    """

    kind: str
    number: int | str | None
    line: int | None = None
    path: tuple[str, ...] = ()


class SceneNode(NamedTuple):
    """A node of the graph.

    ``order`` is a number that grows from operation to operation, None for leaves.  ``moment`` is
    the step at which the node was first seen, ``line`` the line that had just run; both are None
    where nobody knows.  ``text`` is the number of characters of the longest text that its box will
    ever show beside its label, ``rows`` the number of rows below the title.  ``module`` is the one
    that a leaf is a parameter of, part by part.  ``places`` are what an operation was made in,
    outermost first.  ``made`` are the shapes of what it made, as text.
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
    module: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    made: str = ""


class SceneTensor(NamedTuple):
    """A tensor that is a thing of its own in the picture.

    It is at ``home`` with the node that made it, or else with the first that saved it.  ``savers``
    are the nodes that saved it; ``named`` tells whether a variable ever named it, and ``room`` is
    the number of characters of its names.  ``data`` is True for plain data, which the program holds
    whatever the graph does; ``life`` are the first and the last moment at which it does so.
    """

    nbytes: int
    home: int
    savers: frozenset[int]
    named: bool
    room: int
    data: bool = False
    life: tuple[int, int] | None = None


@dataclass(frozen=True)
class Scene:
    """Nodes and tensors by index.

    ``tensors`` has None for a leaf's: its box is the tensor.  ``lives`` are, for each node, the
    first and the last moment at which it, or a tensor at home with it, was there, plain data aside.
    ``source`` maps lines to their text.  ``calls_known`` tells that the places of nodes include the
    modules whose calls made them.
    """

    nodes: Sequence[SceneNode]
    tensors: Sequence[SceneTensor | None]
    lives: Sequence[tuple[int, int]]
    source: Mapping[int, str] = field(default_factory=dict)
    calls_known: bool = False


DOT = re.compile(r"\.(?![^\[]*\])")  # not one inside of brackets


def module_of(label: str) -> tuple[str, ...]:
    """The module that a parameter of this name belongs to.

    >>> module_of("model.layers.3.weight"), module_of("x"), module_of("nets['a.b'].bias")
    (('model', 'layers', '3'), (), ("nets['a.b']",))
    """
    return tuple(DOT.split(label)[:-1])


def clipped(label: str, more: int = 0) -> str:
    """What stands at the top of a box, where there is room for ``more`` characters behind it.

    >>> clipped("a" * 33)
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…'
    """
    longest = _LONGEST_TITLE - more
    return label if len(label) <= longest else label[: longest - 1] + "…"
