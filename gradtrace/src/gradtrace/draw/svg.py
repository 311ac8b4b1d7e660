"""A drawing as SVG that needs nothing else: no script, no font, no style of the page.

Text and lines take the colour of the surrounding text, so the drawing suits a light and a dark
page. No meaning is expressed by colour alone: a freed node is dashed and its title says so.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

from gradtrace.draw.drawing import (
    BESIDE,
    CHARACTER,
    LINE,
    PADDING,
    Box,
    Drawing,
    Edge,
    TensorBox,
    label_below,
)

BLUE = "#3b7dd8"
_MARGIN = 4.0
_BASELINE = 20.0  # of the title, below the top of its box


class Face(NamedTuple):
    """The content of a box; ``holds`` has, for each row, the index of the tensor it refers to."""

    title: str
    rows: Sequence[str]
    holds: Sequence[int | None] = ()
    dashed: bool = False


def size(nbytes: int) -> str:
    """Format a number of bytes as the player does (``bytes`` in ``dom.js``); a kB is 1000 B.

    >>> size(12), size(512_000), size(3_145_728), size(1_250)
    ('12 B', '512 kB', '3.1 MB', '1.3 kB')
    """
    value, unit = float(nbytes), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = Decimal("0.1" if unit and value < 99.95 else "1")
    text = str(Decimal(value).quantize(digits, ROUND_HALF_UP))
    return f"{text.removesuffix('.0')} {_UNITS[unit]}"


_UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass
class Picture:
    """A drawing with its content: the face of each box, and the text of each tensor by index."""

    drawing: Drawing
    faces: Sequence[Face]
    texts: Mapping[int, str]
    homes: Mapping[int, int]  # for each tensor, the box at which references end if it is not drawn

    def svg(self, title: str, description: str, standalone: bool = False) -> str:
        """Return the picture as SVG text with ``title`` as its accessible name.

        A ``standalone`` SVG, for a file, also contains ``description`` and its own colours.
        """
        drawing, faces = self.drawing, self.faces
        width, height = drawing.width + 2 * _MARGIN, drawing.height + 2 * _MARGIN
        name, begins = f' aria-label="{html.escape(title)}"', _LEFT_OUT
        if standalone:
            name = ""
            begins = f"<title>{html.escape(title)}</title><desc>{html.escape(description)}</desc>"
            begins += _STYLE
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img"{name} '
            f'width="{width:g}" height="{height:g}" '
            f'viewBox="{-_MARGIN:g} {-_MARGIN:g} {width:g} {height:g}" fill="none" '
            f'stroke="currentColor" font-family="ui-monospace,Menlo,Consolas,monospace" '
            f'font-size="12" style="max-width:100%;height:auto">',
            begins,
        ]
        edges = "".join(_edge(drawing.boxes, edge) for edge in drawing.edges)
        parts.append(f'<g opacity=".6">{edges}</g>')
        parts += map(_box, drawing.boxes, faces)
        for box, face in zip(drawing.boxes, faces, strict=True):
            for row, tensor in enumerate(face.holds):
                if tensor is not None and (end := self._end_of_reference(box, tensor)):
                    parts.append(_saving_edge(box, row, *end))
        parts += [
            _tensor(tensor_box, self.texts[tensor_box.tensor])
            for tensor_box in drawing.tensors
            if tensor_box.tensor in self.texts
        ]
        return "".join([*parts, "</svg>"])

    def _end_of_reference(self, box: Box, tensor: int) -> tuple[float, float] | None:
        for tensor_box in self.drawing.tensors:
            if tensor_box.tensor == tensor:
                if box.x + box.width < tensor_box.x:
                    return tensor_box.x, tensor_box.y + tensor_box.height / 2
                below = tensor_box.height if box.y > tensor_box.y else 0
                return tensor_box.x + tensor_box.width / 2, tensor_box.y + below
        home = self.homes.get(tensor)
        if home is None or (end := self.drawing.boxes[home]) is box:
            return None
        return end.x + end.width, end.y + end.height / 2


_STYLE = (
    "<style>svg{color:#1b1f24;background:#fff}"
    "@media(prefers-color-scheme:dark){svg{color:#e6edf3;background:#0d1117}}</style>"
)
# Text of the drawing that no text element holds is drawn nowhere.  It is read where a page leaves
# out the elements and keeps their text, as Jupyter does while a notebook is not trusted.
_LEFT_OUT = "Not drawn here: this notebook is not trusted, or the page leaves out drawings: "


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" fill="currentColor" stroke="none"{more}>'
        f"{html.escape(text)}</text>, "
    )


def _box(box: Box, face: Face) -> str:
    is_stub = box.kind == "outside"  # of the group that is open
    dashes = ' stroke-dasharray="1 4"' if is_stub else ' stroke-dasharray="5 4"' * face.dashed
    shape = (
        f'<rect x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}" '
        f'rx="{14 if box.kind == "leaf" else 3}" stroke="currentColor" stroke-width="1.2" '
        f'fill="currentColor" fill-opacity="{0 if face.dashed or is_stub else 0.07}"{dashes}/>'
    )
    if box.kind == "group":  # a stack, because the group has more nodes
        shape = (
            f'<path d="M{box.x + 4:g} {box.y - 3:g}h{box.width - 1:g}v{box.height - 1:g}" '
            f'stroke-opacity=".5"/>{shape}'
        )
    x, y = box.x + PADDING, box.y + _BASELINE
    texts = [_text(x, y, face.title, ' font-weight="600"')]
    texts += [_text(x, y + LINE * row, text) for row, text in enumerate(face.rows, 1)]
    middle, bottom = box.x + box.width / 2, box.y + box.height
    if written := label_below(box):
        texts.append(_text(middle + BESIDE, bottom + 11, written, ' font-size="10" opacity=".8"'))
    if box.end:
        shape += f'<path d="M{middle:g} {bottom:g}v13m-5 0h10"/>'
    return shape + "".join(texts)


def _edge(boxes: Sequence[Box], edge: Edge) -> str:
    start, end = boxes[edge.start], boxes[edge.end]
    x, y = end.x + end.width / 2, end.y + end.height
    points = [(start.x + start.width / 2, start.y), *edge.bends, (x, y + 5)]
    line = " ".join(f"{px:g},{py:g}" for px, py in points)
    return (
        f'<polyline points="{line}"/>'
        f'<path d="M{x:g} {y:g}l-4 7h8z" fill="currentColor" stroke="none"/>'
    )


def _saving_edge(box: Box, row: int, x: float, y: float) -> str:
    start, top = box.x + box.width, box.y + _BASELINE - 4 + LINE * (row + 1)
    reach = min(60.0, max(16.0, abs(x - start) / 2))
    back = -reach if x >= start + 8 else reach
    return (
        f'<circle cx="{start:g}" cy="{top:g}" r="2.5" fill="{BLUE}" stroke="none"/>'
        f'<path d="M{start:g} {top:g}C{start + reach:g} {top:g} {x + back:g} {y:g} {x:g} {y:g}" '
        f'stroke="{BLUE}" stroke-width="1.5"/>'
    )


def _tensor(tensor: TensorBox, text: str) -> str:
    middle = tensor.y + tensor.height / 2
    return (
        f'<rect x="{tensor.x:g}" y="{tensor.y:g}" width="{tensor.width:g}" '
        f'height="{tensor.height:g}" rx="6" fill="{BLUE}" fill-opacity=".22" stroke="{BLUE}"/>'
        + _text(tensor.x + (tensor.width - CHARACTER * len(text)) / 2, middle + 4, text)
    )
