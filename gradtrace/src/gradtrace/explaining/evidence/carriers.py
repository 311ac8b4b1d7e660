"""The variables that carry a tensor from one iteration to the next, and their names in texts.

A variable carries a tensor if it still holds it when the next iteration begins: an attribute, an
entry of a container, or a variable of the loop that is read before it is assigned. A variable that
is assigned before it is read (``loss``) may hold the same graph, but carries nothing.
"""

import gc
import inspect
import math
import re
from collections import deque
from collections.abc import Collection, Iterable
from functools import cached_property
from types import FrameType, GeneratorType
from typing import Any, NamedTuple

import torch

from gradtrace._torch import grad_fn_of
from gradtrace.autograd import frames, source
from gradtrace.autograd.frames import Found, Location, belongs_to_user, contents, files_of
from gradtrace.autograd.syntax import DETACHED, reads_first

_MAX_NAMES = 4
CONTAINERS = (list, tuple, deque, dict, set)


class Holder(NamedTuple):
    """A name in ``frame`` that reaches a tensor, through ``owners``, outermost first."""

    name: str
    value: Any
    owners: tuple[Any, ...]
    frame: FrameType

    @property
    def root(self) -> str:
        return source.root_of(self.name)

    @property
    def node(self) -> Any:
        """The node that computed the tensor; None if it has no graph."""
        return grad_fn_of(self.value)

    @property
    def is_buffer(self) -> bool:
        owner = self.owners[-1] if self.owners else None
        return isinstance(owner, torch.nn.Module) and any(
            self.value is buffer for buffer in owner.buffers(recurse=False)
        )

    @property
    def lasts(self) -> bool:
        """Whether the next iteration of a loop, or another call, may use this variable's value."""
        return bool(self.owners) or (self.carries and source.loop_around(self.frame) is not None)

    @property
    def is_constant(self) -> bool:
        """Whether this plain variable, or field of a tuple, keeps its value across iterations."""
        if not all(isinstance(owner, tuple) for owner in self.owners):
            return False
        loop = source.loop_around(self.frame)
        if loop is not None and not source.lines_that_assign(loop, self.root):
            return True
        return source.assigned_once(self.frame, self.root)

    @property
    def carries(self) -> bool:
        """Whether this variable still holds the tensor when the next iteration begins."""
        frame, root = self.frame, self.root
        scoped = frame.f_code.co_flags & inspect.CO_NEWLOCALS
        if scoped and root not in frame.f_code.co_varnames:
            return True  # a global, or a variable of an enclosing function
        loop = source.loop_around(frame)
        if loop is not None and source.lines_that_assign(loop, root):
            return reads_first(loop, root)
        return not scoped or loop is not None or source.assigned_at(frame, root) is None


def of_generators() -> list[Holder]:
    """Return the variables of the program's suspended generators that reach tensors."""
    generators = (o for o in gc.get_objects() if type(o) is GeneratorType and o.gi_suspended)
    suspended = [g.gi_frame for g in generators if frames.is_users(g.gi_code)]
    reachable = ((f, frames.reach(frames.namespace(f, forget=True))) for f in suspended if f)
    return [Holder(*variable, frame) for frame, variables in reachable for variable in variables]


def name_of(carriers: Iterable[Holder]) -> str | None:
    """Return the variables' names without indices, each place once; None for no variables."""
    places = _each_place_once(carriers)
    lists = {list_of(variable) for variable in places}
    if len(lists) == 1 and (name := lists.pop()):  # it may be a list in a dict
        return re.sub(r"(\[\d+\])+$", "", name)
    names = [*dict.fromkeys(without_index(list_of(v) or _short(v)) for v in places)]
    if len(names) <= _MAX_NAMES:
        return ", ".join(names) or None
    attribute = names[0].rpartition(".")[2]
    if all(name.endswith(f".{attribute}") for name in names):
        return f"{attribute} of {len(names)} objects ({names[0]}, …, {names[-1]})"
    return f"{', '.join(names[:_MAX_NAMES])} and {len(names) - _MAX_NAMES} more"


