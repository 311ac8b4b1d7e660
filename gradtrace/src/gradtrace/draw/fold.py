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

import heapq
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple, TypeGuard

from gradtrace.draw.scene import Place, Scene

WHOLE = 28  # nodes: a group of no more is shown node by node, where that fits
SHOWN = (16, 12, 9, 6)  # boxes: groups are opened as long as no more are shown, and these fit
MOST = 12  # members of one group
ALIKE = 6  # neighbours that look alike are one group from here on
LAYERS = 3  # the same for modules with names of their own

_LONGEST_PERIOD = 256  # members of what repeats
_CANDIDATES = 12  # periods that are tried at one place


@dataclass
class Group:
    """An interval of nodes, some of them in groups of their own.

    ``kind`` is that of a :class:`~gradtrace.draw.scene.Place`, or ``"all"``, ``"round"`` (what
    repeats, once), ``"run"`` (neighbours that look alike), ``"leaves"`` (those that several of them
    use), ``"beside"`` (what stands before or after time steps), ``"between"`` (operations between
    modules) or ``"range"``.  ``path`` is the module's.
    """

    kind: str
    path: tuple[str, ...] = ()
    members: list[int | Group] = field(default_factory=list)
    title: str = ""
    size: int = 0  # nodes in it
    operations: int = 0  # nodes that are no leaves
    moments: tuple[int, int] | None = None  # the first and last at which its nodes were made
    lines: tuple[int, int] | None = None
    like: int = 0  # the same number for groups of the same operations
    place: Place | None = None  # where its operations were made
    call: int | None = None  # of a module that is called several times here: which of them, from 1
    recurs: str | None = None  # of a run that uses some leaves again and again: " of model"
    steps: bool = False  # of a run and its ranges: whether all that repeats has the same name

    def nodes(self) -> Iterator[int]:
        """All nodes in it, those of inner groups too, in the order of the row."""
        pending: list[int | Group] = [self]
        while pending:
            member = pending.pop()
            if isinstance(member, Group):
                pending.extend(reversed(member.members))
            else:
                yield member


@dataclass
class View:
    """What is shown at once: boxes for nodes and groups.

    ``group`` is the one that is open, ``parent`` the index of the view around it.  ``path`` and
    ``of`` need not be said in the titles: the module, and whose steps they are (" of model").
    ``opens`` are, for each box, the index of the view that it opens, None for a node.
    """

    group: Group
    parent: int | None
    boxes: list[int | Group] = field(default_factory=list)
    path: tuple[str, ...] = ()
    of: str = ""
    opens: list[int | None] = field(default_factory=list)


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
        _show(view, most)
        if not ways or view.boxes != ways[-1][1]:
            ways.append((excess(view), view.boxes, view.path))
        if ways[-1][0] <= 1.0 or len(view.boxes) <= len(view.group.members):
            break
    _, view.boxes, view.path = min(ways, key=lambda way: way[0])


def fold(scene: Scene) -> Group:
    """The tree of groups of all nodes."""
    order = in_order(scene)
    tree = _by_line_and_module(scene, order)
    groups = [tree]
    for group in groups:  # grows while it is read
        groups += [member for member in group.members if isinstance(member, Group)]
    alike = _Alike(scene)
    for group in reversed(groups):  # inner ones first
        _collapse(group)
        if group.kind != "loop":
            _repeat(group, alike)
        _divide(group, alike)
        alike.measure(group)
    _collapse(tree)
    _entitle(scene, tree)
    return tree


def in_order(scene: Scene) -> list[int]:
    """The operations, each after those that it builds on, as far as possible as they were made."""
    operations = [i for i, node in enumerate(scene.nodes) if not node.leaf]
    operations.sort(key=lambda i: scene.nodes[i].order or 0)
    place = {node: k for k, node in enumerate(operations)}
    if all(
        place[j] < k for k, i in enumerate(operations) for j in scene.nodes[i].next if j in place
    ):
        return operations
    # Each thread counts its own operations, and backward may have run in several.
    users: dict[int, list[int]] = defaultdict(list)
    waits_for = {i: sum(j in place for j in scene.nodes[i].next) for i in operations}
    for i in operations:
        for j in scene.nodes[i].next:
            if j in place:
                users[j].append(i)
    ready = [(place[i], i) for i in operations if not waits_for[i]]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, i = heapq.heappop(ready)
        ordered.append(i)
        for user in users[i]:
            waits_for[user] -= 1
            if not waits_for[user]:
                heapq.heappush(ready, (place[user], user))
    return ordered


