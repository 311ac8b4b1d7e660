"""The groups that a graph is folded into, and the views that show them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeGuard

from gradtrace.draw.scene import Scene, Scope

MOST = 12  # members of one group
ALIKE = 6  # neighbours that look alike are one group from here on
LAYERS = 3  # the same for modules with names of their own


@dataclass
class Group:
    """An interval of the sequence of nodes; its members are nodes and inner groups.

    ``kind`` is that of a :class:`~gradtrace.draw.scene.Scope`, or ``"all"``, ``"round"`` (one
    repetition), ``"run"`` (similar neighbours), ``"leaves"`` (that several members use),
    ``"beside"`` or ``"between"`` (operations beside time steps, between modules) or ``"range"``.
    """

    kind: str
    path: tuple[str, ...] = ()  # of the module
    members: "list[int | Group]" = field(default_factory=list)
    title: str = ""
    size: int = 0  # nodes in it
    operations: int = 0  # nodes that are no leaves
    moments: tuple[int, int] | None = None  # the first and last at which its nodes were made
    lines: tuple[int, int] | None = None
    like: int = 0  # the same number for groups of the same operations
    scope: Scope | None = None  # where its operations were made
    call: int | None = None  # of a module that is called several times here: which of them, from 1
    recurs: str | None = None  # of a run that uses some leaves again and again: " of model"
    steps: bool = False  # of a run and its ranges: whether all that repeats has the same name

    def nodes(self) -> Iterator[int]:
        """Yield all nodes of the group and its inner groups, in the order of the sequence."""
        pending: list[int | Group] = [self]
        while pending:
            member = pending.pop()
            if isinstance(member, Group):
                pending.extend(reversed(member.members))
            else:
                yield member


Members = list[int | Group]  # of a group: nodes and groups


@dataclass
class View:
    """The boxes of one panel: single nodes and closed groups."""

    group: Group  # the open one
    parent: int | None  # the index of the enclosing view
    boxes: list[int | Group] = field(default_factory=list)
    path: tuple[str, ...] = ()  # of the module; titles leave it out
    of: str = ""  # " of model", the owner of time steps; titles leave it out, too
    opens: list[int | None] = field(default_factory=list)  # by box: the view that it opens, if any


def nodes_of(part: int | Group) -> Iterator[int]:
    """Yield the nodes of a member, which is a node or a group."""
    return part.nodes() if isinstance(part, Group) else iter([part])


def is_group(part: int | Group) -> TypeGuard[Group]:
    return isinstance(part, Group)


def is_module(part: int | Group) -> TypeGuard[Group]:
    return isinstance(part, Group) and part.kind == "module"


def key_of(part: int | Group) -> int:
    """Return a number that identifies a member: the node's index, or the group's identity."""
    return id(part) if isinstance(part, Group) else part


def steps_suffix(group: Group) -> str:
    """Return the end of a title that names the owner of time steps: " of model", or ""."""
    if group.kind == "layer" and group.scope is not None:
        return f" of {group.scope.number}"
    return f" of {'.'.join(group.path)}" if group.path else ""


def repeated_items(run: Group) -> list[int | Group]:
    """Return the repeated members of a run, with its ranges expanded."""
    items: list[int | Group] = []
    for item in run.members:
        if isinstance(item, Group) and item.kind == "range":
            items += repeated_items(item)
        else:
            items.append(item)
    return items


def common_prefix(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    pairs = zip(min(paths), max(paths), strict=False)
    return tuple(part for part, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def shared_module(scene: Scene, leaves: Sequence[int]) -> tuple[str, ...]:
    """Return the path of the innermost module that contains all leaves."""
    return common_prefix([scene.nodes[leaf].module for leaf in leaves])
