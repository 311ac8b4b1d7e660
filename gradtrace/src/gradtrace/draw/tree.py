"""The tree of groups by loop, line and module, before repetition is looked for."""

from __future__ import annotations

import re
from collections import defaultdict

from gradtrace.draw.groups import Group, shared_module
from gradtrace.draw.module_paths import module_paths, parameter_modules
from gradtrace.draw.scene import Place, Scene


def group_by_place(scene: Scene, order: list[int]) -> Group:
    places = _places_of(scene, order)
    calls = _call_numbers(places, order)
    root = Group("all")
    open_groups: list[Group] = [root]
    keys: list[Place] = []
    around: dict[int, tuple[Group, ...]] = {}  # for each operation, the groups that it is in
    used = {j for i in order for j in scene.nodes[i].next}
    unused: dict[str, list[int | Group]] = defaultdict(list)
    for i, node in enumerate(scene.nodes):
        if node.leaf and i not in used:
            unused[node.module[0] if node.module else ""].append(i)
    for module, leaves in unused.items():
        if module and len(leaves) > 2:
            leaves = [Group("leaves", (module,), leaves)]
        root.members += leaves
    for i in order:
        path = places[i]
        shared = 0
        while shared < min(len(keys), len(path)) and keys[shared] == path[shared]:
            shared += 1
        del open_groups[shared + 1 :], keys[shared:]
        for place in path[shared:]:
            inner = Group(place.kind, place.path, place=place, call=calls.get(place))
            open_groups[-1].members.append(inner)
            open_groups.append(inner)
            keys.append(place)
        open_groups[-1].members.append(i)
        around[i] = tuple(open_groups)
    _add_leaves(scene, root, order, around)
    return root


def _places_of(scene: Scene, order: list[int]) -> dict[int, tuple[Place, ...]]:
    """What each operation was made in, outermost first."""
    places = {i: scene.nodes[i].places for i in order}
    if scene.calls_known:
        # What uses parameters of a module that was not called, as with torch.nn.functional.
        paths = {
            i: path for i, path in parameter_modules(scene, order).items() if not places[i][-1].path
        }
    else:
        paths = module_paths(scene, order)
    for i, path in paths.items():
        modules = (Place("module", None, None, path[:k]) for k in range(1, len(path) + 1))
        places[i] = (*places[i], *modules)
    _add_recurrent_layers(scene, order, places)
    return places


_RECURRENT_LAYER = re.compile(r"_l(\d+)(_reverse)?$")  # as torch.nn.RNNBase names its parameters


def _add_recurrent_layers(
    scene: Scene, order: list[int], places: dict[int, tuple[Place, ...]]
) -> None:
    """Add the layers of recurrent modules, which are told by the names of their parameters."""
    found: dict[int, str] = {}
    inside: dict[Place, list[int]] = defaultdict(list)
    for i in order:
        place = places[i][-1] if places[i] else None
        if place is None or place.kind != "module":
            continue
        inside[place].append(i)
        for j in scene.nodes[i].next:
            node = scene.nodes[j]
            if node.leaf and (match := _RECURRENT_LAYER.search(node.label)) is not None:
                found[i] = f"layer {match[1]}{', reverse' if match[2] else ''}"
    for place, operations in inside.items():
        if len({found[i] for i in operations if i in found}) < 2:
            continue
        layer = None
        of: dict[int, str | None] = {}
        for i in operations:
            before = {of[j] for j in scene.nodes[i].next if j in of} - {layer}
            layer = found.get(i, None if layer is not None and len(before) > 0 else layer)
            of[i] = layer
            if layer is not None:
                places[i] = (*places[i], Place("layer", layer, None, place.path))


def _call_numbers(places: dict[int, tuple[Place, ...]], order: list[int]) -> dict[Place, int]:
    """For the calls of modules that are called several times in one place: which it is, from 1."""
    calls: dict[tuple[Place | None, tuple[str, ...]], dict[Place, int]] = defaultdict(dict)
    for i in order:
        around = None
        for place in places[i]:
            if place.kind == "module" and place.number is not None:
                known = calls[around, place.path]
                known.setdefault(place, len(known) + 1)
            if place.kind == "iteration" or (place.number is not None and place.path):
                around = place
    return {
        place: number
        for several in calls.values()
        if len(several) > 1
        for place, number in several.items()
    }


def _add_leaves(
    scene: Scene, root: Group, order: list[int], around: dict[int, tuple[Group, ...]]
) -> None:
    """Put each leaf into the innermost group that uses it, before what uses it first."""
    depths: dict[int, int] = {}
    first: dict[int, int] = {}
    for i in order:
        for j in scene.nodes[i].next:
            if scene.nodes[j].leaf:
                groups = around[i]
                if j not in first:
                    first[j] = i
                    depths[j] = len(groups) if scene.nodes[j].module else 1
                known = around[first[j]]
                while known[depths[j] - 1] is not groups[min(depths[j], len(groups)) - 1]:
                    depths[j] -= 1
                if known[depths[j] - 1].kind == "loop":  # its iterations stand side by side
                    depths[j] -= 1
    before: dict[int, dict[int, list[int | Group]]] = defaultdict(lambda: defaultdict(list))
    changed: dict[int, Group] = {}
    for j, depth in sorted(depths.items()):
        groups = around[first[j]]
        group = groups[depth - 1]
        anchor = id(groups[depth]) if depth < len(groups) else first[j]
        before[id(group)][anchor].append(j)
        changed[id(group)] = group
    for key, group in changed.items():
        for anchor, leaves in before[key].items():
            before[key][anchor] = _by_module(scene, leaves, len(group.path))
        group.members = [
            part
            for member in group.members
            for part in (
                *before[key].get(id(member) if isinstance(member, Group) else member, ()),
                member,
            )
        ]


def _by_module(scene: Scene, leaves: list[int | Group], depth: int) -> list[int | Group]:
    """Those of one module in a group of their own, if there are several."""
    modules: dict[tuple[str, ...], list[int | Group]] = defaultdict(list)
    for leaf in leaves:
        assert isinstance(leaf, int)
        modules[scene.nodes[leaf].module[: depth + 1]].append(leaf)
    return [
        part
        for path, some in modules.items()
        for part in (
            [Group("leaves", shared_module(scene, some), some)] if path and len(some) > 2 else some
        )
    ]


def collapse(group: Group) -> None:
    """A group with one member is that member, but an iteration keeps its name."""
    members = []
    for member in group.members:
        while isinstance(member, Group) and len(member.members) == 1:
            inner = member.members[0]
            if not isinstance(inner, Group):
                member = inner
            elif member.kind == "iteration":
                member.members, member.path = inner.members, member.path or inner.path
            else:
                inner.path = inner.path or member.path
                if member.kind == "loop" and inner.kind == "iteration":  # the only one
                    inner.kind = "line"
                member = inner
        members.append(member)
    group.members = members