def modules_of(scene: Scene) -> dict[int, tuple[str, ...]]:
    """The module that each operation belongs to; those of no module have an empty one."""
    return _paths(scene, in_order(scene))


def _paths(scene: Scene, order: list[int]) -> dict[int, tuple[str, ...]]:
    """The module of each operation."""
    own = _own(scene, order)

    def nearest(row: Sequence[int]) -> dict[int, tuple[str, ...]]:
        """For each operation the module of the last one before that has any, made by this line."""
        found: dict[int, tuple[str, ...]] = {}
        path: tuple[str, ...] = ()
        line: int | None = None
        for i in row:
            if scene.nodes[i].line != line:
                line, path = scene.nodes[i].line, ()
            path = found[i] = own.get(i, path)
        return found

    before, after = nearest(order), nearest(order[::-1])
    paths = {i: own[i] if i in own else _common([before[i], after[i]]) for i in order}
    _follow_suit(scene, order, own, paths)
    return paths


def _own(scene: Scene, order: list[int]) -> dict[int, tuple[str, ...]]:
    """The module of the parameters that an operation uses."""
    own: dict[int, tuple[str, ...]] = {}
    for i in order:
        used = [scene.nodes[j].module for j in scene.nodes[i].next if scene.nodes[j].leaf]
        used = [path for path in used if path]
        if used:
            own[i] = _common(used)
    return own


def _follow_suit(
    scene: Scene,
    order: list[int],
    own: dict[int, tuple[str, ...]],
    paths: dict[int, tuple[str, ...]],
) -> None:
    """What follows the last of several layers belongs to them as what follows the others does."""
    tails: list[tuple[int, list[int]]] = []
    for i in order:
        if i in own:
            tails.append((i, []))
        elif tails and scene.nodes[i].line == scene.nodes[tails[-1][0]].line:
            tails[-1][1].append(i)
    known: dict[tuple[str, ...], tuple[int, int, list[str]]] = {}  # depth, length, operations
    for begin, tail in tails:
        key = _kind(scene, begin, own[begin])
        if tail and (depth := len(paths[tail[0]])):
            found = depth, len(tail), [scene.nodes[i].name for i in tail]
            known[key] = max(known.get(key, found), found)
    for begin, tail in tails:
        depth, length, names = known.get(_kind(scene, begin, own[begin]), (0, 0, []))
        alike = 0
        while alike < min(length, len(tail)) and scene.nodes[tail[alike]].name == names[alike]:
            alike += 1
        if 2 * alike > length and len(paths[tail[0]]) < depth:  # the next layer may begin in it
            paths.update(dict.fromkeys(tail[:alike], own[begin][:depth]))


def _kind(scene: Scene, node: int, path: tuple[str, ...]) -> tuple[str, ...]:
    """The module and the operation, the same for all layers of a stack."""
    return (*("" if part.isdecimal() else part for part in path), scene.nodes[node].name)


