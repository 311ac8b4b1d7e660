"""Snapshots drawn: as SVG, as HTML with the groups that can be opened, and in words.

What a node saved and whether it was freed is read off the nodes; fold and layout are those of a
trace.
"""

from __future__ import annotations

import html
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gradtrace.autograd.nodes import FREED, HIDDEN, Node
from gradtrace.autograd.saved import GraphData
from gradtrace.autograd.traversal import no_garbage_collection
from gradtrace.draw.drawing import Box, Drawing
from gradtrace.draw.layout import layout
from gradtrace.draw.svg import Face, size, svg
from gradtrace.snapshots.boxes import (
    activations_of,
    needed_slots,
    rows_of,
    scene_of_nodes,
    storage_owners,
    storage_places,
)
from gradtrace.snapshots.modules import ModuleBytes, modules


class _Picture(NamedTuple):
    """One view of a graph, with what its boxes and things say."""

    drawing: Drawing
    faces: list[Face]
    texts: dict[int, str]
    homes: dict[int, int]
    shared_with: list[list[int]]

    def svg(self, title: str, description: str, standalone: bool = False) -> str:
        return svg(self.drawing, self.faces, self.texts, self.homes, title, description, standalone)

    def words(self) -> str:
        """The picture as a list, for those who do not see it."""
        goes_on: dict[int, list[int]] = defaultdict(list)
        for edge in self.drawing.edges:
            goes_on[edge.start].append(edge.end)
        items = []
        for i, face in enumerate(self.faces):
            parts = [face.title, *face.rows]
            if made := self.drawing.boxes[i].made:
                parts.append(f"made {made}")
            if self.shared_with[i]:
                others = " and ".join(self.faces[j].title for j in self.shared_with[i])
                parts.append(f"what is shared counts for {others}")
            if goes_on[i]:
                to = " and ".join(self.faces[j].title for j in goes_on[i])
                parts.append(f"backward goes on to {to}")
            items.append(f"<li>{html.escape('; '.join(parts))}</li>")
        return f"<ul>{''.join(items)}</ul>"

    def look(self) -> object:
        """Equal for pictures that look the same but for what stands around, and for numbers."""
        boxes = self.drawing.boxes
        inside = [i for i, box in enumerate(boxes) if box.kind != "outside"]
        faces = [self.faces[i] for i in inside]
        return (
            tuple((re.sub(r"\d+", "", f.title), *f.rows, f.dashed, f.mark) for f in faces),
            tuple((e.start, e.end) for e in self.drawing.edges if {e.start, e.end} <= {*inside}),
        )


class Pictures:
    """The first view of a graph, and one for each group that can be opened; by index."""

    def __init__(
        self,
        nodes: Sequence[Node],
        links: Sequence[Sequence[int]],
        model: str,
        marks: Mapping[int, str] | None = None,
    ):
        with no_garbage_collection():
            least = 0 if marks is None else len("  changed")
            self._scene = scene_of_nodes(nodes, links, model, least)
            self.drawings = layout(self._scene)
        self._nodes, self._marks = nodes, marks
        self._storages, self._owners = storage_places(nodes), storage_owners(nodes)
        self._leaves = {node.leaf.storage: i for i, node in enumerate(nodes) if node.leaf}
        self._everything = sum(box.held for box in self._held(self.drawings[0]))

    def __getitem__(self, view: int) -> _Picture:
        drawing = self.drawings[view]
        held = self._held(drawing)
        faces = [self._face(box, held[i]) for i, box in enumerate(drawing.boxes)]
        home = _home(drawing)
        homes = {}
        for storage, place in self._storages.items():
            tensor = self._scene.tensors[place]
            node = self._leaves.get(storage) if tensor is None else tensor.home
            if node in home:
                homes[place] = home[node]
        texts = {
            thing.tensor: size(tensor.nbytes)
            for thing in drawing.things
            if (tensor := self._scene.tensors[thing.tensor]) is not None
        }
        return _Picture(drawing, faces, texts, homes, [box.shared_with for box in held])

    def _held(self, drawing: Drawing) -> list[_Held]:
        return _held(drawing.boxes, self._nodes, self._owners, _home(drawing))

    def _face(self, box: Box, held: _Held) -> Face:
        if box.kind == "outside":
            return Face(box.title, [])
        if box.kind == "group":
            return _folded(box, self._nodes, self._marks, held, self._everything)
        return _face(box, self._nodes, self._marks, self._storages)

    def html(self, title: str, description: str, more: str = "") -> str:
        """The first view, the others one fold away, and ``more``."""
        first = self[0]
        return (
            f'<div class="gradtrace-graph"><p>{html.escape(description)}</p>'
            f"{first.svg(title, description)}{_in_words(first)}{self._opened()}{more}</div>"
        )

    def _opened(self) -> str:
        """The groups that can be opened, each in a fold; of those that look the same the first."""
        within: dict[int | None, list[int]] = defaultdict(list)
        for view, drawing in enumerate(self.drawings):
            within[drawing.parent].append(view)
        drawn: dict[int, dict[object, _Fold]] = {}
        around, left = [0], _OPENED
        for parent in around:  # grows while it is read
            folds = drawn[parent] = {}
            for view in within[parent]:
                picture = self[view]
                look = picture.look()
                if look in folds:
                    folds[look].others.append(view)
                elif left:
                    left -= 1
                    folds[look] = _Fold(view, picture, [])
                    around.append(view)
        return _folds(drawn, 0)


class _Fold(NamedTuple):
    """A view that is drawn, and those that look like it."""

    view: int
    picture: _Picture
    others: list[int]


