"""The frames of the user's program: which line runs, and which tensors its variables reach.

Variables lead to tensors directly, or through lists, dicts, modules and the program's own objects:
``h``, ``losses[0]``, ``model.layer.weight``, ``self.cache``.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import itertools
import sys
import sysconfig
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

import torch

_MODULE_INTERNALS = frozenset(vars(torch.nn.Module()))
_MAX_ITEMS = 1_000  # of one container
_MAX_DEPTH = 8  # of containers inside containers
_MAX_OBJECTS = 20_000  # in all
_MAX_CHAIN = 20  # frames


_PATHS = sysconfig.get_paths()
_NOT_THE_USERS = tuple(
    {_PATHS["stdlib"], _PATHS["platstdlib"], _PATHS["purelib"], _PATHS["platlib"]}
    | {str(Path(torch.__file__).parent), str(Path(__file__).parent), "<frozen"}
)
_USERS: dict[CodeType, bool] = {}


Chain = tuple[tuple[CodeType, int], ...]


class Location(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int

    @property
    def name(self) -> str:
        """Its file; in a notebook, whose files are temporary, its cell: ``Cell In[3]``."""
        ipython = _ipython()
        cells = {} if ipython is None else getattr(ipython.compile, "_filename_map", {})
        return f"Cell In[{cells[self.file]}]" if self.file in cells else self.file

    def __str__(self) -> str:
        return f"{self.name}:{self.line}"


def _ipython() -> Any:
    """The running IPython, if there is one."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def is_users(code: CodeType) -> bool:
    """Whether the code belongs to the user, not to PyTorch, a library or gradtrace."""
    users = _USERS.get(code)
    if users is None:
        users = _USERS[code] = not code.co_filename.startswith(_NOT_THE_USERS)
    return users


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's code, from ``frame`` outward."""
    while frame is not None and not is_users(frame.f_code):
        frame = frame.f_back
    return frame


def user_location() -> Location | None:
    """The line of the user's code that runs now."""
    frame = user_frame(sys._getframe(1))
    return None if frame is None else Location(frame.f_code.co_filename, frame.f_lineno)


def user_chain() -> Chain:
    """The lines of the user's code that run now, innermost first: which call of which call."""
    chain, frame = [], user_frame(sys._getframe(1))
    while frame is not None and len(chain) < _MAX_CHAIN:
        chain.append((frame.f_code, frame.f_lineno))
        frame = user_frame(frame.f_back)
    return tuple(chain)


def location_of(chain: Chain) -> Location | None:
    """The innermost line of a chain."""
    return Location(chain[0][0].co_filename, chain[0][1]) if chain else None


class Found(NamedTuple):
    """Something that a variable reaches; ``owners`` are the objects on the way, outermost first."""

    name: str
    value: Any
    owners: tuple[Any, ...]

    def inside(self, kinds: tuple[type, ...]) -> bool:
        """Whether it lies in something of these kinds."""
        return any(isinstance(owner, kinds) for owner in self.owners)


@functools.cache
def _globals_read(code: CodeType) -> tuple[str, ...]:
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    return tuple({i.argval: None for i in dis.get_instructions(code) if i.opname in loads})


def namespace(frame: FrameType) -> dict[str, Any]:
    """The frame's variables, and the globals that its code reads.

    Without IPython's own (``In``, ``Out``, ``exit`` …), which lead to everything there is.
    """
    used = (name for name in _globals_read(frame.f_code) if name in frame.f_globals)
    found = frame.f_locals | {n: frame.f_globals[n] for n in used if n not in frame.f_locals}
    ipython = _ipython()
    hidden = () if ipython is None else ipython.user_ns_hidden
    return {name: value for name, value in found.items() if name not in hidden}


def reach(variables: Mapping[str, Any]) -> Iterator[Found]:
    """The tensors that the variables reach, each object visited once, in the order of the names.

    A tensor that two variables name directly is found under both names; a gradient is found where
    it has a graph of its own.
    """
    seen: set[int] = set()
    pending = [Found(name, value, ()) for name, value in reversed(variables.items())]
    while pending and len(seen) < _MAX_OBJECTS:
        name, value, owners = found = pending.pop()
        if isinstance(value, torch.Tensor):
            if id(value) not in seen or not owners:
                seen.add(id(value))
                yield found
                if value.is_leaf and value.grad is not None and value.grad.requires_grad:
                    pending.append(Found(f"{name}.grad", value.grad, (*owners, value)))
        elif type(value) not in PLAIN and len(owners) < _MAX_DEPTH and id(value) not in seen:
            seen.add(id(value))
            inside = itertools.islice(_items(value), _MAX_ITEMS)
            within = [Found(name + key, inner, (*owners, value)) for key, inner in inside]
            pending.extend(reversed(within))


PLAIN = (type(None), bool, int, float, str)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """What is inside a container, a module, or another object of the program's own.

    Read past the methods of its class: none of the program's code runs.
    """
    if isinstance(value, dict):
        yield from ((f"[{_key(key, i)}]", x) for i, (key, x) in enumerate(dict.items(value)))
    for kind in (list, tuple, set, frozenset, deque):
        if isinstance(value, kind):
            yield from ((f"[{i}]", inner) for i, inner in enumerate(kind.__iter__(value)))
    if isinstance(value, _NOT_STATE):
        return
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        attributes = {}
    if isinstance(value, torch.nn.Module):
        for part in ("_parameters", "_buffers", "_modules"):
            yield from ((f".{key}", inner) for key, inner in attributes.get(part, {}).items())
        attributes = {k: v for k, v in attributes.items() if k not in _MODULE_INTERNALS}
    yield from ((f".{key}", inner) for key, inner in attributes.items())
    for slot, member in _slots(type(value)):
        with contextlib.suppress(AttributeError):
            yield f".{slot}", member.__get__(value)


_NOT_STATE = (
    type,
    ModuleType,
    FunctionType,
    torch.optim.Optimizer,
    torch.autograd.graph.Node,
)


def _key(key: Any, place: int) -> str:
    return repr(key) if type(key) in PLAIN else f"{type(key).__name__} {place}"


@functools.cache
def _slots(kind: type) -> list[tuple[str, MemberDescriptorType]]:
    """The ``__slots__`` of a Python class."""
    return [
        (name, member)
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for name, member in vars(base).items()
        if isinstance(member, MemberDescriptorType)
    ]