def _common(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    """What all begin with."""
    shared = paths[0]
    for path in paths[1:]:
        length = 0
        for one, other in zip(shared, path, strict=False):
            if one != other:
                break
            length += 1
        shared = shared[:length]
    return shared


def _by_line_and_module(scene: Scene, order: list[int]) -> Group:
    places = _places(scene, order)
    calls = _numbered(places, order)
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


def _places(scene: Scene, order: list[int]) -> dict[int, tuple[Place, ...]]:
    """What each operation was made in, outermost first."""
    places = {i: scene.nodes[i].places for i in order}
    if scene.calls_known:
        # What uses parameters of a module that was not called, as with torch.nn.functional.
        paths = {i: path for i, path in _own(scene, order).items() if not places[i][-1].path}
    else:
        paths = _paths(scene, order)
    for i, path in paths.items():
        modules = (Place("module", None, None, path[:k]) for k in range(1, len(path) + 1))
        places[i] = (*places[i], *modules)
    _add_layers(scene, order, places)
    return places


_LAYER = re.compile(r"_l(\d+)(_reverse)?$")  # as torch.nn.RNNBase names its parameters


def _add_layers(scene: Scene, order: list[int], places: dict[int, tuple[Place, ...]]) -> None:
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
            if node.leaf and (match := _LAYER.search(node.label)) is not None:
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


def _numbered(places: dict[int, tuple[Place, ...]], order: list[int]) -> dict[Place, int]:
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
            [Group("leaves", _path_of(scene, some), some)] if path and len(some) > 2 else some
        )
    ]


def _collapse(group: Group) -> None:
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


class _Alike:
    """Numbers for what looks alike, leaves aside.

    Modules do whose parameters have the same names and are used by the same operations, all else
    that consists of the same operations.
    """

    def __init__(self, scene: Scene):
        self.scene = scene
        self._numbers: dict[object, int] = {}
        self._users: dict[int, list[int]] = defaultdict(list)  # of each leaf
        for i, node in enumerate(scene.nodes):
            for j in node.next:
                if scene.nodes[j].leaf:
                    self._users[j].append(i)

    def divided(
        self, parts: list[int | Group], first: bool
    ) -> tuple[list[int | Group], list[int | Group]]:
        """The parts of a round, and the leaves among them that others use, too.

        So are those that belong to no module and come before the ``first`` round.
        """
        if all(self.number(part) is not None for part in parts):
            return parts, []
        within = set(Group("round", (), parts).nodes())
        own: list[int | Group] = []
        others: list[int | Group] = []
        for part in parts:
            leaves = list(_nodes(part))
            stays = self.number(part) is not None or (
                all(within.issuperset(self._users[leaf]) for leaf in leaves)
                and (not first or all(self.scene.nodes[leaf].module for leaf in leaves))
            )
            (own if stays else others).append(part)
        return own, others

    def recurs(self, leaves: list[int | Group], rounds: list[int | Group]) -> bool:
        """Whether some of these leaves are used in more than one of the rounds."""
        round_of = {node: number for number, one in enumerate(rounds) for node in _nodes(one)}
        several = [leaf for one in leaves for leaf in _nodes(one)]
        users = [{round_of[i] for i in self._users[leaf] if i in round_of} for leaf in several]
        return any(len(used_in) > 1 for used_in in users)

    def number(self, member: int | Group) -> int | None:
        """None for a leaf, or several."""
        if isinstance(member, Group):
            return None if member.kind == "leaves" else member.like
        node = self.scene.nodes[member]
        return None if node.leaf else self._intern(node.name)

    def _parameters(self, group: Group) -> tuple[tuple[str, str], ...]:
        """The parameters that a module uses, by their names within it, and by what operations."""
        nodes, prefix = self.scene.nodes, ".".join(group.path)
        return tuple(
            sorted(
                {
                    (nodes[j].label.removeprefix(prefix), nodes[i].name)
                    for i in group.nodes()
                    for j in nodes[i].next
                    if nodes[j].leaf and nodes[j].label.startswith(prefix)
                }
            )
        )

    def _intern(self, key: object) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def measure(self, group: Group) -> Group:
        """Fill in what follows from its members."""
        numbers = [number for m in group.members if (number := self.number(m)) is not None]
        looks: object = tuple(numbers)
        if group.kind == "module":
            name = re.sub(r"\d+", "", ".".join(group.path))
            looks = (name, self._parameters(group) or looks)
        group.like = self._intern(looks)
        group.size = group.operations = 0
        moments: list[int] = []
        lines: list[int] = []
        for member in group.members:
            if isinstance(member, Group):
                group.size += member.size
                group.operations += member.operations
                moments += member.moments or ()
                lines += member.lines or ()
            else:
                node = self.scene.nodes[member]
                group.size += 1
                if not node.leaf:
                    group.operations += 1
                    moments += [] if node.moment is None else [node.moment]
                    lines += [] if node.line is None else [node.line]
        group.moments = (min(moments), max(moments)) if moments else None
        group.lines = (min(lines), max(lines)) if lines else None
        return group


