"""Snapshots as SVG, as HTML with groups that can be opened, and in words."""

from __future__ import annotations

import html
import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gradtrace.autograd.collector import no_garbage_collection
from gradtrace.autograd.nodes import FREED, HIDDEN
from gradtrace.autograd.saved import GraphData
from gradtrace.draw.drawing import Box, Drawing
from gradtrace.draw.layout import drawings_of
from gradtrace.draw.svg import Face, Picture, size
from gradtrace.snapshots.boxes import (
    activations_of,
    needed_slots,
    rows_of,
    saved_storages,
    scene_of_nodes,
    storage_owners,
)


@dataclass
class _Picture(Picture):
    """A picture that also lists, for each box, the boxes for which its shared bytes are counted."""

    shared_with: list[list[int]]

    def words(self) -> str:
        """Return the picture as an HTML list, for readers who do not see it."""
        goes_on: dict[int, list[int]] = defaultdict(list)
        for edge in self.drawing.edges:
            goes_on[edge.start].append(edge.end)
        items = []
        for i, face in enumerate(self.faces):
            parts = [face.title, *face.rows]
            if shapes := self.drawing.boxes[i].outputs:
                parts.append(f"made {shapes}")
            if self.shared_with[i]:
                counting_boxes = " and ".join(self.faces[j].title for j in self.shared_with[i])
                parts.append(f"what is shared counts for {counting_boxes}")
            if goes_on[i]:
                to = " and ".join(self.faces[j].title for j in goes_on[i])
                parts.append(f"backward goes on to {to}")
            items.append(f"<li>{html.escape('; '.join(parts))}</li>")
        return f"<ul>{''.join(items)}</ul>"

    def look(self) -> object:
        """Return a value that is equal for pictures that differ only in their stubs and numbers."""
        boxes = self.drawing.boxes
        inner = [i for i, box in enumerate(boxes) if box.kind != "outside"]
        faces = [self.faces[i] for i in inner]
        return (
            tuple((re.sub(r"\d+", "", f.title), *f.rows, f.dashed) for f in faces),
            tuple((e.start, e.end) for e in self.drawing.edges if {e.start, e.end} <= {*inner}),
        )


