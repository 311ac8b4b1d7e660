"""Folding: a graph of any size as a tree of groups, of which few are looked at at once.

All operations are put into one row, each after those that it builds on, in the order in which they
were made.  A group is an interval of this row; so however the groups are drawn, no edge runs from
an earlier one to a later one, and there are no cycles.  Groups come from four places, outermost
first:

* the iteration of a loop, and the line that made the operations, each time that it ran;
* the module whose call made them, each time that it was called.  Where calls were not seen, as in a
  snapshot, the module that a parameter is named after (``layers.3.linear1.weight``); operations
  without parameters then belong to the innermost module around them: what two uses of its
  parameters enclose;
* repetition: neighbours that look alike, such as the layers of a stack or the time steps of a
  recurrent module, are one group, "layers.0 to layers.11 × 12";
* ranges, where there still are too many side by side.

A leaf belongs to the group that uses it first; one that no module has stays outside.  Everything
here is a loop or a table: a hundred thousand nodes, or modules nested that deep, are no problem.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from gradtrace.draw.groups import (
    MOST,
    Group,
    View,
    is_group,
    is_module,
    repeated_items,
    steps_suffix,
)
from gradtrace.draw.module_paths import topological_order
from gradtrace.draw.repetition import Similarity, divide, group_repetitions
from gradtrace.draw.scene import Scene
from gradtrace.draw.titles import entitle
from gradtrace.draw.tree import collapse, group_by_place

WHOLE = 28  # nodes: a group of no more is shown node by node, where that fits
SHOWN = (16, 12, 9, 6)  # boxes: groups are opened as long as no more are shown, and these fit


def views(scene: Scene, excess: Callable[[View], float] = lambda view: 1.0) -> Iterator[View]:
    """The first view, and one for each group that any view shows as a box; outer ones first.

    ``excess`` tells how many times larger than its panel a view is, at most 1 where it fits: as
    many groups are opened as do.
    """
    found = [View(fold(scene), None)]
    for index, view in enumerate(found):  # grows while it is read
        _fit(view, excess)
        for box in view.boxes:
            if isinstance(box, Group):
                view.opens.append(len(found))
                found.append(View(box, index))
            else:
                view.opens.append(None)
        yield view


def _fit(view: View, excess: Callable[[View], float]) -> None:
    """Show a view node by node, or with as many groups opened as its panel has room for."""
    ways: list[tuple[float, list[int | Group], tuple[str, ...]]] = []
    for most in SHOWN if view.group.size > WHOLE else (WHOLE, *SHOWN):
        _choose_boxes(view, most)
        if not ways or view.boxes != ways[-1][1]:
            ways.append((excess(view), view.boxes, view.path))
        if ways[-1][0] <= 1.0 or len(view.boxes) <= len(view.group.members):
            break
    _, view.boxes, view.path = min(ways, key=lambda way: way[0])


def fold(scene: Scene) -> Group:
    """The tree of groups of all nodes."""
    order = topological_order(scene)
    tree = group_by_place(scene, order)
    groups = [tree]
    for group in groups:  # grows while it is read
        groups += [member for member in group.members if isinstance(member, Group)]
    alike = Similarity(scene)
    for group in reversed(groups):  # inner ones first
        collapse(group)
        if group.kind != "loop":
            group_repetitions(group, alike)
        divide(group, alike)
        alike.measure(group)
    collapse(tree)
    entitle(scene, tree)
    return tree


def _choose_boxes(view: View, most: int) -> None:
    """Find the boxes of a view: groups are opened as long as there are no more than ``most``."""
    group = view.group
    # Layers are told by their own names: "layers.3".
    layers = group.kind in ("run", "range") and not group.steps
    view.path = group.path[:-1] if layers else group.path
    view.of = group.recurs or steps_suffix(group)
    if group.size <= most:
        view.boxes = list(group.nodes())
        return
    shown = list(group.members)
    _open_lone_group(shown, view, most)
    modules = [box for box in shown if isinstance(box, Group) and box.kind == "module"]
    depths = {id(box): 0 for box in shown}
    if len(modules) == 1 and sum(map(is_module, modules[0].members)) > 2:  # the model comes first
        depths[id(modules[0])] = -1
    while True:
        alike: dict[object, list[Group]] = defaultdict(list)
        for box in shown:
            if isinstance(box, Group) and _opens(box, len(shown)):
                alike[box.path if box.kind == "layer" else box.like].append(box)
        cost = {like: sum(len(box.members) - 1 for box in boxes) for like, boxes in alike.items()}
        depth = {like: max(depths[id(box)] for box in boxes) for like, boxes in alike.items()}
        # Outer ones first, and of these what is cheap.
        like = min(
            (like for like in cost if len(shown) + cost[like] <= most),
            key=lambda like: (depth[like], cost[like]),
            default=None,
        )
        if like is None:
            break
        opened = {id(box) for box in alike[like]}
        deeper = max(depth[like], 0) + 1
        depths |= {id(part): deeper for box in alike[like] for part in box.members}
        shown = [
            part
            for box in shown
            for part in (box.members if isinstance(box, Group) and id(box) in opened else [box])
        ]
    _open_lone_group(shown, view, most)
    view.boxes = shown


def _open_lone_group(shown: list[int | Group], view: View, most: int) -> None:
    """Open the only group among the boxes, and that in it: else there is little to see.

    What repeats may stay closed, since its title says what it is.
    """
    while sum(isinstance(box, Group) for box in shown) == 1:
        place = next(k for k, box in enumerate(shown) if isinstance(box, Group))
        inner = shown[place]
        if not isinstance(inner, Group):
            break
        if len(shown) + len(inner.members) > (most if inner.kind in ("run", "loop") else MOST):
            break
        if inner.kind == "run" and not inner.steps:  # layers: "× 12" says it
            break
        shown[place : place + 1] = inner.members
        view.path = inner.path if inner.kind == "module" and view.parent is not None else view.path


_FEW = 5  # layers
_ENOUGH = 8  # boxes, to tell what there is


def _opens(group: Group, shown: int) -> bool:
    """Whether a group is opened in the view around it, where there is room.

    Not where it says more as a whole: a module of the two lowest levels, or any once enough boxes
    are ``shown``; one round of a loop; many layers that look alike and were made by one line, which
    live and die together.
    """
    if group.kind == "run":
        apart = group.moments is not None and group.moments[0] < group.moments[1]
        return apart or group.steps or len(repeated_items(group)) <= _FEW
    if group.kind in ("module", "layer"):
        inner = [part for m in group.members if isinstance(m, Group) for part in m.members]
        return group.operations > 0 and shown < _ENOUGH and any(map(is_group, inner))
    return group.kind in ("line", "loop", "between")
