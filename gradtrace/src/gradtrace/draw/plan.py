"""The boxes, tensors and links of a view, before they are placed."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from gradtrace.draw.drawing import (
    CHARACTER,
    FRAME,
    LINE,
    NAMES,
    PADDING,
    Box,
    TensorBox,
    label_below,
)
from gradtrace.draw.groups import Group, View
from gradtrace.draw.scene import Scene, clipped

_TENSOR_WIDTH = round(len("999.9 MB") * CHARACTER, 1)
_TENSOR_HEIGHT = 22.0
_MOST_TENSORS = 4  # of one folded box
_STUBS = 5  # neighbours of an open group that are drawn, before it and after it
_BAR = 8.0  # below the rows of a folded box: how much it holds
_STEPS_TEXT = len("steps 20 to 49")
_FOLDED_TEXT = len("99.9 kB, 512 B shared")


@dataclass
class Plan:
    """A view before its boxes have coordinates."""

    boxes: list[Box]
    box_of: dict[int, int]  # for each node, also those outside that a stub stands for
    outer_boxes: dict[int, Box] = field(default_factory=dict)  # the enclosing view's, by node
    links: list[tuple[int, int]] = field(default_factory=list)  # boxes, in the order of backward
    sources: set[int] = field(default_factory=set)  # boxes that stand above their users
    lives: list[tuple[int, int]] = field(default_factory=list)
    tensors: list[TensorBox] = field(default_factory=list)

    def key(self) -> object:
        """Return a value that is equal for plans with the same placement."""
        times = sorted({time for life in self.lives for time in life})
        order = {time: i for i, time in enumerate(times)}
        return (
            tuple((box.kind, box.width, box.height, label_below(box)) for box in self.boxes),
            tuple(self.links),
            tuple(sorted(self.sources)),
            tuple((order[first], order[last]) for first, last in self.lives),
            tuple(
                (tensor_box.box, tensor_box.width, tensor_box.height, tensor_box.room)
                for tensor_box in self.tensors
            ),
        )


def plan_view(scene: Scene, view: View, around: Plan | None) -> Plan:
    """Return the plan of a view; ``around`` is the plan of the enclosing view."""
    nodes, users = scene.nodes, scene.users
    boxes = [_box_of(scene, view, member) for member in view.boxes]
    for box in boxes:
        last = _last_handed_on(scene, box)
        if box.kind == "leaf" or not nodes[last].leaf:
            box.outputs, box.end = nodes[last].outputs, not (nodes[last].leaf or users[last])
    box_of = {node: number for number, box in enumerate(boxes) for node in box.nodes}
    plan = Plan(boxes, box_of)
    links: set[tuple[int, int]] = set()
    # Nodes outside, with the boxes that they meet: what these build on, and what uses them.
    inputs: dict[int, set[int]] = defaultdict(set)
    users_outside: dict[int, set[int]] = defaultdict(set)
    for i, number in box_of.items():
        for j in nodes[i].next:
            input_box = box_of.get(j)
            if input_box is None:
                inputs[j].add(number)
            elif input_box != number:
                links.add((number, input_box))
        for j in users[i]:
            if j not in box_of:
                users_outside[j].add(number)
    if around is not None:
        links |= _stubs(scene, view, plan, around, (inputs, users_outside))
    plan.links = sorted(links)
    starts = {i for i, _ in links}
    for i, box in enumerate(boxes):
        only_leaves = all(nodes[node].leaf for node in box.nodes)
        if i not in starts if box.kind == "outside" else only_leaves:
            plan.sources.add(i)
        begins, ends = zip(*map(scene.lives.__getitem__, box.nodes), strict=True)
        plan.lives.append((min(begins), max(ends)))
    return plan


def _box_of(scene: Scene, view: View, member: int | Group) -> Box:
    """Return the box of a node or a group, with the size that its text needs."""
    if isinstance(member, Group):
        title = clipped(_title_within(view, member.title))
        count = f"{member.size} nodes, {member.size} freed"
        length, rows = max(len(title), len(count), _FOLDED_TEXT), 2
        kind, nodes = "group", list(member.nodes())
    else:
        node = scene.nodes[member]
        title = clipped(_title_within(view, node.label) if node.leaf else node.label)
        length, rows = max(len(title), node.text), node.rows
        kind, nodes = "leaf" if node.leaf else "node", [member]
    width = round(length * CHARACTER + 2 * PADDING, 1)
    height = (1 + rows) * LINE + FRAME + (_BAR if kind == "group" else 0)
    return Box(kind, title, nodes, None, rows, width, height)


def _last_handed_on(scene: Scene, box: Box) -> int:
    """Return the last node of a box whose result is used outside the box, else its last node."""
    last, users = box.nodes[-1], scene.users
    if not users[last] and not scene.nodes[last].leaf:
        members = set(box.nodes)
        for node in reversed(box.nodes):
            if not scene.nodes[node].leaf and not members.issuperset(users[node]):
                return node
    return last


def _title_within(view: View, title: str) -> str:
    """Return a title without the names of the open module and of the owner of time steps."""
    return title.removeprefix("".join(f"{part}." for part in view.path)).removesuffix(view.of)


def _stubs(
    scene: Scene,
    view: View,
    plan: Plan,
    around: Plan,
    neighbours: tuple[Mapping[int, set[int]], Mapping[int, set[int]]],
) -> set[tuple[int, int]]:
    """Add stubs for the neighbours of an open group, and return the links to them.

    Neighbours that are connected to the same boxes share a stub; those of a single box do not if
    there are at most ``_STUBS``. ``neighbours`` are inputs and users, each with its boxes.
    """
    inputs, users = neighbours
    boxes, box_of = plan.boxes, plan.box_of
    one_by_one = all(box.kind != "group" for box in boxes)
    for outside in neighbours:
        # Nodes by the box that they are in; beside single nodes each leaf is one of its own.
        side: dict[tuple[int, int], set[int]] = defaultdict(set)
        meets: dict[tuple[int, int], set[int]] = defaultdict(set)
        homes: dict[int, Box] = {}
        for j, met in outside.items():
            home = around.outer_boxes.get(j) or around.boxes[around.box_of[j]]
            plan.outer_boxes[j] = homes[id(home)] = home
            leaf = j if outside is inputs and one_by_one and scene.nodes[j].leaf else -1
            side[id(home), leaf].add(j)
            meets[id(home), leaf] |= met
        merged: dict[object, list[tuple[int, int]]] = defaultdict(list)
        for key, met in meets.items():
            separate = len(met) == 1 and len(side) <= _STUBS
            merged[key if separate else frozenset(met)].append(key)
        stubs = list(merged.values())
        if len(stubs) > _STUBS:
            stubs = [*stubs[: _STUBS - 1], [key for keys in stubs[_STUBS - 1 :] for key in keys]]
        for keys in stubs:
            nodes = sorted({node for key in keys for node in side[key]})
            box_of.update(dict.fromkeys(nodes, len(boxes)))
            first, leaf = keys[0]
            home = homes[first]
            title = home.title if leaf < 0 else scene.nodes[leaf].label
            suffix = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            title = clipped(_title_within(view, title), len(suffix)) + suffix
            leads_to = view.parent if home.view is None or suffix else home.view
            # Of steps side by side all look alike, whatever the numbers of those beside them.
            length = max(len(title), _STEPS_TEXT if home.kind == "group" else 0)
            width = round(length * CHARACTER + 2 * PADDING, 1)
            height = LINE + FRAME
            boxes.append(Box("outside", title, nodes, leads_to, 0, width, height))
    return {(box, box_of[j]) for j, met in inputs.items() for box in met} | {
        (box_of[j], box) for j, met in users.items() for box in met
    }


def add_tensors(scene: Scene, plan: Plan, at_home: Mapping[int, list[int]]) -> None:
    """Add to a plan the tensors that its view draws: all of single nodes, a few of other boxes."""
    for number, box in enumerate(plan.boxes):
        candidates = [k for node in box.nodes for k in at_home.get(node, ())]
        if box.kind != "node":
            crossing = [k for k in candidates if _crosses_border(scene, plan, k, number)]
            candidates = crossing[-_MOST_TENSORS:]
        for k in candidates:
            tensor = scene.tensors[k]
            assert tensor is not None
            if tensor.life is not None:
                begin, end = plan.lives[number]
                plan.lives[number] = min(begin, tensor.life[0]), max(end, tensor.life[1])
            room = round(NAMES + tensor.room * CHARACTER, 1) if tensor.named else 0.0
            plan.tensors.append(TensorBox(k, number, _TENSOR_WIDTH, _TENSOR_HEIGHT, room))


def _crosses_border(scene: Scene, plan: Plan, k: int, home: int) -> bool:
    """Whether a tensor of a box that is not a single node is drawn beside the box.

    It is if a single node outside saved it. Beside a group, a named tensor that is not plain data
    is also drawn if another box saved it or if no box uses the group.
    """
    tensor = scene.tensors[k]
    assert tensor is not None
    saved = {plan.box_of[i] for i in tensor.savers if i in plan.box_of} - {home}
    if any(plan.boxes[i].kind == "node" for i in saved):
        return True
    if tensor.data or not tensor.named or plan.boxes[home].kind != "group":
        return False
    is_unused = all(end != home for _, end in plan.links)
    return bool(saved) or is_unused
