"""The input of every drawing, whether it comes from a trace or a snapshot.

The fold, the layout and the drawing depend on nothing else, so all graphs are drawn alike.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from gradtrace.autograd.traversal import users_of

_LONGEST_TITLE = 32  # characters


class Scope(NamedTuple):
    """A part of the program in which operations were created.

    ``kind`` is ``"loop"``, ``"iteration"``, ``"line"``, ``"module"`` or ``"layer"`` (of a recurrent
    module). ``number`` tells scopes of one kind apart: the run of a loop and its iteration (from
    1), the step of a line, the call of a module, the name of a layer. ``line`` is that of a loop's
    header, or the line itself; ``path`` is the path of a module, part by part.
    """

    kind: str
    number: int | str | None
    line: int | None = None
    path: tuple[str, ...] = ()


class SceneNode(NamedTuple):
    """A node of the graph.

    ``order`` grows from operation to operation and is None for leaves. ``moment`` is the step at
    which the node was first seen, ``line`` the line that had just run. ``text`` is the length of
    the longest text that its box will ever show besides the label, ``rows`` the number of rows
    below the title. ``module`` is the path of the module that a leaf is a parameter of. ``scopes``
    are those of an operation, outermost first, ``outputs`` the shapes of its results as text.
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
    scopes: tuple[Scope, ...] = ()
    outputs: str = ""


class SceneTensor(NamedTuple):
    """A tensor that the drawing shows as a separate rectangle.

    Its ``home`` is the node that created it, or else the first that saved it. ``savers`` are the
    nodes that saved it; ``named`` is True if a variable ever named it, and ``room`` is the length
    of its names. ``data`` is True for plain data, which the program keeps alive independently of
    the graph from the first to the last moment of ``life``.
    """

    nbytes: int
    home: int
    savers: frozenset[int]
    named: bool = False
    room: int = 0
    data: bool = False
    life: tuple[int, int] | None = None


@dataclass(frozen=True)
class Scene:
    """The nodes and tensors to draw; each is identified by its index.

    ``tensors`` has None for a tensor that gets no rectangle: a leaf's, which the leaf's own box
    shows, or one that no node created or saved. ``lives`` holds, for each node, the first and the
    last moment at which it, or a tensor whose home it is, existed; plain data does not count.
    ``source`` maps lines to their text. ``calls_known`` is True if calls of modules were recorded.
    """

    nodes: Sequence[SceneNode]
    tensors: Sequence[SceneTensor | None]
    lives: Sequence[tuple[int, int]]
    source: Mapping[int, str] = field(default_factory=dict)
    calls_known: bool = False

    @cached_property
    def users(self) -> list[list[int]]:
        """For each node, the indices of the nodes that have it as an input."""
        return users_of([node.next for node in self.nodes])


DOT = re.compile(r"\.(?![^\[]*\])")  # not one inside of brackets


def module_of(label: str) -> tuple[str, ...]:
    """Return the path of the module that a parameter of this name belongs to.

    >>> module_of("model.layers.3.weight"), module_of("x"), module_of("nets['a.b'].bias")
    (('model', 'layers', '3'), (), ("nets['a.b']",))
    """
    return tuple(DOT.split(label)[:-1])


def clipped(label: str, more: int = 0) -> str:
    """Shorten a label to the width of a box that has room for ``more`` characters after it."""
    longest = _LONGEST_TITLE - more
    return label if len(label) <= longest else label[: longest - 1] + "…"
