"""The variables that carry a tensor from one iteration to the next, and what to call them.

A variable carries if it is still there when the next iteration begins, with its value: an
attribute, an entry of a container, a variable of the loop that is read before it is assigned.
What is assigned anew before it is read (``loss``) holds the same graph, but carries nothing.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from types import FrameType
from typing import Any, NamedTuple

import torch

from gradtrace.autograd import source
from gradtrace.autograd.frames import belongs_to_user
from gradtrace.autograd.syntax import reads_first

_MAX_NAMES = 4


class Held(NamedTuple):
    """A tensor that a variable of ``frame`` reaches; ``owners`` are on the way, outermost first."""

    name: str
    value: Any
    owners: tuple[Any, ...]
    frame: FrameType

    def inside(self, kinds: tuple[type, ...]) -> bool:
        """Whether it lies in something of these kinds."""
        return any(isinstance(owner, kinds) for owner in self.owners)

    @property
    def root(self) -> str:
        return source.root_of(self.name)

    @property
    def is_buffer(self) -> bool:
        owner = self.owners[-1] if self.owners else None
        return isinstance(owner, torch.nn.Module) and any(
            self.value is buffer for buffer in owner._buffers.values()
        )

    @property
    def goes_round(self) -> bool:
        """Whether it is a plain variable that a loop goes on with."""
        return not self.owners and self.carries and source.loop_around(self.frame) is not None

    @property
    def carries(self) -> bool:
        """Whether it is there, and with this value, when the next iteration begins."""
        frame, root = self.frame, self.root
        scoped = frame.f_code.co_flags & inspect.CO_NEWLOCALS
        if scoped and root not in frame.f_code.co_varnames:
            return True  # a global, or of a function around this one
        loop = source.loop_around(frame)
        if loop is not None and source.assigns_name(loop, root):
            return reads_first(loop, root)
        return not scoped or loop is not None or source.assigned_at(frame, root) is None


def name_of(carriers: Iterable[Held]) -> str | None:
    """What to call them: by their roots, each place once; None where there are none."""
    names = [*dict.fromkeys(_without_index(_short(one)) for one in _each_place_once(carriers))]
    if len(names) <= _MAX_NAMES:
        return ", ".join(names) or None
    attribute = names[0].rpartition(".")[2]
    if all(name.endswith(f".{attribute}") for name in names):
        return f"{attribute} of {len(names)} objects ({names[0]}, …, {names[-1]})"
    return f"{', '.join(names[:_MAX_NAMES])} and {len(names) - _MAX_NAMES} more"


def detached(carriers: Iterable[Held]) -> str | None:
    """The statements that detach them, where they can be written out; None where there are none."""
    carriers = list(carriers)
    statements = dict.fromkeys(map(_detached, _each_place_once(carriers)))
    if None in statements or len(statements) > _MAX_NAMES:
        return f"detach every tensor in {name_of(carriers)}"
    return "; ".join(map(str, statements)) or None


def _detached(one: Held) -> str | None:
    name = _without_index(one.name)
    if _short(one) != one.name:
        return None
    name = re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", name)  # an entry of a ModuleList or Sequential
    nested = one.name.count("[", len(_without_index(one.name)))
    if nested == 0:
        return f"{name} = {name}.detach()"
    if nested > 1:
        return None
    each = f"one.detach() for one in {name}"
    forms: dict[type, str] = {
        list: f"{name} = [{each}]",
        tuple: f"{name} = tuple({each})",
        dict: f"{name} = {{key: one.detach() for key, one in {name}.items()}}",
    }
    return forms.get(type(one.owners[-1]))


def _each_place_once(carriers: Iterable[Held]) -> list[Held]:
    """Each attribute or entry under one name; of plain variables those that a loop goes on with.

    Two places may hold one tensor: to detach it in one of them leaves the other.
    """
    found: dict[Any, Held] = {}
    plain: dict[int, Held] = {}
    for one in carriers:
        if one.owners:
            found.setdefault((id(one.owners[-1]), re.split(r"[.\[]", one.name)[-1]), one)
        elif source.loop_around(one.frame) is not None:
            found.setdefault((id(one.frame), one.name), one)
        else:
            plain.setdefault(id(one.value), one)
    held = {id(one.value) for one in found.values()}
    return [*found.values(), *(one for key, one in plain.items() if key not in held)]


def _without_index(name: str) -> str:
    """``states`` for ``states[0]``: whoever holds one of them holds them all."""
    return re.sub(r"(\[[^\[\]]*\])+$", "", name)


def _short(one: Held) -> str:
    """Its name, without a path through what belongs to a library."""
    inside = [i for i, owner in enumerate(one.owners) if _internal(owner)]
    if not inside:
        return one.name
    for i in range(inside[-1] + 1, len(one.owners)):
        if belongs_to_user(type(one.owners[i])):
            path = one.name.split(".")[-(len(one.owners) - i) :]
            return ".".join([type(one.owners[i]).__name__, *path])
    parts = re.findall(r"\[[^\]]*\]|\.?[^.\[]+", one.name)
    return "".join(parts[: len(parts) - (len(one.owners) - inside[0])]) or one.root


def _internal(owner: Any) -> bool:
    """An object of a library's own, that no program is meant to reach into."""
    kind = type(owner)
    return not isinstance(
        owner, (type, torch.nn.Module, torch.Tensor, list, tuple, dict, set)
    ) and not belongs_to_user(kind)
