"""The frames of the user's program: which line runs, and which tensors its variables reach.

Variables lead to tensors directly, or through lists, dicts, modules and the program's own objects:
``h``, ``losses[0]``, ``model.layer.weight``, ``self.cache``.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import itertools
import os
import signal
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from traceback import walk_tb
from types import CodeType, FrameType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from gradtrace.autograd.tensors import is_cut_off

_MODULE_INTERNALS = frozenset(vars(torch.nn.Module()))
_MAX_ITEMS = 1_000  # of one container
_MAX_DEPTH = 8  # of containers inside containers
_MAX_OBJECTS = 20_000  # in all
_MAX_CHAIN = 20  # frames of the user's
_MAX_FRAMES = 200  # frames looked at for them


# A path is a library's if it lies in one of these folders, or in any folder of these names:
# environments, ``pip install --user``, distributions and embedded Pythons each have their own.
_LIBRARIES = tuple(
    {
        f"{Path(folder)}{os.sep}"
        for folder in (
            Path(os.__file__).parent,
            Path(torch.__file__).parent,
            Path(__file__).parents[1],
        )
    }
)
_SITES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
# Code without a file, made by Python, torch.fx, NumPy, attrs and the like.
_GENERATED = ("<frozen", "<eval_with_key>", "<__array_function__", "<attrs generated", "<torch_")
_USERS: dict[str, bool] = {}  # by file name
STAND_IN = "<gradtrace>"  # the name of code of ours that has the file and line of the user's


class Location(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int

    @property
    def name(self) -> str:
        """Its file; in a notebook, whose files are temporary, its cell: ``Cell In[3]``."""
        ipython = running_ipython()
        cells = {} if ipython is None else getattr(ipython.compile, "_filename_map", {})
        return f"Cell In[{cells[self.file]}]" if self.file in cells else self.file

    @classmethod
    def of(cls, frame: FrameType) -> Location:
        """The line that the frame is at."""
        return cls(frame.f_code.co_filename, frame.f_lineno)

    def __str__(self) -> str:
        """Render it as ``file:line``, relative to the working directory if it lies below."""
        name = self.name
        with contextlib.suppress(OSError, ValueError):  # there is none any more; it lies elsewhere
            name = str(Path(name).relative_to(Path.cwd()))
        return f"{name}:{self.line}"


def running_ipython() -> Any:
    """The running IPython, if there is one."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def _in_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or any(name in file for name in _SITES)


def is_users(code: CodeType) -> bool:
    """Whether the code belongs to the user, not to PyTorch, a library or gradtrace."""
    file = code.co_filename
    users = _USERS.get(file)
    if users is None:
        users = _USERS[file] = not (_in_library(file) or file.startswith(_GENERATED))
    return users and code.co_name != STAND_IN


def belongs_to_user(kind: type) -> bool:
    """Whether a class is the user's own."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    if file is None:
        return kind.__module__ == "__main__"
    return not _in_library(file)


def place_of(kind: type, method: str) -> str:
    """What to call a class, with the file and line of one of its methods: ``Clip (ops.py:12)``."""
    code = _code_of(inspect.unwrap(getattr(kind, method)))
    name = kind.__name__
    return name if code is None else f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})"


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's code, from ``frame`` outward."""
    known = _USERS  # a hot loop: most frames are a library's, known by their file
    while frame is not None:
        code = frame.f_code
        if known.get(code.co_filename, True) and is_users(code):
            return frame
        frame = frame.f_back
    return None


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of the user's code, from ``frame`` outward."""
    frame = user_frame(frame)
    while frame is not None:
        yield frame
        frame = user_frame(frame.f_back)


def user_location() -> Location | None:
    """The line of the user's code that runs now."""
    frame = user_frame(sys._getframe(1))
    return None if frame is None else Location.of(frame)


def raised_by_the_program(error: BaseException) -> bool:
    """Whether the program raised it while code of ours ran: in a signal handler, or from a thread.

    Python calls a handler between any two instructions, and can raise an exception there that
    another thread asked for: that is of a class that neither Python nor PyTorch raises here.
    """
    ran = [frame.f_code for frame, _ in walk_tb(error.__traceback__) if is_users(frame.f_code)]
    if not ran:
        return type(error).__module__.partition(".")[0] not in ("builtins", "torch", "gradtrace")
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    return any(_code_of(handler) in ran for handler in handlers if callable(handler))


