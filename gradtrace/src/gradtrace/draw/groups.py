"""The groups that a graph is folded into, and the views that show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from gradtrace.draw.scene import Place, Scene

MOST = 12  # members of one group
ALIKE = 6  # neighbours that look alike are one group from here on
LAYERS = 3  # the same for modules with names of their own


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


def nodes_of(part: int | Group) -> Iterator[int]:
    return part.nodes() if isinstance(part, Group) else iter([part])


def is_group(part: int | Group) -> TypeGuard[Group]:
    return isinstance(part, Group)


def is_module(part: int | Group) -> TypeGuard[Group]:
    return isinstance(part, Group) and part.kind == "module"


def steps_suffix(group: Group) -> str:
    """Whose steps they are."""
    if group.kind == "layer" and group.place is not None:
        return f" of {group.place.number}"
    return f" of {'.'.join(group.path)}" if group.path else ""


def repeated_items(run: Group) -> list[int | Group]:
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


def common_prefix(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
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


def shared_module(scene: Scene, leaves: Sequence[int | Group]) -> tuple[str, ...]:
    """The module that these leaves have in common."""
    return common_prefix(
        [scene.nodes[leaf].module for leaf in leaves if not isinstance(leaf, Group)]
    )
