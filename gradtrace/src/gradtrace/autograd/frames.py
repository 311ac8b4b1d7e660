"""The frames of the user's program: which line runs, and which tensors its variables reach."""

import contextlib
import dis
import functools
import inspect
import itertools
import linecache
import os
import posixpath
import re
import signal
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from traceback import walk_tb
from types import CodeType, FrameType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch

from gradtrace.autograd.tensors import is_cut_off

_MODULE_INTERNALS = frozenset(vars(torch.nn.Module()))
_MAX_ITEMS = 1_000  # of one container
_MAX_DEPTH = 8  # of containers inside containers
_MAX_OBJECTS = 20_000  # in all
_MAX_CHAIN = 20  # frames of the user's
_MAX_FRAMES = 200  # frames looked at for them


# Folders of libraries; each environment and distribution has others, which _SITES names.
_FOLDERS = Path(os.__file__).parent, Path(torch.__file__).parent, Path(__file__).parents[1]
_SCRIPTS = sysconfig.get_path("scripts")  # bin/pytest, say
_LIBRARIES = tuple(f"{Path(folder)}{os.sep}" for folder in (*_FOLDERS, _SCRIPTS))
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
        """The file's path; in a notebook, whose files are temporary, the cell: ``Cell In[3]``."""
        ipython = running_ipython()
        cells = {} if ipython is None else getattr(ipython.compile, "_filename_map", {})
        return f"Cell In[{cells[self.file]}]" if self.file in cells else self.file

    @property
    def text(self) -> str:
        """The line itself without its indent, or "" where the source is not available."""
        return linecache.getline(self.file, self.line).strip()

    @classmethod
    def of(cls, frame: FrameType) -> "Location":
        """Return the line that the frame is executing."""
        return cls(frame.f_code.co_filename, frame.f_lineno)

    def __str__(self) -> str:
        """Return ``file:line``, with a relative path if the file is below the working directory."""
        name = self.name
        # The folder may have been deleted, or be on another drive.
        with contextlib.suppress(OSError, ValueError):
            name = str(Path(name).relative_to(Path.cwd()))
        return f"{name}:{self.line}"


def running_ipython() -> Any:
    """Return the running IPython shell, or None."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def _in_library(file: str) -> bool:
    with contextlib.suppress(OSError):  # of a script it is as the command line has it
        file = os.path.abspath(file)  # noqa: PTH100 (resolve() would follow links)
    return file.startswith(_LIBRARIES) or any(name in file for name in _SITES)


def is_users(code: CodeType) -> bool:
    """Whether the code belongs to the user, not to PyTorch, a library or gradtrace."""
    file = code.co_filename
    users = _USERS.get(file)
    if users is None:
        users = _USERS[file] = not (_in_library(file) or file.startswith(_GENERATED))
    return users and code.co_name != STAND_IN


def belongs_to_user(kind: type) -> bool:
    """Whether a class is defined by the user's program."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    if file is None:
        return kind.__module__ == "__main__"
    return not _in_library(file)


def files_of(kind: type) -> dict[str, None]:
    """Return the files of the program that define the methods of a class, its own file first."""
    methods = (method for base in kind.__mro__ for method in vars(base).values())
    codes = (method.__code__ for method in methods if isinstance(method, FunctionType))
    return {code.co_filename: None for code in codes if is_users(code)}


def place_of(kind: type, method: str) -> str:
    """Return a class's name with the file and line of one of its methods: ``Clip (ops.py:12)``."""
    code = code_of(getattr(kind, method))
    name = kind.__name__
    return name if code is None else f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})"


def user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the user's code, from ``frame`` outward, or None."""
    is_users_file = _USERS  # a hot loop: most frames are a library's, known by their file
    while frame is not None:
        code = frame.f_code
        if is_users_file.get(code.co_filename, True) and is_users(code):
            return frame
        frame = frame.f_back
    return None


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of the user's code, from ``frame`` outward."""
    frame = user_frame(frame)
    while frame is not None:
        yield frame
        frame = user_frame(frame.f_back)


def innermost_of(stack: Iterable[str]) -> Location | None:
    """Return the innermost line of the user's code in a stack as Python prints it, or None."""
    lines = (re.match(r'\s*File "(.+)", line (\d+)', entry) for entry in stack)
    places = [Location(line[1], int(line[2])) for line in lines if line is not None]
    foreign = (_in_library(file) or file.startswith(_GENERATED) for file, _ in places)
    return next((p for p, skip in reversed([*zip(places, foreign, strict=True)]) if not skip), None)


def user_location() -> Location | None:
    """Return the innermost line of the user's code that is running, or None."""
    frame = user_frame(sys._getframe(1))
    return None if frame is None else Location.of(frame)


def user_path() -> dict[CodeType, int]:
    """Return the running instruction of each function of the user, outermost first."""
    return {f.f_code: f.f_lasti for f in reversed([*user_frames(sys._getframe(1))])}