def _code_of(function: Any) -> CodeType | None:
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, (FunctionType, MethodType)):
        function = inspect.getattr_static(type(function), "__call__", None)
    return getattr(function, "__code__", None)


class Chain:
    """The calls of the user's code that ran at some moment, innermost first.

    For each its code object and the line in it, looked up when somebody asks.
    """

    def __init__(self, codes: list[CodeType], instructions: list[int]):
        self._codes = codes
        self._instructions = instructions

    @functools.cached_property
    def lines(self) -> list[tuple[CodeType, int]]:
        return [
            (code, _line(code, instruction))
            for code, instruction in zip(self._codes, self._instructions, strict=True)
        ]

    @property
    def location(self) -> Location:
        """The innermost line."""
        return self.locations[0]

    @property
    def locations(self) -> list[Location]:
        """All lines, from the innermost outward."""
        return [Location(code.co_filename, line) for code, line in self.lines]

    @functools.cached_property
    def path(self) -> tuple[tuple[CodeType, int], ...]:
        """The lines, each function's innermost call only: the same at any depth of a recursion."""
        innermost: dict[CodeType, int] = {}
        for code, line in self.lines:
            innermost.setdefault(code, line)
        return tuple(innermost.items())


def _line(code: CodeType, instruction: int) -> int:
    lines = code.co_lines()
    found = (line for start, end, line in lines if start <= instruction < end and line is not None)
    return next(found, code.co_firstlineno)


class Chains:
    """Every chain once: equal chains are one object."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], Chain] = {}

    def here(self, frame: FrameType | None) -> Chain | None:
        """The chain of the user's frames from ``frame`` outward; None if there is none."""
        key: list[int] = []
        codes: list[CodeType] = []
        known = _USERS  # the hottest loop of a strict watch, as in user_frame
        for _ in range(_MAX_FRAMES):
            if frame is None:
                break
            code = frame.f_code
            if known.get(code.co_filename, True) and is_users(code):
                codes.append(code)
                key += (id(code), frame.f_lasti)
                if len(codes) == _MAX_CHAIN:
                    break
            frame = frame.f_back
        if not codes:
            return None
        found = self._known.get(tuple(key))  # it holds the code objects: no identity is used twice
        if found is None:
            found = self._known[tuple(key)] = Chain(codes, key[1::2])
        return found


class Found(NamedTuple):
    """Something that a variable reaches; ``owners`` are the objects on the way, outermost first."""

    name: str
    value: Any
    owners: tuple[Any, ...]

    def inside(self, kinds: tuple[type, ...]) -> bool:
        """Whether it lies in something of these kinds."""
        return any(isinstance(owner, kinds) for owner in self.owners)


@functools.lru_cache(maxsize=1_000)
def _globals_read(code: CodeType) -> tuple[str, ...]:
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    return tuple({i.argval: None for i in dis.get_instructions(code) if i.opname in loads})


_REFERENCES = 3  # to a frame's dict: the frame's, the variable's, the argument's


def namespace(frame: FrameType, forget: bool = False) -> dict[str, Any]:
    """The frame's variables, and the globals that its code reads.

    Before Python 3.13 a function's frame keeps the dict that is read here until it is read again;
    ``forget`` empties it.  Not to be used where the frame is being traced: Python would write that
    back.  Since 3.13 there is a proxy instead, which keeps nothing and must not be emptied.

    Without IPython's own globals (``In``, ``Out``, ``_`` …), which lead to everything there is.
    """
    kept = frame.f_locals
    found = {**kept}
    ours = sys.getrefcount(kept) <= _REFERENCES  # else the program has called locals()
    if forget and ours and type(kept) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        kept.clear()
    in_module = kept is frame.f_globals
    ipython = running_ipython()
    hidden = () if ipython is None else ipython.user_ns_hidden
    if in_module:
        return {name: value for name, value in found.items() if name not in hidden}
    used = (name for name in _globals_read(frame.f_code) if name not in {*found, *hidden})
    return found | {name: frame.f_globals[name] for name in used if name in frame.f_globals}


