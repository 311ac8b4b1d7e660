"""What differs between two snapshots: one picture of all nodes of both, each marked."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from gradtrace.autograd.nodes import FREED, Node
from gradtrace.autograd.saved import GraphData
from gradtrace.draw.svg import size
from gradtrace.snapshots.boxes import label_of
from gradtrace.snapshots.pictures import Pictures, write


class Comparison:
    """What differs between two snapshots, computed by ``before.compare(after)``.

    ``new`` are nodes of ``after`` only, ``gone`` of ``before`` only; ``freed`` had their saved
    tensors freed in between; ``changed`` differ in something else, which :meth:`reasons` names: a
    version, a gradient, a tensor modified in place. Each is a list of :class:`~gradtrace.Node`.
    Operations are matched by their sequence numbers, leaves by their storages.

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

    def __init__(self, before: GraphData, after: GraphData):
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
        return [self._nodes[i] for i, node_mark in self._marks.items() if node_mark == mark]

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
        """Nodes of both that differ in something else."""
        return self._marked("changed")

    def reasons(self) -> list[str]:
        """Return one line for each kind of difference: what happened, how often, and to which
        nodes."""
        counts = Counter()  # type: Counter[tuple[str, str]]
        for i, mark in self._marks.items():
            reason = f" ({self._reasons[i]})" if self._reasons[i] else ""
            counts[mark, label_of(self._nodes[i]) + reason] += 1
        order = ("new", "gone", "freed", "changed")
        lines = [
            f"{mark}: {text}" + (f" × {count}" if count > 1 else "")
            for (mark, text), count in sorted(
                counts.items(), key=lambda item: order.index(item[0][0])
            )
        ]
        return lines

    def _sentence(self) -> str:
        counts = Counter(self._marks.values())
        differences = ", ".join(
            f"{counts[mark]} {mark}" for mark in ("new", "gone", "freed", "changed")
        )
        bytes_before, bytes_after = (
            size(graph.held.activations) for graph in (self.before, self.after)
        )
        return f"{differences}; activations {bytes_before}, then {bytes_after}"

    def __repr__(self) -> str:
        lines = self.reasons()
        rest = [f"… and {len(lines) - _TOLD} more"] if len(lines) > _TOLD else []
        shown_lines = [f"  {line}" for line in [*lines[:_TOLD], *rest]]
        return "\n".join([f"Comparison({self._sentence()})", *shown_lines])

    def _pictures(self) -> Pictures:
        return Pictures(self._nodes, self._links, self.after.model, self._marks)

    def _repr_html_(self) -> str:
        return self._pictures().html("Two snapshots compared", f"{self._sentence()}.")

    def to_svg(self, path: str | Path | None = None) -> str:
        """Return the drawing as SVG text, and write it to the file ``path`` if one is given."""
        title = "Two snapshots compared"
        return write(self._pictures()[0].svg(title, f"{self._sentence()}.", standalone=True), path)


_TOLD = 20  # lines of a comparison that is printed


def _keys(graph: GraphData) -> dict[tuple[object, ...], Node]:
    """Return the nodes of a snapshot by the keys with which two snapshots are matched."""
    occurrences: Counter[tuple[object, ...]] = Counter()
    keys = {}
    for node in graph.nodes:
        if node.leaf is not None:
            key: tuple[object, ...] = ("leaf", node.leaf.storage, tuple(node.leaf.shape))
        else:
            key = (node.name, node.sequence_nr)
        occurrences[key] += 1
        keys[*key, occurrences[key]] = node
    return keys


def _difference(old: Node | None, now: Node | None) -> tuple[str, str]:
    """Return the mark of a node and the reason for it; both are empty if nothing changed."""
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
