"""Read cells of a notebook without running them: what they define, and what an answer needs."""

import ast
import builtins
import re
import symtable
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

MAX_CHARACTERS = 200_000
"""The longest source that is parsed, and the most that all answers have together."""

_KEPT = 10_000
"""The longest source whose tree is cached, because large trees would take a reader's memory."""

_LINE_END = re.compile(r"\r\n|\r|\n")
_MAGIC = re.compile(r"^(\s*)[%!].*$", re.M)
_EVERY_BUILTIN = frozenset(dir(builtins)) | {"__name__", "__file__", "get_ipython"}


class Source(NamedTuple):
    """A source as Python reads it, and its syntax tree; None if Python cannot read it."""

    text: str
    tree: ast.Module | None  # cached: do not change it


def read(source: str) -> Source:
    """Read a source, without lines of IPython magic if Python cannot read it otherwise.

    The source is not trusted: it is parsed but not compiled, and deep nesting raises no exception.

    >>> read("def f(:").tree is None, read("%%time\\nx = 1").text, read("x = (7\\n     % 2)").text
    (True, 'pass\\nx = 1', 'x = (7\\n     % 2)')
    """
    if len(source) > MAX_CHARACTERS:
        return Source(source, None)
    return _read_short(source) if len(source) <= _KEPT else _read_anew(source)


def _read_anew(source: str) -> Source:
    for left_out in (False, True):
        text = _MAGIC.sub(r"\1pass", source) if left_out else source
        with warnings.catch_warnings(action="ignore"):
            try:
                return Source(text, ast.parse(text))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
    return Source(source, None)


_read_short = lru_cache(16)(_read_anew)  # of an answer several things are asked, one after another


def defined_names(source: str) -> set[str]:
    """Return the names that a source's top level defines, imports included.

    >>> sorted(defined_names("import os.path\\ndef f(): pass\\na, b = 1, 2"))
    ['a', 'b', 'f', 'os']
    >>> sorted(defined_names("try: import numpy\\nexcept OSError:\\n def ones(n): x = n"))
    ['numpy', 'ones']
    """
    tree = read(source).tree
    return set().union(*map(_defined, tree.body)) if tree else set()


def _defined(node: ast.stmt) -> set[str]:
    """Return the names that a statement defines, also in an ``if``, a loop or a ``try`` within."""
    names: set[str] = set()
    todo: list[ast.AST] = [node]
    while todo:
        inner = todo.pop()
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(inner.name)
        elif isinstance(inner, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in inner.names}
        elif isinstance(inner, ast.Name):
            names |= {inner.id} if isinstance(inner.ctx, ast.Store) else set()
        elif isinstance(inner, ast.comprehension):  # its variables exist only in it
            todo += [inner.iter, *inner.ifs]
        else:
            todo += ast.iter_child_nodes(inner)
    return names


def used_names(source: str) -> set[str]:
    """Return the names that a source reads from its own top level or outside, without builtins.

    >>> sorted(used_names("def f(x):\\n    y = helper(x)\\n    return np.ones(y)"))
    ['helper', 'np']
    """
    text, tree = read(source)
    if tree is None:
        return set()
    try:
        return _used(symtable.symtable(text, "cell", "exec")) - _EVERY_BUILTIN
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()


def _used(table: symtable.SymbolTable) -> set[str]:
    top = table.get_type() == "module"
    names = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (top or symbol.is_global())
    }
    return names.union(*map(_used, table.get_children()))


@dataclass(frozen=True)
class _Statement:
    place: tuple[int, int]
    """The number of the cell, and of the line in it."""
    source: str
    defines: frozenset[str]
    uses: frozenset[str]


def _statements(number: int, source: str) -> list[_Statement]:
    """Return the statements of the top level of cell ``number`` that define or change a name."""
    text, tree = read(source)
    if tree is None:
        return []
    lines = _LINE_END.split(text)  # as Python counts them: a form feed ends none
    statements = []
    for node in tree.body:
        changed = _changed(node)
        names = _defined(node) | changed
        if isinstance(node, ast.Expr) or not names:
            continue
        first = min(part.lineno for part in (node, *getattr(node, "decorator_list", ())))
        part = "\n".join(lines[first - 1 : node.end_lineno])
        if read(part).tree is None:  # it shares a line with others
            part = ast.get_source_segment(text, node)
        uses = frozenset(used_names(part) | changed)
        statements.append(_Statement((number, first), part, frozenset(names), uses))
    return statements


def _changed(node: ast.stmt) -> set[str]:
    """Return the names of objects that an assignment ``node`` changes: ``x[i], y.z = 1, 2``."""
    targets: list[ast.expr] = [node.target] if isinstance(node, ast.AugAssign) else []
    for target in node.targets if isinstance(node, ast.Assign) else ():
        parts = [p for p in ast.walk(target) if isinstance(p, ast.Attribute | ast.Subscript)]
        targets += [part for part in parts if isinstance(part.ctx, ast.Store)]
    names = set()
    for target in targets:
        while isinstance(target, ast.Attribute | ast.Subscript):
            target = target.value
        names |= {target.id} if isinstance(target, ast.Name) else set()
    return names


def needed(names: Iterable[str], cells: Sequence[str], satisfied: Iterable[str]) -> tuple[str, ...]:
    """Return the statements that define ``names``, and those that they depend on, in order.

    These are, for each name, the last statement that defines or changes it, and earlier ones if it
    reads the name itself; for a name that none defines, every ``import *``.  Expression statements
    (a call, a plot) are left out, and cells beyond :data:`MAX_CHARACTERS` in total.  Names in
    ``satisfied`` need no definition from here.

    >>> cells = ["import math\\nprint('hello')", "def half(x): return x / 2\\nmath.tau", "y = 1"]
    >>> needed({"half", "y", "torch"}, cells, {"torch"})
    ('def half(x): return x / 2', 'y = 1')
    """
    length, statements = 0, []
    for number, cell in enumerate(cells):
        length += len(cell)
        if length <= MAX_CHARACTERS:
            statements += _statements(number, cell)
    stars = {i for i, statement in enumerate(statements) if "*" in statement.defines}
    taken: set[int] = set()
    satisfied, todo = set(satisfied), list(names)
    while todo:
        name = todo.pop()
        if name in satisfied:
            continue
        satisfied.add(name)
        definers = [i for i, statement in enumerate(statements) if name in statement.defines]
        if not definers:
            taken |= stars  # it may come from there
        for i in reversed(definers):
            taken.add(i)
            todo += statements[i].uses
            if name not in statements[i].uses:
                break
    # Statements that share a line are that line, once.
    return tuple({statements[i].place: statements[i].source for i in sorted(taken)}.values())
