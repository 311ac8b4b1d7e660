"""Snapshots as SVG, as HTML with groups that can be opened, and in words."""

import html
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from gradtrace.autograd.nodes import FREED, HIDDEN, Node
from gradtrace.draw.drawing import Box
from gradtrace.draw.layout import drawings_of
from gradtrace.draw.svg import Face, Picture, size
from gradtrace.snapshots.boxes import (
    activations_of,
    needed_slots,
    rows_of,
    saved_storages,
    scene_of_nodes,
)


def _words(picture: Picture) -> str:
    """Return a picture as an HTML list that opens, for readers who do not see it."""
    goes_on: dict[int, list[int]] = defaultdict(list)
    for edge in picture.drawing.edges:
        goes_on[edge.start].append(edge.end)
    items = []
    for i, face in enumerate(picture.faces):
        parts = [face.title, *face.rows]
        if shapes := picture.drawing.boxes[i].outputs:
            parts.append(f"made {shapes}")
        if goes_on[i]:
            to = " and ".join(picture.faces[j].title for j in goes_on[i])
            parts.append(f"backward goes on to {to}")
        items.append(f"<li>{html.escape('; '.join(parts))}</li>")
    words = f"<ul>{''.join(items)}</ul>"
    return f"<details><summary>The graph in words</summary>{words}</details>"


def _look(picture: Picture) -> object:
    """Return a value that is equal for pictures that differ only in stubs and numbers in titles."""
    boxes, edges = picture.drawing.boxes, picture.drawing.edges
    inner = [i for i, box in enumerate(boxes) if box.kind != "outside"]
    faces = [picture.faces[i] for i in inner]
    return (
        tuple((re.sub(r"\d+", "", f.title), *f.rows, f.dashed) for f in faces),
        tuple((e.start, e.end) for e in edges if {e.start, e.end} <= {*inner}),
    )


class Pictures:
    """The views of a graph by index: the first one, and one for each group that can be opened."""

    def __init__(self, nodes: Sequence[Node], model: str):
        self._nodes = nodes
        self._scene = scene_of_nodes(nodes, model)
        self.drawings = drawings_of(self._scene)
        self._storages = {storage: place for place, storage in enumerate(saved_storages(nodes))}
        leaves = {node.leaf.storage: i for i, node in enumerate(nodes) if node.leaf}
        tensors = zip(self._storages, self._scene.tensors, strict=True)
        # The node of each storage: its leaf, or else the node that saved it first.
        self._owners = {s: leaves[s] if tensor is None else tensor.home for s, tensor in tensors}

    def __getitem__(self, view: int) -> Picture:
        drawing = self.drawings[view]
        home = {node: i for i, box in enumerate(drawing.boxes) for node in box.nodes}
        faces = [self._face(box, i, home) for i, box in enumerate(drawing.boxes)]
        owners = zip(self._storages.values(), self._owners.values(), strict=True)
        homes = {place: home[owner] for place, owner in owners if owner in home}
        texts = {
            tensor_box.tensor: size(tensor.nbytes)
            for tensor_box in drawing.tensors
            if (tensor := self._scene.tensors[tensor_box.tensor]) is not None
        }
        return Picture(drawing, faces, texts, homes)

    def _face(self, box: Box, number: int, home: Mapping[int, int]) -> Face:
        """Return the face of a box; ``home`` maps each node to the number of its box."""
        if box.kind == "outside":
            return Face(box.title, [])
        if box.kind == "group":
            return self._folded(box, number, home)
        (i,) = box.nodes
        node = self._nodes[i]
        suffix = f"  {node.state}" if node.state in (FREED, HIDDEN) else ""
        slots = (saved.storage for saved in needed_slots(node))
        holds = [None if storage is None else self._storages[storage] for storage in slots]
        return Face(box.title + suffix, rows_of(node), holds, dashed=node.state == FREED)

    def _folded(self, box: Box, number: int, home: Mapping[int, int]) -> Face:
        inner = [self._nodes[i] for i in box.nodes]
        freed = sum(node.state == FREED for node in inner)
        storages: dict[int, int] = {}
        for node in inner:
            storages |= activations_of(node)
        # A storage counts for one box only, and is shared in others.
        owners = {storage: home.get(self._owners[storage]) for storage in storages}
        owned = sum(nbytes for storage, nbytes in storages.items() if owners[storage] == number)
        shared = sum(storages.values()) - owned
        second = f"{size(owned)} held" if any(node.leaf is None for node in inner) else ""
        if shared:
            second = f"{size(owned)}, {size(shared)} shared"
        first = f"{len(inner) - freed} alive, {freed} freed" if freed else f"{len(inner)} nodes"
        return Face(box.title, [first, second], dashed=freed == len(inner))

    def html(self, title: str, description: str) -> str:
        """Return the first view as HTML, and up to ``_OPENED`` others in ``<details>`` below it."""
        first, self._remaining = self[0], _OPENED
        return (
            f'<div class="gradtrace-graph"><p>{html.escape(description)}</p>'
            f"{first.svg(title, description)}{_words(first)}{self._inside(0)}</div>"
        )

    def _inside(self, parent: int) -> str:
        """Return a view's groups as ``<details>``, alike ones once, until ``_OPENED`` are shown."""
        alike: dict[object, list[int]] = defaultdict(list)
        if self._remaining:
            for view, drawing in enumerate(self.drawings):
                if drawing.parent == parent:
                    alike[_look(self[view])].append(view)
        listed = [*alike.values()][: self._remaining]
        self._remaining -= len(listed)  # before what is inside them
        folds = []
        for view, *similar in listed:
            picture = self[view]
            title = picture.drawing.title
            note = f" ({len(similar)} more look like it)" if similar else ""
            folds.append(
                f"<details><summary>{html.escape(title + note)}</summary>"
                f"{picture.svg(title, '')}{_words(picture)}{self._inside(view)}</details>"
            )
        return "".join(folds)


_OPENED = 24  # drawings below the first: an output that is stored should stay small
