"""A view of a graph with the place of everything in it, and the measures of its text and gaps."""

from __future__ import annotations

from dataclasses import dataclass

# In the units of an SVG whose text is 12 px of a monospaced font.
CHARACTER = 7.3
LINE = 16
PADDING = 8
SMALL = 6.1  # a character of what is written below a box, 10 px
BESIDE = 7.0  # from the edge that arrives below a box to this text
ARROW_FOOT = 7.0  # below a box, for the head of the arrow that arrives there
LABELLED_FOOT = 13.0  # the same with a text beside it
END_FOOT = 16.0  # below a box that nothing builds on
FRAME = 10.0  # above and below the rows of a box, together
GAP_X, GAP_Y = 16, 9
WIDEST_LAYER = 640.0  # of a row, where it can be broken
PANEL = (670.0, 780.0)  # width and height that can be read at once, on a page of 1440 × 900
DUMMY_WIDTH = 8.0
TURN = 36.0  # between two columns, and above and below them: for edges from one to the next
LANE = 6.0
TO_TENSOR = 28.0  # from a box to its things: room for the strings
NAMES = 9.0  # from a tensor to the names of its variables
BETWEEN_TENSORS = 6.0


@dataclass
class Box:
    """A rectangle for a node, a leaf, a group, or for what lies outside of an open group.

    ``x``, ``y`` is its upper left corner.  ``nodes`` are indices in the scene, ``view`` is the
    index of the view that a click leads to, ``rows`` the number of rows below the title.  ``made``
    are the shapes of what it hands on last, to be written below it; ``end`` tells that nothing
    builds on that.
    """

    kind: str
    title: str
    nodes: list[int]
    view: int | None
    rows: int
    width: float
    height: float
    made: str = ""
    end: bool = False
    x: float = 0.0
    y: float = 0.0


@dataclass
class Thing:
    """A tensor (index in the scene), at home with box ``box``.

    Its area grows with its bytes; to the right is ``room`` for the names of variables, which begin
    :data:`NAMES` from it.
    """

    tensor: int
    box: int
    width: float
    height: float
    room: float
    x: float = 0.0
    y: float = 0.0


@dataclass
class Edge:
    """A line in the direction of backward, from box to box (indices) by way of ``bends``."""

    start: int
    end: int
    bends: list[tuple[float, float]]


@dataclass
class Drawing:
    """One view with the place of everything; ``parent`` is the index of the view around it.

    ``like`` is the same number for drawings of the same kinds of boxes in the same places.
    """

    title: str
    parent: int | None
    width: float
    height: float
    boxes: list[Box]
    things: list[Thing]
    edges: list[Edge]
    like: int


def label_below(box: Box) -> str:
    """What is written below a box, right of its middle: the shape of what it hands on."""
    return f"output {box.made}".rstrip() if box.end else box.made