def tensors_of(carriers: Iterable[Holder], as_read: str | None) -> str | None:
    """Return expressions for these tensors, so that a text can say which to detach.

    The only entry of a container is named if the program writes it so. Otherwise the name is how a
    line reads it, ``as_read``, if that is known, or else all tensors in the container.
    """
    containers: dict[str, list[Holder]] = {}
    for variable in _each_place_once(carriers):
        containers.setdefault(without_index(_short(variable)), []).append(variable)
    names = []
    for container, (variable, *siblings) in containers.items():
        file, name = variable.frame.f_code.co_filename, _short(variable)
        if name != container and (siblings or not source.is_written(file, name)):
            if as_read is not None and not container.startswith(as_read):
                return as_read
            name = f"the tensors in {container}"
        names.append(name)
    return ", ".join(names) if 0 < len(names) <= _MAX_NAMES else name_of(carriers) or as_read


def filled_at(variable: Found | Holder, first: bool = False) -> Location | None:
    """Return the last (or first) line that the source shows to have filled a variable.

    A line in a branch of an ``if`` counts only if it is the only one, or if that branch runs.
    """
    frame = getattr(variable, "frame", None)
    running = set() if frame is None else source.branches_at(Location.of(frame))
    if place := cached_by(variable):
        return place
    for name in reversed(re.findall(r"\.([A-Za-z_]\w*)", variable.name)):
        owners = (owner for owner in reversed(variable.owners) if name in dir(owner))
        files = (file for owner in owners for file in files_of(type(owner)))
        lines = (source.filled_at(file, f".{name}", variable.name) for file in files)
        if places := next(filter(None, lines), []):
            sure = [p for p in places if len(places) == 1 or source.branches_at(p, name) <= running]
            return sure[0 if first else -1] if sure else None
    if isinstance(variable, Found):
        return None
    frame, scope = variable.frame, source.scope_of(variable.frame)
    code = frame.f_code
    places = source.filled_at(code.co_filename, variable.root, variable.name)
    if isinstance(scope, source.FUNCTIONS):
        is_local = variable.root in code.co_varnames
        local_places = [place for place in places if source.covers(scope, place.line)]
        places = local_places if local_places or (is_local and not variable.owners) else places
    several = len(places) > 1 or variable.root in code.co_varnames[: code.co_argcount]
    places = [p for p in places if not several or source.branches_at(p, variable.root) <= running]
    # Later lines of this function have not run yet, except in a loop.
    end, loop = getattr(scope, "end_lineno", math.inf), source.loop_around(frame)
    again = range(0) if loop is None else range(loop.lineno, (loop.end_lineno or 0) + 1)
    places = [p for p in places if p.line in again or not frame.f_lineno < p.line <= end]
    line = None if variable.owners else source.assigned_at(frame, variable.root)
    assigned = [place for place in places if place.line == line]
    return next(iter((*assigned, *reversed(places))), None)


def cached_by(variable: Found | Holder) -> Location | None:
    """Return the line of the ``@cached_property`` whose value is or holds the tensor, or None."""
    pairs = zip(variable.owners, parts_of(variable.name)[1:], strict=False)
    members = (inspect.getattr_static(type(o), part.lstrip("."), None) for o, part in pairs)
    codes = (frames.code_of(m.func) for m in members if isinstance(m, cached_property))
    return next((Location(c.co_filename, c.co_firstlineno) for c in codes if c is not None), None)


def is_set_again(variable: Holder) -> bool:
    """Whether a method besides ``__init__`` sets the attribute that is the variable's last part."""
    attribute = re.search(r"\.[A-Za-z_]\w*$", variable.name)
    files = files_of(type(variable.owners[-1])) if attribute and variable.owners else ()
    return any(source.filled_at(file, attribute[0], in_init=False) for file in files if attribute)


def emptied(variables: Collection[Holder]) -> str | None:
    """Return the names of the lists that hold these tensors, or of the variables."""
    name, lists = name_of(variables), dict.fromkeys(map(list_of, _each_place_once(variables)))
    if None in lists:
        return name
    entries = [text for text in map(str, lists) if text != without_index(text)]
    return f"each container in {name}" if len(entries) > 1 else ", ".join(map(str, lists))


def list_of(variable: Found | Holder) -> str | None:
    """Return the name of the outermost list of containers in which a variable reaches a tensor."""
    lists = (i for i, owner in enumerate(variable.owners) if isinstance(owner, (list, deque)))
    first = next(lists, None)
    if first is None or any(not isinstance(o, CONTAINERS) for o in variable.owners[first:]):
        return None
    return "".join(parts_of(variable.name)[: first + 1])


