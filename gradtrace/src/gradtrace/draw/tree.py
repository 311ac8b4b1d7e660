"""Build the tree of groups by loop, line and module, before any repetition is found."""

import re
from collections import defaultdict

from gradtrace.draw.groups import Group, Members, key_of, shared_module
from gradtrace.draw.module_paths import infer_module_paths, parameter_modules
from gradtrace.draw.scene import Scene, Scope


def group_by_place(scene: Scene, order: list[int]) -> Group:
    """Return all operations as a tree of groups by scope, with each leaf before its first user."""
    scopes = _scopes_of(scene, order)
    calls = _call_numbers(scopes, order)
    root = Group("all")
    open_groups: list[Group] = [root]
    keys: list[Scope] = []
    enclosing: dict[int, tuple[Group, ...]] = {}  # for each operation, the groups that it is in
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
        path = scopes[i]
        shared = 0
        while shared < min(len(keys), len(path)) and keys[shared] == path[shared]:
            shared += 1
        del open_groups[shared + 1 :], keys[shared:]
        for scope in path[shared:]:
            inner = Group(scope.kind, scope.path, scope=scope, call=calls.get(scope))
            open_groups[-1].members.append(inner)
            open_groups.append(inner)
            keys.append(scope)
        open_groups[-1].members.append(i)
        enclosing[i] = tuple(open_groups)
    _add_leaves(scene, order, enclosing)
    return root


def _scopes_of(scene: Scene, order: list[int]) -> dict[int, tuple[Scope, ...]]:
    """Return the scopes of each operation, outermost first."""
    scopes = {i: scene.nodes[i].scopes for i in order}
    if scene.calls_known:
        # What uses parameters of a module that was not called, as with torch.nn.functional.
        paths = {
            i: path for i, path in parameter_modules(scene, order).items() if not scopes[i][-1].path
        }
    else:
        paths = infer_module_paths(scene, order)
    for i, path in paths.items():
        modules = (Scope("module", None, None, path[:k]) for k in range(1, len(path) + 1))
        scopes[i] = (*scopes[i], *modules)
    _add_recurrent_layers(scene, order, scopes)
    return scopes


_RECURRENT_LAYER = re.compile(r"_l(\d+)(_reverse)?$")  # as torch.nn.RNNBase names its parameters


def _add_recurrent_layers(
    scene: Scene, order: list[int], scopes: dict[int, tuple[Scope, ...]]
) -> None:
    """Add a scope for each layer of recurrent modules whose parameters name several layers."""
    layer_names: dict[int, str] = {}
    operations_of: dict[Scope, list[int]] = defaultdict(list)
    for i in order:
        scope = scopes[i][-1] if scopes[i] else None
        if scope is None or scope.kind != "module":
            continue
        operations_of[scope].append(i)
        for j in scene.nodes[i].next:
            node = scene.nodes[j]
            if node.leaf and (match := _RECURRENT_LAYER.search(node.label)) is not None:
                layer_names[i] = f"layer {match[1]}{', reverse' if match[2] else ''}"
    for scope, operations in operations_of.items():
        if len({layer_names[i] for i in operations if i in layer_names}) < 2:
            continue
        layer = None
        of: dict[int, str | None] = {}
        for i in operations:
            input_layers = {of[j] for j in scene.nodes[i].next if j in of} - {layer}
            layer = layer_names.get(i, None if input_layers else layer)
            of[i] = layer
            if layer is not None:
                scopes[i] = (*scopes[i], Scope("layer", layer, None, scope.path))


def _call_numbers(scopes: dict[int, tuple[Scope, ...]], order: list[int]) -> dict[Scope, int]:
    """Number the calls of each module that is called several times in one scope, from 1."""
    calls: dict[tuple[Scope | None, tuple[str, ...]], dict[Scope, int]] = defaultdict(dict)
    for i in order:
        enclosing = None
        for scope in scopes[i]:
            if scope.kind == "module" and scope.number is not None:
                numbers = calls[enclosing, scope.path]
                numbers.setdefault(scope, len(numbers) + 1)
            if scope.kind == "iteration" or (scope.number is not None and scope.path):
                enclosing = scope
    return {
        scope: number
        for several in calls.values()
        if len(several) > 1
        for scope, number in several.items()
    }


def _add_leaves(scene: Scene, order: list[int], enclosing: dict[int, tuple[Group, ...]]) -> None:
    """Put parameters into the innermost non-loop group of all users, other leaves into the root."""
    depths: dict[int, int] = {}
    first: dict[int, int] = {}
    for i in order:
        for j in scene.nodes[i].next:
            if scene.nodes[j].leaf:
                groups = enclosing[i]
                if j not in first:
                    first[j] = i
                    depths[j] = len(groups) if scene.nodes[j].module else 1
                first_groups = enclosing[first[j]]
                while first_groups[depths[j] - 1] is not groups[min(depths[j], len(groups)) - 1]:
                    depths[j] -= 1
                if first_groups[depths[j] - 1].kind == "loop":  # its iterations stand side by side
                    depths[j] -= 1
    preceding: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    changed: dict[int, Group] = {}
    for j, depth in sorted(depths.items()):
        groups = enclosing[first[j]]
        group = groups[depth - 1]
        anchor = id(groups[depth]) if depth < len(groups) else first[j]
        preceding[id(group)][anchor].append(j)
        changed[id(group)] = group
    for key, group in changed.items():
        depth = len(group.path)
        before = {at: _by_module(scene, leaves, depth) for at, leaves in preceding[key].items()}
        group.members = [
            part for member in group.members for part in (*before.get(key_of(member), ()), member)
        ]


def _by_module(scene: Scene, leaves: list[int], depth: int) -> Members:
    """Return leaves, with one group in place of those of each module that has more than two."""
    modules: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for leaf in leaves:
        modules[scene.nodes[leaf].module[: depth + 1]].append(leaf)
    parts: Members = []
    for path, several in modules.items():
        large = bool(path) and len(several) > 2
        parts += [Group("leaves", shared_module(scene, several), [*several])] if large else several
    return parts


def collapse(group: Group) -> None:
    """Replace members that are groups of one by their member; iterations keep their titles."""
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
