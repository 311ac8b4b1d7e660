"""Edits of a function that a reader may make, and the resulting programs.

Each combination of edits is compiled into a function, whose source debuggers and tracers find.
"""

import ast
import hashlib
import linecache
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

from gradtrace.notebook.controls import MAX_SETTINGS
from gradtrace.questions import line_of
from gradtrace.tracing.function_source import read_function_source

UNEDITED = "as written"
_THE_LINE = "..."

Combination = tuple[int, ...]
"""The indices of the edits that are made, in the order in which they are listed."""


@dataclass(frozen=True)
class ReaderEdit:
    """One edit; ``changes`` maps a line to those in its place, where None is the line itself."""

    name: str
    changes: Mapping[int, tuple[str | None, ...]]

    @property
    def replaced(self) -> set[int]:
        """The numbers of the lines that this edit removes or replaces by others."""
        return {line for line, texts in self.changes.items() if None not in texts}


class Edits:
    """The edits of one function: for each its name, and for each line its replacement.

    Raises:
        TypeError: ``function`` is not a plain Python function.
        ValueError: a line cannot be found, a combination of edits is not a valid program, or there
            are more than ``MAX_SETTINGS`` combinations.
    """

    def __init__(self, function: Callable[..., Any], edits: Mapping[str, Mapping[int | str, str]]):
        if not isinstance(function, FunctionType):
            raise TypeError(
                f"edits= needs a function defined with def, but {function!r} is a "
                f"{type(function).__name__}"
            )
        self.original = function
        self.lines = read_function_source(function.__name__, function.__code__).lines
        self.edits = [self._edit(name, changes) for name, changes in edits.items()]
        self.combinations = self._combinations()
        names = [[self.edits[k].name for k in combination] for combination in self.combinations]
        self.labels = [" + ".join(edit_names) or UNEDITED for edit_names in names]
        self._functions = {
            label: compiled(function, self.source(combination))
            for label, combination in zip(self.labels, self.combinations, strict=True)
        }

    def _edit(self, name: str, changes: Mapping[int | str, str]) -> ReaderEdit:
        if name == UNEDITED or " + " in name:
            raise ValueError(f"an edit cannot be called {name!r}: choose another name")
        by_line = {}
        for key, text in changes.items():
            line = line_of(key, self.lines)
            source = self.lines[line]
            indent = source[: len(source) - len(source.lstrip())]
            by_line[line] = tuple(
                None if row.strip() == _THE_LINE else (indent + row).rstrip()
                for row in text.splitlines()
            )
        return ReaderEdit(name, by_line)

    def _combinations(self) -> list[Combination]:
        """Return every set of edits of which no two replace the same line, small sets first."""
        combinations: list[Combination] = [()]
        for index, edit in enumerate(self.edits):
            combinations += [
                (*combination, index)
                for combination in combinations
                if not any(edit.replaced & self.edits[k].replaced for k in combination)
            ]
            if len(combinations) > MAX_SETTINGS:
                raise ValueError(
                    f"the {len(self.edits)} edits of {self.original.__name__} have more than "
                    f"{MAX_SETTINGS} combinations, and {MAX_SETTINGS} is the limit: "
                    "list fewer edits"
                )
        return sorted(combinations, key=lambda combination: (len(combination), combination))

    def _in_place_of(self, line: int, combination: Combination) -> list[str]:
        """Return the lines that a combination of edits puts in the place of a line."""
        changes = (self.edits[index].changes for index in combination)
        touching = [of_edit[line] for of_edit in changes if line in of_edit]
        replacements = [texts for texts in touching if None not in texts]
        lines: list[str | None] = [*replacements[0]] if replacements else [self.lines[line]]
        for texts in touching:
            if None in texts:
                at = texts.index(None)
                lines = [*texts[:at], *lines, *texts[at + 1 :]]
        return [text for text in lines if text is not None]

    def source(self, combination: Combination) -> str:
        """Return the function's text with a combination of edits."""
        lines = (text for line in self.lines for text in self._in_place_of(line, combination))
        return "\n".join(lines) + "\n"

    def function(self, label: str) -> FunctionType:
        """Return the function with the edits that ``label`` names; raise ValueError if unknown."""
        if label not in self._functions:
            raise ValueError(
                f"{self.original.__name__} has no edits {label!r}; its edits: "
                f"{', '.join(map(repr, self.labels))}"
            )
        return self._functions[label]

    def data(self) -> dict[str, Any]:
        """Return the edits for the front end; ``sizes`` are numbers of lines in place of one."""
        sizes = [
            {
                line: size
                for line in self.lines
                if (size := len(self._in_place_of(line, combination))) != 1
            }
            for combination in self.combinations
        ]
        return {
            "edits": [{"name": edit.name, "changes": dict(edit.changes)} for edit in self.edits],
            "combinations": self.combinations,
            "sizes": sizes,
        }


