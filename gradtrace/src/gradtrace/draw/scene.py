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
    """A part of the program in which operations were created."""

    kind: str  # "loop", "iteration", "line", "module", or "layer" of a recurrent module
    number: int | str | None  # which run, iteration (from 1), step or call, or the layer's name
    line: int | None = None  # of a loop's header, or the line itself
    path: tuple[str, ...] = ()  # of a module, part by part


class SceneNode(NamedTuple):
    """A node of the graph."""

    name: str
    label: str
    leaf: bool
    next: Sequence[int]
    order: int | None  # grows from operation to operation; None for leaves
    moment: int | None  # the step at which the node was first seen
    line: int | None  # the line that had just run then
    text: int  # characters of the longest text that its box ever shows besides the label
    rows: int  # below the title
    module: tuple[str, ...] = ()  # the path of the module that a leaf is a parameter of
    scopes: tuple[Scope, ...] = ()  # of an operation, outermost first
    outputs: str = ""  # the shapes of its results


class SceneTensor(NamedTuple):
    """A tensor that the drawing shows as a separate rectangle."""

    nbytes: int
    home: int  # the node that created it, or else the first that saved it
    savers: frozenset[int]  # the nodes that saved it
    named: bool = False  # whether a variable ever named it
    room: int = 0  # the number of characters of its names
    data: bool = False  # plain data, which the program keeps alive independently of the graph
    life: tuple[int, int] | None = None  # the first and the last moment at which it does


@dataclass(frozen=True)
class Scene:
    """The nodes and tensors to draw; each is identified by its index.

    ``tensors`` has None for a tensor that gets no rectangle: a leaf's, which the leaf's own box
    shows, or one that no node created or saved. ``lives`` holds, for each node, the first and the
    last moment at which it, or a tensor whose home it is, existed; plain data does not count.
    """

    nodes: Sequence[SceneNode]
    tensors: Sequence[SceneTensor | None]
    lives: Sequence[tuple[int, int]]
    source: Mapping[int, str] = field(default_factory=dict)  # the text of each line
    calls_known: bool = False  # whether calls of modules were recorded

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
