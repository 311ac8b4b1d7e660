"""Fold a graph of any size into a tree of groups, so that each view shows only a few boxes.

All operations are put into one sequence, each after its inputs, in the order in which they ran. A
group is an interval of this sequence; so no edge leads from an earlier group to a later one, and
there are no cycles. Groups come from four sources, outermost first:

* the iteration of a loop, and the line that ran the operations, once for each time that it ran;
* the module whose call ran them, once for each call. If no calls were recorded, as in a snapshot,
  it is the module that a parameter is named after, and for operations without parameters the
  innermost one whose parameters are used before and after them;
* repetition: neighbours that are similar, such as layers or time steps, are one group;
* ranges, if there are still too many members.

A module's parameter belongs to the innermost group, other than a loop, that contains all its users,
and comes before the first. Any other leaf belongs to no group of a line, loop or module. No
recursion is deep, so graphs of any size are no problem.
"""

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
    """Yield the view of the whole graph, then one for each group that a view shows as a box.

    ``excess`` returns the ratio of a view's size to that of its panel, at most 1 if the view fits.
    """
    pending = [View(tree_of_groups(scene), None)]
    for index, view in enumerate(pending):  # grows while it is read
        _fit(view, excess)
        for box in view.boxes:
            if isinstance(box, Group):
                view.opens.append(len(pending))
                pending.append(View(box, index))
            else:
                view.opens.append(None)
        yield view


def _fit(view: View, excess: Callable[[View], float]) -> None:
    """Choose a view's boxes: up to ``WHOLE`` nodes if they fit, else open as many groups as fit."""
    ways: list[tuple[float, list[int | Group], tuple[str, ...]]] = []
    for limit in SHOWN if view.group.size > WHOLE else (WHOLE, *SHOWN):
        _choose_boxes(view, limit)
        if not ways or view.boxes != ways[-1][1]:
            ways.append((excess(view), view.boxes, view.path))
        if ways[-1][0] <= 1.0 or len(view.boxes) <= len(view.group.members):
            break
    _, view.boxes, view.path = min(ways, key=lambda way: way[0])


def tree_of_groups(scene: Scene) -> Group:
    order = topological_order(scene)
    tree = group_by_place(scene, order)
    groups = [tree]
    for group in groups:  # grows while it is read
        groups += filter(is_group, group.members)
    similarity = Similarity(scene)
    for group in reversed(groups):  # inner ones first
        collapse(group)
        if group.kind != "loop":
            group_repetitions(group, similarity)
        divide(group, similarity)
        similarity.measure(group)
    collapse(tree)
    entitle(scene, tree)
    return tree


def _choose_boxes(view: View, limit: int) -> None:
    """Choose the boxes of a view: open groups as long as there are at most ``limit`` boxes."""
    group = view.group
    # Layers are distinguished by their own names: "layers.3".
    layers = group.kind in ("run", "range") and not group.steps
    view.path = group.path[:-1] if layers else group.path
    view.of = group.recurs or steps_suffix(group)
    if group.size <= limit:
        view.boxes = list(group.nodes())
        return
    visible = list(group.members)
    _open_lone_group(visible, view, limit)
    modules = [box for box in visible if isinstance(box, Group) and box.kind == "module"]
    depths = {id(box): 0 for box in visible}
    if len(modules) == 1 and sum(map(is_module, modules[0].members)) > 2:  # the model comes first
        depths[id(modules[0])] = -1
    while True:
        similar: dict[object, list[Group]] = defaultdict(list)
        for box in visible:
            if isinstance(box, Group) and _opens(box, len(visible)):
                similar[box.path if box.kind == "layer" else box.like].append(box)
        cost = {like: sum(len(box.members) - 1 for box in boxes) for like, boxes in similar.items()}
        depth = {like: max(depths[id(box)] for box in boxes) for like, boxes in similar.items()}
        # Outer groups first, and among these the cheap ones.
        like = min(
            (like for like in cost if len(visible) + cost[like] <= limit),
            key=lambda like: (depth[like], cost[like]),
            default=None,
        )
        if like is None:
            break
        opened = {id(box) for box in similar[like]}
        deeper = max(depth[like], 0) + 1
        depths |= {id(part): deeper for box in similar[like] for part in box.members}
        visible = [
            part
            for box in visible
            for part in (box.members if isinstance(box, Group) and id(box) in opened else [box])
        ]
    _open_lone_group(visible, view, limit)
    view.boxes = visible


def _open_lone_group(boxes: list[int | Group], view: View, limit: int) -> None:
    """Open the group among the boxes, and again the group inside it, while there is only one.

    It stays closed if that makes too many boxes, or if it is a stack of similar layers.
    """
    while len(groups := [*filter(is_group, boxes)]) == 1:
        (inner,) = groups
        if len(boxes) + len(inner.members) > (limit if inner.kind in ("run", "loop") else MOST):
            break
        if inner.kind == "run" and not inner.steps:  # layers: "× 12" says it
            break
        place = boxes.index(inner)
        boxes[place : place + 1] = inner.members
        view.path = inner.path if inner.kind == "module" and view.parent is not None else view.path


_FEW = 5  # layers
_ENOUGH = 8  # boxes, which is enough to show the parts


def _opens(group: Group, shown: int) -> bool:
    """Whether the enclosing view may show a group's members in place of the group.

    It may for lines, loops, time steps, at most ``_FEW`` similar layers, operations between
    modules, and, until ``_ENOUGH`` boxes are ``shown``, modules with two levels of groups inside.
    """
    if group.kind == "run":
        return group.steps or len(repeated_items(group)) <= _FEW
    if group.kind in ("module", "layer"):
        inner = [part for m in group.members if isinstance(m, Group) for part in m.members]
        return group.operations > 0 and shown < _ENOUGH and any(map(is_group, inner))
    return group.kind in ("line", "loop", "between")