def _repeat(group: Group, alike: _Alike) -> None:
    """Put neighbours that look alike into a group of their own."""
    if len(group.members) < LAYERS:
        return
    # Each member that counts, with the leaves before it.
    units: list[list[int | Group]] = []
    numbers: list[int] = []
    leaves: list[int | Group] = []
    for member in group.members:
        number = alike.number(member)
        leaves.append(member)
        if number is not None:
            units.append(leaves)
            numbers.append(number)
            leaves = []
    least = ALIKE if len(group.members) <= MOST else 3
    members: list[int | Group] = []
    at = 0
    for start, period, times in _runs(numbers, min(least, LAYERS)):
        if start < at:  # the run before has taken its last round from this one
            continue
        if times < least and not _layers(units, start, period, times):
            continue
        before = [part for unit in units[at:start] for part in unit]
        at = start + period * times
        at = last = at + _begun(units[start : start + period], numbers[start:at], numbers[at:])
        shared: list[int | Group] = []
        rounds: list[int | Group] = []
        for begin in range(start, last, period):
            parts = [part for unit in units[begin : min(begin + period, last)] for part in unit]
            own, used_elsewhere = alike.divided(parts, first=not rounds)
            shared += used_elsewhere
            one = own[0] if len(own) == 1 else alike.measure(Group("round", group.path, own))
            rounds.append(one)
        loose = [part for part in shared if isinstance(part, int)]
        if len(loose) > 1:
            several = Group("leaves", _path_of(alike.scene, loose), [*loose])
            shared = [alike.measure(several), *filter(_is_group, shared)]
        recurs = alike.recurs(shared, rounds)
        members += _beside(group, alike, before, "before") if recurs else before
        members += shared
        run = Group("run", group.path, rounds, recurs=_of(group) if recurs else None)
        _divide(run, alike)
        members.append(alike.measure(run))
    after = [member for unit in units[at:] for member in unit] + leaves
    end = members[-1] if members else None
    follows = isinstance(end, Group) and end.recurs is not None
    group.members = members + (_beside(group, alike, after, "after") if follows else after)


def _beside(
    group: Group, alike: _Alike, members: list[int | Group], where: str
) -> list[int | Group]:
    """The operations before or after the time steps of a module, as one group."""
    modules = any(isinstance(m, Group) and m.kind in ("module", "layer") for m in members)
    if len(members) < 2 or group.kind not in ("module", "layer") or modules:
        return members
    return [alike.measure(Group("beside", group.path, members, f"{where} the steps{_of(group)}"))]


def _of(group: Group) -> str:
    """Whose steps they are."""
    if group.kind == "layer" and group.place is not None:
        return f" of {group.place.number}"
    return f" of {'.'.join(group.path)}" if group.path else ""


def _layers(units: list[list[int | Group]], start: int, period: int, times: int) -> bool:
    """Whether what repeats there are modules with names of their own."""
    paths = [
        {part.path for unit in units[k : k + period] for part in unit if _is_module(part)}
        for k in range(start, start + period * times, period)
    ]
    return all(paths) and not set.intersection(*paths)


def _nodes(part: int | Group) -> Iterator[int]:
    return part.nodes() if isinstance(part, Group) else iter([part])


def _is_group(part: int | Group) -> TypeGuard[Group]:
    return isinstance(part, Group)


def _is_module(part: int | Group) -> TypeGuard[Group]:
    return isinstance(part, Group) and part.kind == "module"


def _path_of(scene: Scene, leaves: Sequence[int | Group]) -> tuple[str, ...]:
    """The module that these leaves have in common."""
    return _common([scene.nodes[leaf].module for leaf in leaves if not isinstance(leaf, Group)])


