"""Find repetition among the members of a group, and divide too many members into ranges."""

import re
from collections.abc import Iterator
from itertools import chain, groupby

from gradtrace.draw.groups import (
    ALIKE,
    LAYERS,
    MOST,
    Group,
    Members,
    is_group,
    is_module,
    nodes_of,
    shared_module,
    steps_suffix,
)
from gradtrace.draw.scene import Scene

_LONGEST_PERIOD = 256  # members of what repeats
_CANDIDATES = 12  # periods that are tried at one place


class Similarity:
    """Numbers the members of groups so that similar members have equal numbers; leaves have none.

    Two modules are similar if their paths differ only in digits and the same operations use
    parameters of the same names; modules without parameters and other groups, if their members are.
    """

    def __init__(self, scene: Scene):
        self.scene = scene
        self._numbers: dict[object, int] = {}

    def divided(self, parts: Members, first: bool) -> tuple[Members, Members]:
        """Split a repetition into its own members and the leaves that are also used outside it.

        In the ``first`` repetition, leaves of no module count as shared, too.
        """
        if all(self.number(part) is not None for part in parts):
            return parts, []
        nodes = set(Group("round", (), parts).nodes())
        own_parts: Members = []
        shared_parts: Members = []
        for part in parts:
            leaves = list(nodes_of(part))
            stays = self.number(part) is not None or (
                all(nodes.issuperset(self.scene.users[leaf]) for leaf in leaves)
                and (not first or all(self.scene.nodes[leaf].module for leaf in leaves))
            )
            (own_parts if stays else shared_parts).append(part)
        return own_parts, shared_parts

    def recurs(self, leaves: Members, rounds: Members) -> bool:
        """Whether any leaf in ``leaves`` is used in more than one member of ``rounds``."""
        round_of = {node: number for number, part in enumerate(rounds) for node in nodes_of(part)}
        several = [leaf for part in leaves for leaf in nodes_of(part)]
        users = [{round_of[i] for i in self.scene.users[leaf] if i in round_of} for leaf in several]
        return any(len(used_in) > 1 for used_in in users)

    def number(self, member: int | Group) -> int | None:
        """Return the number of a node or group; None for leaves."""
        if isinstance(member, Group):
            return None if member.kind == "leaves" else member.like
        node = self.scene.nodes[member]
        return None if node.leaf else self._intern(node.name)

    def _parameters(self, group: Group) -> frozenset[tuple[str, str]]:
        """Return pairs of a parameter's name within the module and an operation that uses it."""
        nodes, prefix = self.scene.nodes, ".".join(group.path)
        return frozenset(
            (nodes[j].label.removeprefix(prefix), nodes[i].name)
            for i in group.nodes()
            for j in nodes[i].next
            if nodes[j].leaf and nodes[j].label.startswith(prefix)
        )

    def _intern(self, key: object) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def measure(self, group: Group) -> Group:
        """Set a group's size, lines, moments and number from its members, and return the group."""
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


def group_repetitions(group: Group, alike: Similarity) -> None:
    """Replace each run of enough similar neighbours among a group's members by one group."""
    if len(group.members) < LAYERS:
        return
    units, numbers, leaves = _units(group, alike)
    least = ALIKE if len(group.members) <= MOST else 3
    members: Members = []
    at = 0
    for start, period, times in find_repetitions(numbers, min(least, LAYERS)):
        if start < at:  # the run before has taken its last round from this one
            continue
        if times < least and not _are_named_modules(units, start, period, times):
            continue
        preceding = [*chain.from_iterable(units[at:start])]
        end = start + period * times
        pattern = units[start : start + period]
        at = end + _trailing_length(pattern, numbers[start:end], numbers[end:])
        rounds, shared = _rounds(group, alike, units[start:at], period)
        recurs = alike.recurs(shared, rounds)
        members += _group_beside_steps(group, alike, preceding, "before") if recurs else preceding
        members += shared
        run = Group("run", group.path, rounds, recurs=steps_suffix(group) if recurs else None)
        divide(run, alike)
        members.append(alike.measure(run))
    following = [*chain.from_iterable(units[at:]), *leaves]
    last = members[-1] if members else None
    if isinstance(last, Group) and last.recurs is not None:
        following = _group_beside_steps(group, alike, following, "after")
    group.members = members + following


def _units(group: Group, alike: Similarity) -> tuple[list[Members], list[int], Members]:
    """Return each numbered member with the leaves before it, the numbers, and the last leaves."""
    units: list[Members] = []
    numbers: list[int] = []
    leaves: Members = []
    for member in group.members:
        number = alike.number(member)
        leaves.append(member)
        if number is not None:
            units.append(leaves)
            numbers.append(number)
            leaves = []
    return units, numbers, leaves