def parting(
    path: Mapping[CodeType, int], other: Mapping[CodeType, int]
) -> tuple[CodeType | None, list[Location]]:
    """Return the function in which two paths part, and the lines of the first one down to it.

    The lines begin with the innermost one. If its function is not in the other path, or has the
    same callers there, no other line follows.
    """
    parted = {code for code, instruction in path.items() if other.get(code) != instruction}
    lines, code = list[Location](), None
    for code in reversed([*path]):
        lines.append(Location(code.co_filename, _with_line(code, path[code])[1]))
        parted.discard(code)
        if code not in other or not parted:
            break
    return code, lines


def raised_by_the_program(error: BaseException) -> bool:
    """Whether the program raised this error while gradtrace's code was running.

    A signal handler may run between any two instructions, and another thread may have an exception
    raised there; the class of such an exception is one that neither Python nor PyTorch raises here.
    """
    codes = (frame.f_code for frame, _ in walk_tb(error.__traceback__))
    user_codes = [*filter(is_users, codes)]
    if not user_codes:
        return type(error).__module__.partition(".")[0] not in ("builtins", "torch", "gradtrace")
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    return any(code_of(handler) in user_codes for handler in handlers if callable(handler))


def code_of(function: Any) -> CodeType | None:
    """Return the code object that a call of ``function`` runs; None if it is not Python code."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not isinstance(function, (FunctionType, MethodType)):
        function = inspect.getattr_static(type(function), "__call__", None)
    return getattr(function, "__code__", None)


class Chain:
    """The calls of the user's code on the stack at one moment, innermost first."""

    def __init__(self, codes: list[CodeType], instructions: list[int]):
        self._codes = codes
        self._instructions = instructions

    @functools.cached_property
    def lines(self) -> list[tuple[CodeType, int]]:
        return [*map(_with_line, self._codes, self._instructions)]

    @property
    def location(self) -> Location:
        """The line of the innermost call."""
        return self.locations[0]

    @property
    def locations(self) -> list[Location]:
        """The lines of all calls, innermost first."""
        return [Location(code.co_filename, line) for code, line in self.lines]

    @functools.cached_property
    def path(self) -> tuple[tuple[CodeType, int], ...]:
        """The innermost instruction of each function: the same at every depth of a recursion."""
        innermost: dict[CodeType, int] = {}
        for code, instruction in zip(self._codes, self._instructions, strict=True):
            innermost.setdefault(code, instruction)
        return tuple(innermost.items())


def _with_line(code: CodeType, instruction: int) -> tuple[CodeType, int]:
    lines = (line for start, end, line in code.co_lines() if start <= instruction < end and line)
    return code, next(lines, code.co_firstlineno)


class Chains:
    """A table of chains in which equal chains are one object."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], Chain] = {}

    def here(self, frame: FrameType | None) -> Chain | None:
        """Return the chain of the user's frames from ``frame`` outward; None if there is none."""
        key: list[int] = []
        codes: list[CodeType] = []
        is_users_file = _USERS  # the hottest loop of a strict watch, as in user_frame
        for _ in range(_MAX_FRAMES):
            if frame is None:
                break
            code = frame.f_code
            users = is_users_file.get(code.co_filename)
            if is_users(code) if users is None else users and code.co_name != STAND_IN:
                codes.append(code)
                key += (id(code), frame.f_lasti)
                if len(codes) == _MAX_CHAIN:
                    break
            frame = frame.f_back
        if not codes:
            return None
        chain = self._known.get(tuple(key))  # it holds the code objects: no identity is used twice
        if chain is None:
            chain = self._known[tuple(key)] = Chain(codes, key[1::2])
        return chain


class Found(NamedTuple):
    """A value that a variable reaches; ``owners`` are the objects on the way, outermost first."""

    name: str
    value: Any
    owners: tuple[Any, ...]


@functools.lru_cache(maxsize=1_000)
def _globals_read(code: CodeType) -> tuple[str, ...]:
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    return tuple({i.argval: None for i in dis.get_instructions(code) if i.opname in loads})


_REFERENCES = 3  # to a frame's dict: the frame's, the variable's, the argument's


def namespace(frame: FrameType, forget: bool = False) -> dict[str, Any]:
    """Return the frame's local variables and the globals that its code reads.

    ``forget`` empties the dict that a function's frame keeps before Python 3.13; the later proxy
    keeps nothing and must not be emptied. Do not pass ``forget`` while the frame is being traced,
    because Python would write the empty dict back. IPython's own globals (``In``, ``_`` …) are
    left out, since they reach everything.
    """
    live_locals = frame.f_locals
    variables = {**live_locals}
    unshared = sys.getrefcount(live_locals) <= _REFERENCES  # else the program has called locals()
    in_function = type(live_locals) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED
    if forget and unshared and in_function:
        live_locals.clear()
    ipython = running_ipython()
    hidden = () if ipython is None else ipython.user_ns_hidden
    if live_locals is frame.f_globals:  # of a module
        return {name: value for name, value in variables.items() if name not in hidden}
    used = (name for name in _globals_read(frame.f_code) if name not in {*variables, *hidden})
    return variables | {name: frame.f_globals[name] for name in used if name in frame.f_globals}