def _begun(pattern: list[list[int | Group]], numbers: list[int], after: list[int]) -> int:
    """How much of the pattern is there once more, if that is all but the operations at its end.

    What stands between two layers belongs to the first; nothing stands behind the last.
    """
    groups = [place for place, unit in enumerate(pattern) if isinstance(unit[-1], Group)]
    needed = groups[-1] + 1 if groups else len(pattern)
    return needed if needed < len(pattern) and after[:needed] == numbers[:needed] else 0


def _runs(numbers: list[int], least: int) -> Iterator[tuple[int, int, int]]:
    """Where something repeats: the place, the length of what repeats, and how often it is there.

    >>> list(_runs([7, 1, 2, 1, 2, 1, 2, 9], 3))
    [(1, 2, 3)]
    """
    after: dict[int, int] = {}
    next_like = [0] * len(numbers)
    for place in range(len(numbers) - 1, -1, -1):
        next_like[place] = after.get(numbers[place], 0)
        after[numbers[place]] = place
    place = 0
    while place < len(numbers):
        best = (0, 0, 0)  # how much it covers, minus the period, times
        other = place
        for _ in range(_CANDIDATES):
            other = next_like[other]
            period = other - place
            if not other or period > _LONGEST_PERIOD:
                break
            pattern = numbers[place:other]
            times = 1
            while numbers[place + times * period : place + (times + 1) * period] == pattern:
                times += 1
            if times >= least:
                best = max(best, (times * period, -period, times))
                if period == 1:
                    break
        covered, period, times = best
        if covered:
            yield place, -period, times
            place += covered
        else:
            place += 1


def _divide(group: Group, alike: _Alike) -> None:
    """Put what is too much side by side into ranges of neighbours.

    Of what repeats the first, the second and the last stay apart: so one sees how it goes on.
    """
    if len(group.members) <= (MOST if group.recurs is None else ALIKE):
        return
    if group.kind not in ("run", "loop"):
        _between_groups(group, alike)
        _into_ranges(group, 0, alike)
        return
    first, second, *others, last = group.members
    middle = Group("range", group.path, others)
    _into_ranges(middle, 2, alike)
    group.members = [first, second, alike.measure(middle), last]


def _between_groups(group: Group, alike: _Alike) -> None:
    """Put what stands between modules together, so that the modules stay apart with their names."""
    depth = len(group.path)
    inner = [part for part in group.members if isinstance(part, Group) and len(part.path) > depth]
    if sum(part.kind != "leaves" for part in inner) < 2:
        return
    members: list[int | Group] = []
    for grouped, some in groupby(group.members, _is_group):
        parts = list(some)
        if not grouped and len(parts) > 1:
            between = Group("between", group.path, parts)
            _into_ranges(between, 0, alike)
            parts = [alike.measure(between)]
        members += parts
    group.members = members


def _into_ranges(group: Group, begin: int, alike: _Alike) -> None:
    """Ranges that end where a multiple of their size does; ``begin`` is the first one's number."""
    while (count := len(group.members)) > MOST:
        size = next((size for size in _SIZES if size * size >= count), _SIZES[-1])
        ranges: list[int | Group] = []
        at = 0
        while at < count:
            end = at + size - (begin + at) % size
            part = Group("range", group.path, group.members[at:end])
            ranges.append(alike.measure(part) if len(part.members) > 1 else part.members[0])
            at = end
        group.members, begin = ranges, begin // size


_SIZES = (2, 5, 10)


def _show(view: View, most: int) -> None:
    """Find the boxes of a view: groups are opened as long as there are no more than ``most``."""
    group = view.group
    # Layers are told by their own names: "layers.3".
    layers = group.kind in ("run", "range") and not group.steps
    view.path = group.path[:-1] if layers else group.path
    view.of = group.recurs or _of(group)
    if group.size <= most:
        view.boxes = list(group.nodes())
        return
    shown = list(group.members)
    _open_lone(shown, view, most)
    modules = [box for box in shown if isinstance(box, Group) and box.kind == "module"]
    depths = {id(box): 0 for box in shown}
    if len(modules) == 1 and sum(map(_is_module, modules[0].members)) > 2:  # the model comes first
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
    _open_lone(shown, view, most)
    view.boxes = shown