def reach(variables: Mapping[str, Any], modules: dict[int, str] | None = None) -> Iterator[Found]:
    """The tensors that the variables reach, each object visited once, in the order of the names.

    A tensor that two variables name directly is found under both names, one with a graph at each
    place that holds it; a gradient is found where it has a graph of its own.  The names of the
    modules on the way are put into ``modules``, by identity.
    """
    seen: set[int] = set()
    pending = [Found(name, variables[name], ()) for name in reversed([*variables])]
    while pending and len(seen) < _MAX_OBJECTS:
        name, value, owners = found = pending.pop()
        if issubclass(type(value), torch.Tensor):
            has_graph = is_cut_off(value) or not value.is_leaf
            if id(value) not in seen or not owners or has_graph:
                seen.add(id(value))
                yield found
                if has_graph:
                    continue
                if value.grad is not None and value.grad.requires_grad:
                    pending.append(Found(f"{name}.grad", value.grad, (*owners, value)))
        elif type(value) not in PLAIN and len(owners) < _MAX_DEPTH and id(value) not in seen:
            seen.add(id(value))
            if modules is not None and issubclass(type(value), torch.nn.Module):
                modules[id(value)] = name
            inside = itertools.islice(_items(value), _MAX_ITEMS)
            within = [Found(name + key, inner, (*owners, value)) for key, inner in inside]
            pending.extend(reversed(within))


PLAIN = (type(None), bool, int, float, str)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """What is inside a container, a module, or another object of the program's own.

    Read past the methods of its class: none of the program's code runs.  Copied before it is gone
    through, since another thread may be changing it.
    """
    kind = type(value)  # isinstance would ask the object's own __class__
    if kind.__module__.partition(".")[0] == "gradtrace":  # a watch is not part of the program
        return
    if issubclass(kind, dict):
        if dict.__contains__(value, "__builtins__"):  # a module's variables, as a module is
            return
        items = list(dict.items(value))
        yield from ((f"[{_key(key, i)}]", inner) for i, (key, inner) in enumerate(items))
    for sequence in _SEQUENCES:
        if issubclass(kind, sequence):
            entries = list(sequence.__iter__(value))
            yield from ((f"[{i}]", inner) for i, inner in enumerate(entries))
    if issubclass(kind, type) and belongs_to_user(value):
        yield from (
            (f".{key}", inner)
            for key, inner in list(type.__getattribute__(value, "__dict__").items())
        )
    if issubclass(kind, _NOT_STATE):
        return
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        attributes = {}
    if issubclass(kind, torch.nn.Module):
        for part in ("_parameters", "_buffers", "_modules"):
            yield from ((f".{key}", inner) for key, inner in list(attributes.get(part, {}).items()))
        attributes = {k: v for k, v in list(attributes.items()) if k not in _MODULE_INTERNALS}
    yield from ((f".{key}", inner) for key, inner in list(attributes.items()))
    for slot, member in _slots(type(value)):
        with contextlib.suppress(AttributeError):
            yield f".{slot}", member.__get__(value)


_SEQUENCES: tuple[Any, ...] = (list, tuple, set, frozenset, deque)
_NOT_STATE = (
    type,
    ModuleType,
    FunctionType,
    torch.optim.Optimizer,
    torch.autograd.graph.Node,
)


_ADDRESS = 2**32  # such a number is an object's id, which the next run does not repeat


def _key(key: Any, place: int) -> str:
    named = type(key) in PLAIN and not (type(key) is int and abs(key) >= _ADDRESS)
    return repr(key) if named else f"{type(key).__name__} {place}"


_SLOTS: WeakKeyDictionary[type, list[tuple[str, MemberDescriptorType]]] = WeakKeyDictionary()


def _slots(kind: type) -> list[tuple[str, MemberDescriptorType]]:
    """The ``__slots__`` of a Python class."""
    found = _SLOTS.get(kind)
    if found is None:
        found = _SLOTS[kind] = [
            (name, member)
            for base in kind.__mro__
            if "__slots__" in vars(base)
            for name, member in vars(base).items()
            if isinstance(member, MemberDescriptorType)
        ]
    return found
