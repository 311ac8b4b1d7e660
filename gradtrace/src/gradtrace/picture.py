"""A snapshot that draws itself, its bytes module by module, and what differs between two.

What a node saved and whether it was freed is read off the :class:`~gradtrace.graph.Graph`; fold and
layout are those of a trace.  Two snapshots become one picture of all nodes of both, each marked.
"""

from __future__ import annotations

import html
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from gradtrace.drawing import Face, size, svg
from gradtrace.fold import modules_of
from gradtrace.graph import (
    ALIVE,
    FREED,
    HIDDEN,
    NOT_NEEDED,
    Graph,
    ModuleBytes,
    Node,
    SavedTensor,
    no_garbage_collection,
    shapes_of,
)
from gradtrace.layout import Box, Drawing, layout
from gradtrace.scene import Scene, SceneNode, SceneTensor, clipped, module_of

_GLYPHS = {FREED: "□", "modified": "▲", "packed": "◧"}
_FOLDED = len("9999 new, 9999 gone, 9999 freed")


def label_of(node: Node) -> str:
    """What the box of a node is called.

    >>> import torch
    >>> from gradtrace import snapshot
    >>> [label_of(node) for node in snapshot(torch.ones(2, requires_grad=True).exp()).nodes]
    ['ExpBackward0', 'leaf [2]']
    """
    if node.leaf is None:
        return node.name
    return node.leaf.name or f"leaf {_shape(node.leaf.shape)}"


def _shape(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]" if shape else "scalar"


def _needed(node: Node) -> list[SavedTensor]:
    return [saved for saved in node.saved if saved.state != NOT_NEEDED]


def _row(saved: SavedTensor) -> str:
    shape = "" if saved.shape is None else f" {_shape(saved.shape)}"
    state = "" if saved.state == ALIVE else f"  {saved.state}"
    return f"{_GLYPHS.get(saved.state, '■')} {saved.name}{shape}{state}"


def _rows(node: Node) -> list[str]:
    if (leaf := node.leaf) is not None:
        shape = _shape(leaf.shape) if leaf.name else ""
        grad = "grad" if leaf.has_grad else "no grad"
        return ["  ".join(filter(None, [shape, size(leaf.storage_nbytes), grad]))]
    return [_row(saved) for saved in _needed(node)]


def _module(node: Node, model: str) -> tuple[str, ...]:
    """The module of a parameter; ``model`` is what to call the model itself, if it has a name."""
    if node.leaf is None or node.leaf.name is None:
        return ()
    return module_of(node.leaf.name) or ((model,) if model else ())


def _scene(
    nodes: Sequence[Node], links: Sequence[Sequence[int]], model: str = "", least: int = 0
) -> Scene:
    """``least`` is the number of characters that any box has room for."""
    tensors: dict[int, tuple[int, list[int], bool]] = {}
    leaves = {node.leaf.storage for node in nodes if node.leaf is not None}
    for i, node in enumerate(nodes):
        for saved in node.saved:
            if saved.storage is not None:
                held = tensors.setdefault(
                    saved.storage, (saved.storage_nbytes or 0, [], saved.storage in leaves)
                )
                held[1].append(i)
    drawn = [
        SceneNode(
            name=node.name,
            label=label_of(node),
            leaf=node.leaf is not None,
            next=successors,
            order=node.sequence_nr,
            moment=None,
            line=None,
            text=max(least, len(clipped(label_of(node))) + 7, *map(len, _rows(node) or [""])),
            rows=len(_rows(node)),
            module=_module(node, model),
            made="" if node.leaf is not None else shapes_of(node.outputs),  # a leaf's row says it
        )
        for node, successors in zip(nodes, links, strict=True)
    ]
    things = [
        None
        if leaf
        else SceneTensor(
            nbytes,
            min(savers, key=lambda i: nodes[i].sequence_nr or 0),
            frozenset(savers),
            False,
            0,
        )
        for nbytes, savers, leaf in tensors.values()
    ]
    return Scene(drawn, things, [(0, 0)] * len(nodes))


def _storages(nodes: Sequence[Node]) -> dict[int, int]:
    """For each storage that is saved, its place among the tensors of :func:`_scene`."""
    return {
        storage: place
        for place, storage in enumerate(
            dict.fromkeys(
                saved.storage for node in nodes for saved in node.saved if saved.storage is not None
            )
        )
    }


def _owners(nodes: Sequence[Node]) -> dict[int, int]:
    """For each storage of activations the node that it counts for: the first that saved it."""
    owners: dict[int, int] = {}
    for i in sorted(range(len(nodes)), key=lambda i: nodes[i].sequence_nr or 0):
        for storage in _activations(nodes[i]):
            owners.setdefault(storage, i)
    return owners