def _open_lone(shown: list[int | Group], view: View, most: int) -> None:
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
        return apart or group.steps or len(_items(group)) <= _FEW
    if group.kind in ("module", "layer"):
        inner = [part for m in group.members if isinstance(m, Group) for part in m.members]
        return group.operations > 0 and shown < _ENOUGH and any(map(_is_group, inner))
    return group.kind in ("line", "loop", "between")


# Titles


def _entitle(scene: Scene, tree: Group) -> None:
    groups = [tree]
    for group in groups:
        groups += [member for member in group.members if isinstance(member, Group)]
    used = {j for node in scene.nodes for j in node.next}
    for group in reversed(groups):
        group.title = _title(scene, group, used)
    for group in groups:  # outer ones first: each names its items
        if group.kind in ("run", "loop"):
            _number(scene, group)


def _title(scene: Scene, group: Group, used: set[int]) -> str:
    path = ".".join(group.path)
    if group.kind == "all":
        return "the whole graph"
    if group.kind == "module":
        return path if group.call is None else f"{path} (call {group.call})"
    if group.kind == "layer" and group.place is not None:
        return f"{group.place.number} of {path}"
    if group.kind == "iteration" and group.place is not None:
        return f"iteration {group.place.number}, line {group.place.line}"
    if group.kind == "beside":
        return group.title
    if group.kind == "leaves":
        what = "parameters" if group.path else "leaves"
        what = what if used.issuperset(group.nodes()) else f"unused {what}"
        return ": ".join(filter(None, [path, f"{group.size} {what}"]))
    if group.kind == "line" and group.lines is not None and group.lines[0] == group.lines[1]:
        line = group.lines[0]
        return f"line {line}: {scene.source.get(line, '').strip()}"
    return _name(scene, group)


def _name(scene: Scene, group: Group) -> str:
    """What a group is called that is neither a module nor a line: after what is in it."""
    titles = [m.title for m in group.members if isinstance(m, Group) and m.kind == "module"]

    def made(node: int) -> bool:
        return not scene.nodes[node].leaf

    if group.kind == "round" and titles:
        # What belongs to no module of its own is said: its bytes are not the module's.
        rest = [scene.nodes[m].name for m in group.members if isinstance(m, int) and made(m)]
        more = _short(rest[0]) if len(rest) == 1 else f"{len(rest)} operations"
        others = [_span(titles[0], other).split(" to ")[1] for other in titles[1:]]
        named = _COMMA.join([titles[0], *others])
        return f"{named}{_AND}{more}" if rest else named
    if group.path and group.kind in ("round", "run") and not titles:
        return ".".join(group.path)
    if group.kind == "range" and titles:
        return titles[0] if len(titles) == 1 else _span(titles[0], titles[-1])
    if (
        group.lines is not None
        and group.moments is not None
        and group.moments[0] < group.moments[1]
    ):
        first, last = group.lines
        return f"line {first}" if first == last else f"lines {first} to {last}"
    names = [scene.nodes[i].name for i in group.nodes() if not scene.nodes[i].leaf]
    if not names:
        return f"{group.size} leaves"
    short = [_short(name) for name in (names[0], names[-1])]
    return short[0] if len(set(names)) == 1 else f"{short[0]} … {short[1]}"


_COMMA, _AND = ", ", " + "  # between modules, and before the operations that follow them


def _short(name: str) -> str:
    """The name of an operation.

    >>> _short("TanhBackward0"), _short("AddBackward1")
    ('Tanh', 'Add')
    """
    return re.sub(r"Backward\d*$", "", name)