class Pictures:
    """The views of a graph by index: the first one, and one for each group that can be opened."""

    def __init__(self, graph: GraphData):
        nodes = self._nodes = graph.nodes
        with no_garbage_collection():
            self._scene = scene_of_nodes(nodes, [node.next for node in nodes], graph.model)
            self.drawings = drawings_of(self._scene)
        self._storages = {storage: place for place, storage in enumerate(saved_storages(nodes))}
        self._owners = storage_owners(nodes)
        self._leaves = {node.leaf.storage: i for i, node in enumerate(nodes) if node.leaf}
        self._everything = sum(box.owned for box in self._held(self.drawings[0]))

    def __getitem__(self, view: int) -> _Picture:
        drawing = self.drawings[view]
        bytes_of_boxes = self._held(drawing)
        faces = [self._face(box, bytes_of_boxes[i]) for i, box in enumerate(drawing.boxes)]
        home = _home(drawing)
        homes = {}
        for storage, place in self._storages.items():
            tensor = self._scene.tensors[place]
            node = self._leaves.get(storage) if tensor is None else tensor.home
            if node in home:
                homes[place] = home[node]
        texts = {
            tensor_box.tensor: size(tensor.nbytes)
            for tensor_box in drawing.tensors
            if (tensor := self._scene.tensors[tensor_box.tensor]) is not None
        }
        return _Picture(drawing, faces, texts, homes, [box.shared_with for box in bytes_of_boxes])

    def _held(self, drawing: Drawing) -> list[_Held]:
        """Return the bytes that each box of a drawing keeps alive."""
        home, rows = _home(drawing), []
        for i, box in enumerate(drawing.boxes):
            storages: dict[int, int] = {}
            for node in box.nodes:
                storages |= activations_of(self._nodes[node])
            counting_box = {storage: home.get(self._owners[storage]) for storage in storages}
            owned = sum(storages[storage] for storage, k in counting_box.items() if k == i)
            owners = dict.fromkeys(o for o in counting_box.values() if o is not None and o != i)
            rows.append(_Held(owned, sum(storages.values()) - owned, [*owners]))
        return rows

    def _face(self, box: Box, held: _Held) -> Face:
        if box.kind == "outside":
            return Face(box.title, [])
        if box.kind == "group":
            return self._folded(box, held)
        (i,) = box.nodes
        node = self._nodes[i]
        suffix = f"  {node.state}" if node.state in (FREED, HIDDEN) else ""
        slots = (saved.storage for saved in needed_slots(node))
        holds = [None if storage is None else self._storages[storage] for storage in slots]
        return Face(box.title + suffix, rows_of(node), holds, dashed=node.state == FREED)

    def _folded(self, box: Box, held: _Held) -> Face:
        inner = [self._nodes[i] for i in box.nodes]
        freed = sum(node.state == FREED for node in inner)
        share = held.owned / self._everything if self._everything else None
        second = f"{size(held.owned)} held" if any(node.leaf is None for node in inner) else ""
        if held.shared:
            second = f"{size(held.owned)}, {size(held.shared)} shared"
        first = f"{len(inner) - freed} alive, {freed} freed" if freed else f"{len(inner)} nodes"
        return Face(box.title, [first, second], share=share, dashed=freed == len(inner))

    def html(self, title: str, description: str) -> str:
        """Return the first view as HTML, and the others in ``<details>`` below it."""
        first = self[0]
        return (
            f'<div class="gradtrace-graph"><p>{html.escape(description)}</p>'
            f"{first.svg(title, description)}{_in_words(first)}{self._opened()}</div>"
        )

    def _opened(self) -> str:
        """Return the groups as nested ``<details>``; groups that look alike are shown once."""
        views_in: dict[int | None, list[int]] = defaultdict(list)
        for view, drawing in enumerate(self.drawings):
            views_in[drawing.parent].append(view)
        folds_in: dict[int, dict[object, _Fold]] = {}
        parents, remaining = [0], _OPENED
        for parent in parents:  # grows while it is read
            folds = folds_in[parent] = {}
            for view in views_in[parent]:
                picture = self[view]
                look = picture.look()
                if look in folds:
                    folds[look].similar.append(view)
                elif remaining:
                    remaining -= 1
                    folds[look] = _Fold(view, picture, [])
                    parents.append(view)
        return _folds(folds_in, 0)


class _Fold(NamedTuple):
    """A view that is drawn, and the views that look like it."""

    view: int
    picture: _Picture
    similar: list[int]


def _folds(folds_in: Mapping[int, Mapping[object, _Fold]], parent: int) -> str:
    folds = []
    for view, picture, similar in folds_in[parent].values():
        title = picture.drawing.title
        note = f" ({len(similar)} more look like it)" if similar else ""
        folds.append(
            f"<details><summary>{html.escape(title + note)}</summary>"
            f"{picture.svg(title, '')}{_in_words(picture)}{_folds(folds_in, view)}</details>"
        )
    return "".join(folds)


_OPENED = 24  # drawings below the first: an output that is stored should stay small


def _home(drawing: Drawing) -> dict[int, int]:
    return {node: i for i, box in enumerate(drawing.boxes) for node in box.nodes}


def _in_words(picture: _Picture) -> str:
    return f"<details><summary>The graph in words</summary>{picture.words()}</details>"


class _Held(NamedTuple):
    """The activation bytes that a box keeps alive, counted for this box or for other boxes."""

    owned: int
    shared: int
    shared_with: list[int]


def sentence(graph: GraphData) -> str:
    """Describe a snapshot in one sentence."""
    total = graph.held
    freed = f", {len(graph.freed)} of them freed" if graph.freed else ""
    leaves = [node.leaf for node in graph.leaves if node.leaf is not None]
    numbers = sum(math.prod(leaf.shape) for leaf in leaves)
    return (
        f"{len(graph.nodes)} nodes{freed}; {len(leaves)} leaves with {numbers:,} numbers; saved "
        f"tensors hold {size(total.activations)} of activations, {size(total.leaves)} of leaves "
        f"and {size(total.inputs)} of inputs."
    )


def graph_html(graph: GraphData) -> str:
    """Return the HTML that a notebook shows for a snapshot."""
    return Pictures(graph).html("The autograd graph", sentence(graph))


def graph_svg(graph: GraphData) -> str:
    """Return a snapshot as the text of an SVG file."""
    return Pictures(graph)[0].svg("The autograd graph", sentence(graph), standalone=True)