def _activations(node: Node) -> dict[int, int]:
    """The storages of activations that a node holds, and their bytes."""
    return {
        saved.storage: saved.storage_nbytes or 0
        for saved in node.saved
        if saved.role == "activation" and saved.storage is not None
    }


def modules(graph: Graph) -> list[ModuleBytes]:
    """The bytes of each module, as ``Graph.modules``."""
    nodes = graph.nodes
    paths = modules_of(_scene(nodes, [node.next for node in nodes]))
    owners = _owners(nodes)
    rows: dict[tuple[str, ...], _Row] = defaultdict(_Row)
    for i in sorted(paths, key=lambda i: nodes[i].sequence_nr or 0):
        around = [rows[paths[i][:depth]] for depth in range(len(paths[i]) + 1)]
        for row in around:
            row.nodes += 1
            row.freed += nodes[i].state == FREED
        for storage, nbytes in _activations(nodes[i]).items():
            owner = paths[owners[storage]]
            for depth, row in enumerate(around):
                if owner[:depth] == paths[i][:depth]:
                    row.activations[storage] = nbytes
                else:
                    row.shared[storage] = nbytes, owner
    counted = set(owners)
    for node in graph.leaves:
        if node.leaf is not None and node.leaf.storage not in counted:
            counted.add(node.leaf.storage)
            path = _module(node, "")
            for depth in range(len(path) + 1):
                rows[path[:depth]].parameters += node.leaf.storage_nbytes
    return [row.told(".".join(path)) for path, row in rows.items()]


@dataclass
class _Row:
    """What one module has: storages with their bytes, the shared ones with their owner, too."""

    nodes: int = 0
    freed: int = 0
    parameters: int = 0
    activations: dict[int, int] = field(default_factory=dict)
    shared: dict[int, tuple[int, tuple[str, ...]]] = field(default_factory=dict)

    def told(self, name: str) -> ModuleBytes:
        held, shared = sum(self.activations.values()), self.shared.values()
        return ModuleBytes(
            name,
            self.nodes,
            self.freed,
            held,
            self.parameters,
            sum(nbytes for nbytes, _ in shared),
            tuple(dict.fromkeys(".".join(owner) for _, owner in shared)),
        )


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


class _Pictures:
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
            self._scene = _scene(nodes, links, model, least)
            self.drawings = layout(self._scene)
        self._nodes, self._marks = nodes, marks
        self._storages, self._owners = _storages(nodes), _owners(nodes)
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
        storages = {k: v for node in box.nodes for k, v in _activations(nodes[node]).items()}
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
        for saved in _needed(node)
    ]
    dashed = node.state == FREED or mark == "gone"
    return Face(box.title + said + hidden, _rows(node), holds, dashed, mark)


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


# One snapshot


def describe(graph: Graph) -> str:
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


def graph_html(graph: Graph) -> str:
    """What a notebook shows of a snapshot."""
    rows = graph.modules
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
    return _pictures(graph).html("The autograd graph", describe(graph), table)


def _shared(row: ModuleBytes) -> str:
    """What of it counts for others, and for which; as HTML."""
    if not row.shared:
        return "0"
    others = ", ".join(html.escape(name) or "operations of no module" for name in row.shared_with)
    return f"{row.shared}, counted for {others}"


def graph_svg(graph: Graph) -> str:
    """A snapshot as the text of an SVG file."""
    return _pictures(graph)[0].svg("The autograd graph", describe(graph), standalone=True)


def _pictures(graph: Graph) -> _Pictures:
    return _Pictures(graph.nodes, [node.next for node in graph.nodes], graph.model)


def write(text: str, path: str | Path | None) -> str:
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


# Two snapshots