def _items(run: Group) -> list[int | Group]:
    """What repeats, ranges left aside."""
    items = list(run.members)
    while any(isinstance(item, Group) and item.kind == "range" for item in items):
        items = [
            part
            for item in items
            for part in (
                item.members if isinstance(item, Group) and item.kind == "range" else [item]
            )
        ]
    return items


def _number(scene: Scene, run: Group) -> None:
    """Name a run or a loop, its ranges and its items after each other."""
    items = _items(run)
    names = _names(scene, run, items)
    run.steps, run.title = names.steps, names.all
    places: dict[int, int] = {}  # by identity, or by node
    for place, (item, title) in enumerate(zip(items, names.each, strict=True)):
        if isinstance(item, Group):
            item.title = title
        places[_key(item)] = place
    ranges = [member for member in run.members if isinstance(member, Group)]
    for part in ranges:  # grows while it is read
        if part.kind != "range":
            continue
        inside = _items(part)
        first, last = (places[_key(item)] for item in (inside[0], inside[-1]))
        part.title, part.steps, part.recurs = names.some(first, last), names.steps, run.recurs
        ranges += [member for member in part.members if isinstance(member, Group)]


def _key(item: int | Group) -> int:
    return id(item) if isinstance(item, Group) else item


class _Names(NamedTuple):
    """What to call all that repeats, each of it, and some, from one place to another."""

    all: str
    each: list[str]
    some: Callable[[int, int], str]
    steps: bool  # it is the same again and again


def _names(scene: Scene, run: Group, items: list[int | Group]) -> _Names:
    titles = [item.title if isinstance(item, Group) else scene.nodes[item].label for item in items]
    paths = [item.path if isinstance(item, Group) else () for item in items]
    count = len(items)
    if run.kind == "loop" and run.place is not None and not (all(paths) and len({*paths}) == count):
        line = run.place.line
        numbers = [_iteration(scene, item, line) for item in items]
        return _Names(
            f"loop on line {line} × {count}",
            titles,
            lambda a, b: f"iterations {numbers[a]} to {numbers[b]}, line {line}",
            True,
        )
    if run.kind == "loop":  # over modules
        titles = [".".join(path) for path in paths]
    calls = [item.call for item in items if isinstance(item, Group) and item.kind == "module"]
    if len(calls) == count and None not in calls and len({*paths}) == 1:
        path = ".".join(paths[0])
        return _Names(
            f"{path} × {count}",
            titles,
            lambda a, b: f"{path} (calls {calls[a]} to {calls[b]})",
            True,
        )
    of = run.recurs
    if len({*titles}) == count and (of is None or len({*map(_uncounted, titles)}) > 1):
        modules = [title.partition(_AND)[0].partition(_COMMA)[0] for title in titles]
        return _Names(
            f"{_span(modules[0], modules[-1])} × {count}",
            titles,
            lambda a, b: _span(modules[a], modules[b]),
            False,
        )
    if of is not None:
        return _Names(
            f"{count} steps{of}",
            [f"step {k}{of}" for k in range(count)],
            lambda a, b: f"steps {a} to {b}{of}",
            True,
        )
    base = titles[0]
    return _Names(
        f"{base} × {count}",
        [f"{base} ({k})" for k in range(1, count + 1)],
        lambda a, b: f"{base} ({a + 1} to {b + 1})",
        True,
    )


def _uncounted(title: str) -> str:
    """A title without the numbers of calls.

    >>> _uncounted("model.cell (call 3)")
    'model.cell'
    """
    return re.sub(r" \(call \d+\)", "", title)


def _iteration(scene: Scene, item: int | Group, line: int | None) -> int | str | None:
    """Which iteration of the loop on this line made it."""
    places = (place for node in _nodes(item) for place in scene.nodes[node].places)
    return next((p.number for p in places if p.kind == "iteration" and p.line == line), None)


def _span(first: str, last: str) -> str:
    """From one to another of the same kind.

    >>> _span("model.layers.0", "model.layers.11")
    'model.layers.0 to 11'
    """
    shared = len(_common([tuple(first.split(".")), tuple(last.split("."))]))
    return f"{first} to {'.'.join(last.split('.')[shared:])}"