def compiled(function: FunctionType, source: str) -> FunctionType:
    """Return the function compiled from ``source``, with ``function``'s globals and closure.

    It also has ``function``'s name, defaults and first line number.  Raises ValueError if
    ``source`` is not a valid program, or defines no function of that name.
    """
    first = min(read_function_source(function.__name__, function.__code__).lines)
    digest = hashlib.sha256(source.encode("utf-8", "backslashreplace")).hexdigest()[:12]
    filename = f"<{function.__name__}, edited: {digest}>"
    free = function.__code__.co_freevars
    # Names of an enclosing function stay names of an enclosing function.
    tree = ast.parse(f"def enclosing({', '.join(free)}): pass")
    try:
        body = ast.parse("\n" * (first - 1) + source, filename).body
        tree.body[0].body = body  # type: ignore[attr-defined]
        code = _code_of(function.__name__, compile(tree, filename, "exec"))
    except SyntaxError as error:
        raise ValueError(
            f"the edited {function.__name__} is not a valid program ({error.msg}):\n{source}"
        ) from None
    lines = [*("\n" * (first - 1)), *source.splitlines(keepends=True)]
    linecache.cache[filename] = len(source), None, lines, filename
    cells = dict(zip(free, function.__closure__ or (), strict=True))
    closure = tuple(cells[name] for name in code.co_freevars)
    edited = FunctionType(code, function.__globals__, function.__name__, closure=closure)
    edited.__defaults__ = function.__defaults__
    edited.__kwdefaults__ = function.__kwdefaults__
    edited.__qualname__ = function.__qualname__
    return edited


def _code_of(name: str, module: CodeType) -> CodeType:
    """Return the code of the function ``name`` that the module's only function defines."""
    (enclosing,) = (const for const in module.co_consts if isinstance(const, CodeType))
    for const in enclosing.co_consts:
        if isinstance(const, CodeType) and const.co_name == name:
            return const
    raise SyntaxError(f"it does not define {name}")


def definitions(function: FunctionType) -> str:
    """Return statements that define, in an empty notebook, the globals that a function reads.

    Modules, and names from other modules, are imported. The source of definitions in the function's
    own module is copied, and constants are written out if their ``repr`` is an expression.
    """
    statements: dict[str, None] = {}
    _collect(function, statements, {function.__name__})
    # A class needs its bases when it is defined, so the imports come first.
    return "\n".join(sorted(statements, key=lambda text: not text.startswith(("import ", "from "))))


def _collect(function: FunctionType, statements: dict[str, None], names: set[str]) -> None:
    """Add the definitions of the globals that ``function`` reads and ``names`` does not list."""
    for name in _global_names(function.__code__):
        if name in names or name not in function.__globals__:
            continue
        names.add(name)
        value = function.__globals__[name]
        module = getattr(value, "__module__", None)
        if isinstance(value, ModuleType):
            parent, _, last = value.__name__.rpartition(".")
            alias = "" if value.__name__ == name else f" as {name}"
            if parent and last == name:
                statements[f"from {parent} import {name}"] = None
            else:
                statements[f"import {value.__name__}{alias}"] = None
        elif isinstance(value, FunctionType) and module == function.__module__:
            _collect(value, statements, names)
            source = read_function_source(name, value.__code__).lines.values()
            statements["\n".join(("", *source, ""))] = None
        elif isinstance(value, type) and module == function.__module__:
            members = [getattr(member, "__func__", member) for member in vars(value).values()]
            methods = [member for member in members if isinstance(member, FunctionType)]
            for method in methods:
                _collect(method, statements, names)
            statements["\n".join(("", _class_source(name, methods[0].__code__), ""))] = None
        elif module and module != function.__module__ and hasattr(sys.modules.get(module), name):
            statements[f"from {module} import {name}"] = None
        elif isinstance(value, bool | int | float | str):
            statements[f"{name} = {value!r}"] = None


def _class_source(name: str, method: CodeType) -> str:
    """Return a class's source, located through a method because a notebook cell has no file."""
    lines = linecache.getlines(method.co_filename)
    nodes = ast.walk(ast.parse("".join(lines)))
    classes = (node for node in nodes if isinstance(node, ast.ClassDef))
    definition = next(node for node in classes if node.name == name)
    return "".join(lines[definition.lineno - 1 : definition.end_lineno]).rstrip()


def _global_names(code: CodeType) -> list[str]:
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return [*code.co_names, *(name for const in inner for name in _global_names(const))]


def expression(value: Any, label: str) -> str:
    """Return the source code of a constant, or the label of any other value."""
    return repr(value) if isinstance(value, bool | int | float | str | None) else label