def reach(
    variables: Mapping[str, Any], modules: dict[int, str] | None = None, skip: Iterable[int] = ()
) -> Iterator[Found]:
    """Yield the tensors that variables reach, such as ``model.layer.weight``, variable by variable.

    Each object is visited once, except that a tensor is yielded under every variable that names it
    directly, and a tensor with a graph at every place that holds it. A gradient is yielded if it
    has a graph of its own. ``modules`` receives the names of the modules on the way, by identity;
    nothing is searched in the objects with the identities ``skip``.
    """
    visited = {*skip}
    pending = [Found(name, variables[name], ()) for name in reversed([*variables])]
    while pending and len(visited) < _MAX_OBJECTS:
        name, value, owners = match = pending.pop()
        if issubclass(type(value), torch.Tensor):
            has_graph = is_cut_off(value) or not value.is_leaf
            if id(value) not in visited or not owners or has_graph:
                visited.add(id(value))
                yield match
                if has_graph:
                    continue
                if value.grad is not None and value.grad.requires_grad:
                    pending.append(Found(f"{name}.grad", value.grad, (*owners, value)))
        elif type(value) not in PLAIN and len(owners) < _MAX_DEPTH and id(value) not in visited:
            visited.add(id(value))
            if modules is not None and issubclass(type(value), torch.nn.Module):
                modules[id(value)] = name
            items = itertools.islice(contents(value), _MAX_ITEMS)
            inner_matches = [Found(name + key, inner, (*owners, value)) for key, inner in items]
            pending.extend(reversed(inner_matches))


def user_variables(frame: FrameType | None, skip: Iterable[int] = ()) -> Iterator[Found]:
    """Yield the tensors that the variables of the user's frames reach, innermost frame first."""
    for users in user_frames(frame):
        yield from reach(namespace(users, forget=True), skip=skip)


PLAIN = (type(None), bool, int, float, str)


def contents(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the contents of a container, a module or another object, each with its key as text.

    The methods of the object's class are bypassed, so none of the program's code runs. Containers
    are copied first, since another thread may be changing them.
    """
    kind = type(value)  # isinstance would ask the object's own __class__
    if kind.__module__.partition(".")[0] == "gradtrace":  # a watch is not part of the program
        return
    if issubclass(kind, dict):
        if dict.__contains__(value, "__builtins__"):  # a module's variables, as a module is
            return
        for i, (key, inner) in enumerate(list(dict.items(value))):
            yield f"[{_key(key, i)}]", inner
    for sequence in _SEQUENCES:
        if issubclass(kind, sequence):
            entries = list(sequence.__iter__(value))
            fields = getattr(kind, "_fields", ()) if issubclass(kind, tuple) else ()
            keys = [f".{field}" for field in fields] or [f"[{i}]" for i in range(len(entries))]
            yield from zip(keys, entries, strict=False)
    if issubclass(kind, type) and belongs_to_user(value):
        members = list(type.__getattribute__(value, "__dict__").items())
        yield from ((f".{key}", inner) for key, inner in members)
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
    for base in kind.__mro__:
        for slot, member in vars(base).items() if "__slots__" in vars(base) else ():
            if isinstance(member, MemberDescriptorType):
                with contextlib.suppress(AttributeError):
                    yield f".{slot}", member.__get__(value)


_SEQUENCES: tuple[Any, ...] = (list, tuple, set, frozenset, deque)
_NOT_STATE = (type, ModuleType, FunctionType, torch.optim.Optimizer, torch.autograd.graph.Node)


_ADDRESS = 2**32  # such a number is an object's id, which the next run does not repeat


def _key(key: Any, place: int) -> str:
    named = type(key) in PLAIN and not (type(key) is int and abs(key) >= _ADDRESS)
    return repr(key) if named else f"{type(key).__name__} {place}"


_SHOWN = 4  # names


def names_of(parameters: Iterable[torch.Tensor]) -> str | None:
    """Return, as a text, the names of variables that reach these parameters; None if none does."""
    names = _names(parameters)
    remainder = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + remainder or None


def module_of(parameters: Iterable[torch.Tensor], others: Iterable[torch.Tensor]) -> str | None:
    """Return the name of the module that holds all these parameters and no others, or None."""
    paths = [name.rpartition(".")[0].replace(".", "/") for name in _names(parameters)]
    path = posixpath.commonpath(paths) if paths else ""
    module = re.sub(r"(/\d+)+$", "", path).replace("/", ".")
    is_shared = any(name.startswith(f"{module}.") for name in _names(others))
    return None if is_shared else module or None


def _names(parameters: Iterable[torch.Tensor]) -> list[str]:
    """Return one name for each of these parameters that a variable reaches."""
    ids, names = {id(parameter) for parameter in parameters}, dict[int, str]()
    for variable in user_variables(sys._getframe(1)):
        if id(variable.value) in ids:
            names.setdefault(id(variable.value), variable.name)
    return [*names.values()]