def output_of(leaves: Collection[int], variables: Iterable[Holder]) -> str | None:
    """Return a text for the output of the module whose trainable parameters have just these ids."""
    text = None
    for variable in variables:
        parts = parts_of(variable.name)
        for i, owner in enumerate(variable.owners if id(variable.value) in leaves else ()):
            if isinstance(owner, torch.nn.Module):
                trained = {id(p) for p in owner.parameters() if p.requires_grad}
                text = f"the output of {''.join(parts[: i + 1])}" if trained == leaves else text
    return text


def detached(carriers: Iterable[Holder], as_leaves: bool = False) -> str | None:
    """Return the statements that detach the variables, or a description; None for no variables."""
    carriers = list(carriers)
    call = "detach().requires_grad_()" if as_leaves else "detach()"
    statements = dict.fromkeys(_detached(v, call) for v in _each_place_once(carriers))
    if None in statements or len(statements) > _MAX_NAMES:
        return f"detach every tensor in {name_of(carriers)}"
    return "; ".join(map(str, statements)) or None


def _detached(variable: Holder, call: str) -> str | None:
    """Return the statement that detaches a variable; None if it has no simple form."""
    name = without_index(variable.name)
    if _short(variable) != variable.name:
        return None
    name = re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", name)  # an entry of a ModuleList or Sequential
    nested = variable.name.count("[", len(without_index(variable.name)))
    entries = variable.owners[-1] if variable.owners else ()
    kind = type(entries).__name__
    if nested == 0:
        kind = "namedtuple" if hasattr(entries, "_fields") else "tensor"
    elif nested > 1 or any(not isinstance(v, torch.Tensor) for _, v in contents(entries)):
        kind = "nested"
    if kind not in ("tensor", "namedtuple", "list", "tuple", "dict"):
        return None
    owner, _, field = name.rpartition(".")
    return DETACHED[kind].format(name, owner, field).replace("detach()", call)


def _each_place_once(carriers: Iterable[Holder]) -> list[Holder]:
    """Return each attribute, entry and loop variable once, and plain variables of other tensors."""
    # Two places may hold one tensor: if it is detached in one of them, the other still has it.
    places: dict[Any, Holder] = {}
    plain: dict[int, Holder] = {}
    for v in carriers:
        if v.owners:
            places.setdefault((id(v.owners[-1]), re.split(r"[.\[]", v.name)[-1]), v)
        elif source.loop_around(v.frame) is not None:
            places.setdefault((id(v.frame), v.name), v)
        else:
            plain.setdefault(id(v.value), v)
    ids = {id(v.value) for v in places.values()}
    return [*places.values(), *(v for key, v in plain.items() if key not in ids)]


def without_index(name: str) -> str:
    """Return a name without its trailing indices: ``states`` for ``states[0]``."""
    return re.sub(r"(\[[^\[\]]*\])+$", "", name)


def reads_older(variable: Holder) -> bool:
    """Whether the program reads an entry before the last one of this list by its place."""
    name = without_index(variable.name).rpartition(".")[2]
    owners = (file for owner in variable.owners for file in files_of(type(owner)))
    files = {variable.frame.f_code.co_filename, *owners}
    return any(source.reads_before_last(file, name) for file in files)


def _short(variable: Holder) -> str:
    """Return a variable's name without the path through objects of a library."""
    name, owners = variable.name, variable.owners
    kinds = (type, torch.nn.Module, torch.Tensor, *CONTAINERS)
    others = [(i, owner) for i, owner in enumerate(owners) if not isinstance(owner, kinds)]
    internal = [i for i, owner in others if not belongs_to_user(type(owner))]
    if not internal:
        return name
    for i in range(internal[-1] + 1, len(owners)):
        if belongs_to_user(type(owners[i])):
            path = name.split(".")[-(len(owners) - i) :]
            return ".".join([type(owners[i]).__name__, *path])
    parts = parts_of(name)
    return "".join(parts[: len(parts) - (len(owners) - internal[0])]) or variable.root


def parts_of(name: str) -> list[str]:
    """Return a variable and the attributes and indices after it: ``a``, ``.b``, ``[0]``."""
    return re.findall(r"\[[^\]]*\]|\.?[^.\[]+", name)