def _folds(drawn: Mapping[int, Mapping[object, _Fold]], parent: int) -> str:
    folds = []
    for view, picture, others in drawn[parent].values():
        title = picture.drawing.title
        alike = f" ({len(others)} more look like it)" if others else ""
        folds.append(
            f"<details><summary>{html.escape(title + alike)}</summary>"
            f"{picture.svg(title, '')}{_in_words(picture)}{_folds(drawn, view)}</details>"
        )
    return "".join(folds)


_OPENED = 24  # drawings below the first: an output that is stored should stay small


def _home(drawing: Drawing) -> dict[int, int]:
    """The box of each node."""
    return {node: i for i, box in enumerate(drawing.boxes) for node in box.nodes}


def _in_words(picture: _Picture) -> str:
    return f"<details><summary>The graph in words</summary>{picture.words()}</details>"


class _Held(NamedTuple):
    """The bytes of activations that a box holds: its own, and those that count for other boxes."""

    held: int
    shared: int
    shared_with: list[int]


def _held(
    boxes: Sequence[Box], nodes: Sequence[Node], owners: Mapping[int, int], home: Mapping[int, int]
) -> list[_Held]:
    found = []
    for i, box in enumerate(boxes):
        storages = {k: v for node in box.nodes for k, v in activations_of(nodes[node]).items()}
        others = {storage: home.get(owners[storage]) for storage in storages}
        own = sum(nbytes for storage, nbytes in storages.items() if others[storage] == i)
        shared_with = dict.fromkeys(o for o in others.values() if o is not None and o != i)
        found.append(_Held(own, sum(storages.values()) - own, [*shared_with]))
    return found


def _face(
    box: Box,
    nodes: Sequence[Node],
    marks: Mapping[int, str] | None,
    storages: Mapping[int, int],
) -> Face:
    (i,) = box.nodes
    node, mark = nodes[i], (marks or {}).get(i)
    said = f"  {mark}" if mark else "  freed" if node.state == FREED else ""
    hidden = "  hidden" if node.state == HIDDEN else ""
    holds = [
        storages.get(saved.storage) if saved.storage is not None else None
        for saved in needed_slots(node)
    ]
    dashed = node.state == FREED or mark == "gone"
    return Face(box.title + said + hidden, rows_of(node), holds, dashed, mark)


def _folded(
    box: Box,
    nodes: Sequence[Node],
    marks: Mapping[int, str] | None,
    bytes_: _Held,
    everything: int,
) -> Face:
    inside = [nodes[i] for i in box.nodes]
    freed = sum(node.state == FREED for node in inside)
    share = bytes_.held / everything if everything else None
    second = f"{size(bytes_.held)} held" if any(node.leaf is None for node in inside) else ""
    if bytes_.shared:
        second = f"{size(bytes_.held)}, {size(bytes_.shared)} shared"
    if marks is None:
        first = f"{len(inside) - freed} alive, {freed} freed" if freed else f"{len(inside)} nodes"
        return Face(box.title, [first, second], share=share, dashed=freed == len(inside))
    counts = Counter(mark for i in box.nodes if (mark := marks.get(i)))
    said = ", ".join(f"{count} {mark}" for mark, count in counts.items()) or "the same"
    (mark,) = counts if len(counts) == 1 else (None,)
    return Face(box.title, [said, second], share=share, mark=mark)


def sentence(graph: GraphData) -> str:
    """One snapshot in a sentence."""
    held = graph.held
    freed = f", {len(graph.freed)} of them freed" if graph.freed else ""
    leaves = [node.leaf for node in graph.leaves if node.leaf is not None]
    numbers = sum(math.prod(leaf.shape) for leaf in leaves)
    return (
        f"{len(graph.nodes)} nodes{freed}; {len(leaves)} leaves with {numbers:,} numbers; saved "
        f"tensors hold {size(held.activations)} of activations, {size(held.leaves)} of leaves and "
        f"{size(held.inputs)} of inputs."
    )


def graph_html(graph: GraphData) -> str:
    """What a notebook shows of a snapshot."""
    rows = modules(graph)
    table = ""
    if len(rows) > 1:
        body = "".join(
            f'<tr><th scope="row">{html.escape(row.name or "all")}</th><td>{row.nodes}</td>'
            f"<td>{row.freed}</td><td>{row.activations}</td><td>{row.parameters}</td>"
            f"<td>{_shared(row)}</td></tr>"
            for row in rows
        )
        table = (
            "<details><summary>Bytes of each module</summary><table><thead><tr>"
            '<th scope="col">module</th><th scope="col">operations</th><th scope="col">freed</th>'
            '<th scope="col">activations (bytes)</th><th scope="col">parameters (bytes)</th>'
            '<th scope="col">shared (bytes)</th></tr>'
            f"</thead><tbody>{body}</tbody></table></details>"
        )
    return _pictures(graph).html("The autograd graph", sentence(graph), table)


def _shared(row: ModuleBytes) -> str:
    """What of it counts for others, and for which; as HTML."""
    if not row.shared:
        return "0"
    others = ", ".join(html.escape(name) or "operations of no module" for name in row.shared_with)
    return f"{row.shared}, counted for {others}"


def graph_svg(graph: GraphData) -> str:
    """A snapshot as the text of an SVG file."""
    return _pictures(graph)[0].svg("The autograd graph", sentence(graph), standalone=True)


def _pictures(graph: GraphData) -> Pictures:
    return Pictures(graph.nodes, [node.next for node in graph.nodes], graph.model)


def write(text: str, path: str | Path | None) -> str:
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text