def _rounds(
    group: Group, alike: Similarity, units: list[Members], period: int
) -> tuple[Members, Members]:
    """Return one member for each repetition, and the leaves that do not belong to a single one."""
    shared: Members = []
    rounds: Members = []
    for begin in range(0, len(units), period):
        parts = [*chain.from_iterable(units[begin : begin + period])]
        own_parts, used_elsewhere = alike.divided(parts, first=not rounds)
        shared += used_elsewhere
        together = Group("round", group.path, own_parts)
        rounds.append(own_parts[0] if len(own_parts) == 1 else alike.measure(together))
    loose = [part for part in shared if isinstance(part, int)]
    if len(loose) > 1:
        several = Group("leaves", shared_module(alike.scene, loose), [*loose])
        shared = [alike.measure(several), *filter(is_group, shared)]
    return rounds, shared


def _group_beside_steps(group: Group, alike: Similarity, members: Members, where: str) -> Members:
    """Return members beside a module's time steps, as one group if several and none is a module."""
    modules = any(isinstance(m, Group) and m.kind in ("module", "layer") for m in members)
    if len(members) < 2 or group.kind not in ("module", "layer") or modules:
        return members
    beside = Group("beside", group.path, members, f"{where} the steps{steps_suffix(group)}")
    return [alike.measure(beside)]


def _are_named_modules(units: list[Members], start: int, period: int, times: int) -> bool:
    """Whether each repetition contains a module, and no module is in all of them."""
    paths = [
        {part.path for unit in units[k : k + period] for part in unit if is_module(part)}
        for k in range(start, start + period * times, period)
    ]
    return all(paths) and not set.intersection(*paths)


def _trailing_length(pattern: list[Members], numbers: list[int], after: list[int]) -> int:
    """Return the length of a last repetition that lacks only operations at its end; 0 without one.

    Operations between two layers belong to the first layer, and nothing follows the last one.
    """
    groups = [place for place, unit in enumerate(pattern) if isinstance(unit[-1], Group)]
    needed = groups[-1] + 1 if groups else len(pattern)
    return needed if needed < len(pattern) and after[:needed] == numbers[:needed] else 0


def find_repetitions(numbers: list[int], least: int) -> Iterator[tuple[int, int, int]]:
    """Yield start, period and number of rounds of each repetition with at least ``least`` rounds.

    >>> list(find_repetitions([7, 1, 2, 1, 2, 1, 2, 9], 3))
    [(1, 2, 3)]
    """
    next_place: dict[int, int] = {}
    next_like = [0] * len(numbers)
    for place in range(len(numbers) - 1, -1, -1):
        next_like[place] = next_place.get(numbers[place], 0)
        next_place[numbers[place]] = place
    place = 0
    while place < len(numbers):
        best = (0, 0, 0)  # how much it covers, minus the period, times
        candidate = place
        for _ in range(_CANDIDATES):
            candidate = next_like[candidate]
            period = candidate - place
            if not candidate or period > _LONGEST_PERIOD:
                break
            pattern = numbers[place:candidate]
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


def divide(group: Group, alike: Similarity) -> None:
    """Put a group's members into ranges of neighbours if the group has too many members.

    The first two members of a run or loop and the last one stay separate, to show how it continues.
    """
    if len(group.members) <= (MOST if group.recurs is None else ALIKE):
        return
    if group.kind not in ("run", "loop"):
        _between_groups(group, alike)
        _into_ranges(group, 0, alike)
        return
    first, second, *middle_members, last = group.members
    middle = Group("range", group.path, middle_members)
    _into_ranges(middle, 2, alike)
    group.members = [first, second, alike.measure(middle), last]


def _between_groups(group: Group, alike: Similarity) -> None:
    """Put operations between a group's modules, if it has two or more, into groups of their own."""
    depth = len(group.path)
    inner = [part for part in group.members if isinstance(part, Group) and len(part.path) > depth]
    if sum(part.kind != "leaves" for part in inner) < 2:
        return
    members: Members = []
    for grouped, run in groupby(group.members, is_group):
        parts = list(run)
        if not grouped and len(parts) > 1:
            between = Group("between", group.path, parts)
            _into_ranges(between, 0, alike)
            parts = [alike.measure(between)]
        members += parts
    group.members = members


def _into_ranges(group: Group, begin: int, alike: Similarity) -> None:
    """Divide members, counted from ``begin``, into ranges that end at multiples of their size."""
    while (count := len(group.members)) > MOST:
        size = next((size for size in _SIZES if size * size >= count), _SIZES[-1])
        ranges: Members = []
        at = 0
        while at < count:
            end = at + size - (begin + at) % size
            part = Group("range", group.path, group.members[at:end])
            ranges.append(alike.measure(part) if len(part.members) > 1 else part.members[0])
            at = end
        group.members, begin = ranges, begin // size


_SIZES = (2, 5, 10)