class Comparison:
    """What differs between two snapshots, made by ``before.compare(after)``.

    ``new`` are nodes of ``after`` only, ``gone`` of ``before`` only; ``freed`` had their saved
    tensors freed in between; ``changed`` differ in something else, which :meth:`reasons` names: a
    version, a gradient, a tensor changed in place.  Each is a list of :class:`~gradtrace.Node`.
    An operation is told by PyTorch's number of it, a leaf by its memory.

    >>> import torch
    >>> from gradtrace import snapshot
    >>> x = torch.ones(3, requires_grad=True)
    >>> loss = x.exp().sum()
    >>> before = snapshot(loss)
    >>> loss.backward()
    >>> before.compare(snapshot(loss))
    Comparison(0 new, 0 gone, 1 freed, 1 changed; activations 12 B, then 0 B)
      freed: ExpBackward0
      changed: leaf [3] (has a gradient now)
    """

    def __init__(self, before: Graph, after: Graph):
        self.before, self.after = before, after
        old, now = _keys(before), _keys(after)
        place = {key: i for i, key in enumerate(now)}
        self._nodes = list(after.nodes)
        self._links = [list(node.next) for node in after.nodes]
        for key, node in old.items():
            if key not in place:
                place[key] = len(self._nodes)
                self._nodes.append(node)
        keys = list(old)
        for key, node in old.items():
            if key not in now:
                self._links.append([place[keys[j]] for j in node.next])
        self._marks: dict[int, str] = {}
        self._reasons: dict[int, str] = {}
        for key, i in place.items():
            mark, reason = _difference(old.get(key), now.get(key))
            if mark:
                self._marks[i], self._reasons[i] = mark, reason

    def _marked(self, mark: str) -> list[Node]:
        return [self._nodes[i] for i, found in self._marks.items() if found == mark]

    @property
    def new(self) -> list[Node]:
        """Nodes that only the later snapshot has."""
        return self._marked("new")

    @property
    def gone(self) -> list[Node]:
        """Nodes that only the earlier snapshot has."""
        return self._marked("gone")

    @property
    def freed(self) -> list[Node]:
        """Nodes of both whose saved tensors were freed in between."""
        return self._marked("freed")

    @property
    def changed(self) -> list[Node]:
        """Nodes of both that differ otherwise."""
        return self._marked("changed")

    def reasons(self) -> list[str]:
        """One line for each kind of difference: what happened, how often, and to which nodes."""
        told = Counter()  # type: Counter[tuple[str, str]]
        for i, mark in self._marks.items():
            reason = f" ({self._reasons[i]})" if self._reasons[i] else ""
            told[mark, label_of(self._nodes[i]) + reason] += 1
        order = ("new", "gone", "freed", "changed")
        lines = [
            f"{mark}: {text}" + (f" × {count}" if count > 1 else "")
            for (mark, text), count in sorted(
                told.items(), key=lambda item: order.index(item[0][0])
            )
        ]
        return lines

    def _sentence(self) -> str:
        counts = Counter(self._marks.values())
        said = ", ".join(f"{counts[mark]} {mark}" for mark in ("new", "gone", "freed", "changed"))
        before, after = (size(graph.held.activations) for graph in (self.before, self.after))
        return f"{said}; activations {before}, then {after}"

    def __repr__(self) -> str:
        lines = self.reasons()
        rest = [f"… and {len(lines) - _TOLD} more"] if len(lines) > _TOLD else []
        told = [f"  {line}" for line in [*lines[:_TOLD], *rest]]
        return "\n".join([f"Comparison({self._sentence()})", *told])

    def _pictures(self) -> _Pictures:
        return _Pictures(self._nodes, self._links, self.after.model, self._marks)

    def _repr_html_(self) -> str:
        return self._pictures().html("Two snapshots compared", f"{self._sentence()}.")

    def to_svg(self, path: str | Path | None = None) -> str:
        """The drawing as SVG text, written to the file ``path`` where one is given."""
        title = "Two snapshots compared"
        return write(self._pictures()[0].svg(title, f"{self._sentence()}.", standalone=True), path)


_TOLD = 20  # lines of a comparison that is printed


def _keys(graph: Graph) -> dict[tuple[object, ...], Node]:
    """The nodes by what tells them apart, in their order."""
    seen: Counter[tuple[object, ...]] = Counter()
    keys = {}
    for node in graph.nodes:
        if node.leaf is not None:
            key: tuple[object, ...] = ("leaf", node.leaf.storage, tuple(node.leaf.shape))
        else:
            key = (node.name, node.sequence_nr)
        seen[key] += 1
        keys[*key, seen[key]] = node
    return keys


def _difference(old: Node | None, now: Node | None) -> tuple[str, str]:
    """The mark of a node and the reason; both are empty where nothing changed."""
    if old is None or now is None:
        return ("new", "") if old is None else ("gone", "")
    if now.state == FREED != old.state:
        return "freed", ""
    reasons = []
    if now.state != old.state:
        reasons.append(f"{old.state}, then {now.state}")
    if old.leaf is not None and now.leaf is not None:
        if old.leaf.has_grad != now.leaf.has_grad:
            reasons.append("has a gradient now" if now.leaf.has_grad else "has no gradient now")
        if old.leaf.version != now.leaf.version:
            reasons.append(f"version {old.leaf.version}, then {now.leaf.version}")
    return ("changed", "; ".join(reasons)) if reasons else ("", "")
