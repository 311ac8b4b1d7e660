"""Derive the titles of groups from their modules, lines or members."""

import re
from collections.abc import Callable
from typing import NamedTuple

from gradtrace.draw.groups import Group, common_prefix, is_group, key_of, nodes_of, repeated_items
from gradtrace.draw.scene import Scene


def entitle(scene: Scene, tree: Group) -> None:
    groups = [tree]
    for group in groups:
        groups += filter(is_group, group.members)
    used = {j for node in scene.nodes for j in node.next}
    for group in reversed(groups):
        group.title = _title_of(scene, group, used)
    for group in groups:  # outer ones first: each names its items
        if group.kind in ("run", "loop"):
            _number_items(scene, group)


def _title_of(scene: Scene, group: Group, used: set[int]) -> str:
    path = ".".join(group.path)
    if group.kind == "all":
        return "the whole graph"
    if group.kind == "module":
        return path if group.call is None else f"{path} (call {group.call})"
    if group.kind == "layer" and group.scope is not None:
        return f"{group.scope.number} of {path}"
    if group.kind == "iteration" and group.scope is not None:
        return f"iteration {group.scope.number}, line {group.scope.line}"
    if group.kind == "beside":
        return group.title
    if group.kind == "leaves":
        noun = "parameters" if group.path else "leaves"
        noun = noun if used.issuperset(group.nodes()) else f"unused {noun}"
        return ": ".join(filter(None, [path, f"{group.size} {noun}"]))
    if group.kind == "line" and group.lines is not None and group.lines[0] == group.lines[1]:
        line = group.lines[0]
        return f"line {line}: {scene.source.get(line, '').strip()}"
    return _name_after_members(scene, group)


def _name_after_members(scene: Scene, group: Group) -> str:
    """Derive the title of a group that is neither a module nor a line from its members."""
    titles = [m.title for m in group.members if isinstance(m, Group) and m.kind == "module"]
    if group.kind == "round" and titles:
        # Name operations of no submodule, because their bytes are not the module's.
        loose_nodes = [scene.nodes[m] for m in group.members if isinstance(m, int)]
        rest = [node.name for node in loose_nodes if not node.leaf]
        loose_operations = operation_name(rest[0]) if len(rest) == 1 else f"{len(rest)} operations"
        further_titles = [_span(titles[0], title).split(" to ")[1] for title in titles[1:]]
        named = _COMMA.join([titles[0], *further_titles])
        return f"{named}{_AND}{loose_operations}" if rest else named
    if group.path and group.kind in ("round", "run") and not titles:
        return ".".join(group.path)
    if group.kind == "range" and titles:
        return titles[0] if len(titles) == 1 else _span(titles[0], titles[-1])
    begin, end = group.moments or (0, 0)
    if group.lines is not None and begin < end:
        first, last = group.lines
        return f"line {first}" if first == last else f"lines {first} to {last}"
    names = [scene.nodes[i].name for i in group.nodes() if not scene.nodes[i].leaf]
    if not names:
        return f"{group.size} leaves"
    short = [operation_name(name) for name in (names[0], names[-1])]
    return short[0] if len(set(names)) == 1 else f"{short[0]} … {short[1]}"


_COMMA, _AND = ", ", " + "  # between modules, and before the operations that follow them


def operation_name(name: str) -> str:
    """Return the name of an operation, from that of its node: ``Tanh`` of ``TanhBackward0``."""
    return re.sub(r"Backward\d*$", "", name)


def _number_items(scene: Scene, run: Group) -> None:
    """Set the titles of a run or a loop, of its ranges and of its items."""
    items = repeated_items(run)
    names = _name_repetition(scene, run, items)
    run.steps, run.title = names.steps, names.all
    places: dict[int, int] = {}
    for place, (item, title) in enumerate(zip(items, names.items, strict=True)):
        if isinstance(item, Group):
            item.title = title
        places[key_of(item)] = place
    ranges = [*filter(is_group, run.members)]
    for part in ranges:  # grows while it is read
        if part.kind != "range":
            continue
        items_inside = repeated_items(part)
        first, last = (places[key_of(item)] for item in (items_inside[0], items_inside[-1]))
        part.title, part.steps, part.recurs = names.range(first, last), names.steps, run.recurs
        ranges += filter(is_group, part.members)


class _Naming(NamedTuple):
    """The titles for a repetition: for all of it, for each item, and for a range of items."""

    all: str
    items: list[str]
    range: Callable[[int, int], str]
    steps: bool = True  # it is the same again and again


def _name_repetition(scene: Scene, run: Group, items: list[int | Group]) -> _Naming:
    titles = [item.title if isinstance(item, Group) else scene.nodes[item].label for item in items]
    paths = [item.path if isinstance(item, Group) else () for item in items]
    count = len(items)
    if run.kind == "loop" and run.scope is not None and not (all(paths) and len({*paths}) == count):
        line = run.scope.line
        numbers = [_iteration_of(scene, item, line) for item in items]
        return _Naming(
            f"loop on line {line} × {count}",
            titles,
            lambda a, b: f"iterations {numbers[a]} to {numbers[b]}, line {line}",
        )
    if run.kind == "loop":  # over modules
        titles = [".".join(path) for path in paths]
    of = run.recurs
    called = {re.sub(r" \(call \d+\)", "", title) for title in titles}
    if len({*titles}) == count and (of is None or len(called) > 1):
        modules = [title.partition(_AND)[0].partition(_COMMA)[0] for title in titles]
        return _Naming(
            f"{_span(modules[0], modules[-1])} × {count}",
            titles,
            lambda a, b: _span(modules[a], modules[b]),
            steps=False,
        )
    if of is not None:
        return _Naming(
            f"{count} steps{of}",
            [f"step {k}{of}" for k in range(count)],
            lambda a, b: f"steps {a} to {b}{of}",
        )
    base = titles[0]
    return _Naming(
        f"{base} × {count}",
        [f"{base} ({k})" for k in range(1, count + 1)],
        lambda a, b: f"{base} ({a + 1} to {b + 1})",
    )


def _iteration_of(scene: Scene, item: int | Group, line: int | None) -> int | str | None:
    """Return the number of the iteration of the loop on ``line`` that created an item, or None."""
    scopes = (scope for node in nodes_of(item) for scope in scene.nodes[node].scopes)
    return next((s.number for s in scopes if s.kind == "iteration" and s.line == line), None)


def _span(first: str, last: str) -> str:
    """Return the title of a range from those of its ends: ``model.layers.0 to 11``."""
    shared = len(common_prefix([tuple(first.split(".")), tuple(last.split("."))]))
    return f"{first} to {'.'.join(last.split('.')[shared:])}"
