"""A view after layout, with all coordinates, and the sizes of text and gaps."""

from dataclasses import dataclass

# In the units of an SVG whose text is 12 px of a monospaced font.
CHARACTER = 7.3
LINE = 16
PADDING = 8
SMALL = 6.1  # the width of a character below a box, 10 px
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
TO_TENSOR = 28.0  # from a box to its tensors: room for the references
NAMES = 9.0  # from a tensor to the names of its variables
BETWEEN_TENSORS = 6.0


@dataclass
class Box:
    """A rectangle for a node, a leaf or a group, or a stub for the neighbours of an open group."""

    kind: str
    title: str
    nodes: list[int]  # indices in the scene
    view: int | None  # the index of the view that a click opens
    rows: int  # below the title
    width: float
    height: float
    outputs: str = ""  # the shapes of its last result, written below it
    end: bool = False  # whether nothing uses that result
    x: float = 0.0  # of the left edge
    y: float = 0.0  # of the upper edge


@dataclass
class TensorBox:
    """A rectangle for a tensor, drawn to the right of its home ``box``."""

    tensor: int  # an index in the scene
    box: int
    width: float
    height: float
    room: float  # on its right, for the names of variables
    x: float = 0.0
    y: float = 0.0


@dataclass
class Edge:
    """A polyline with ``bends`` from box to box (indices), in the direction of backward."""

    start: int
    end: int
    bends: list[tuple[float, float]]


@dataclass
class Drawing:
    """A view with all coordinates; ``parent`` is the index of the enclosing view."""

    title: str
    parent: int | None
    width: float
    height: float
    boxes: list[Box]
    tensors: list[TensorBox]
    edges: list[Edge]


def label_below(box: Box) -> str:
    """Return the text below a box: the shapes of its last result, marked "output" if unused."""
    return f"output {box.outputs}".rstrip() if box.end else box.outputs
