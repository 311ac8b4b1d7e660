"""What a piece of the program's code reads, writes, carries from iteration to iteration and
names."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import libcst as cst

from gradtrace.repair.edits import Function, Loop, Source

# What gives something else each time: a repair that computes again leaves it alone.
DRAWS = re.compile(r"\b(rand\w*|normal\w*|bernoulli|multinomial|rsample|sample|shuffle|next)\(")


def reads(code: str) -> set[str]:
    """Names and attributes (``self.h``) that the code reads; the base of ``x[0] = …`` is read."""
    return _names(code, ast.Load) | {
        ast.unparse(one.target) for one in _walk(code) if isinstance(one, ast.AugAssign)
    }


def writes(code: str) -> set[str]:
    """Names and attributes that the code assigns."""
    return _names(code, ast.Store)


def _names(code: str, context: type[ast.expr_context]) -> set[str]:
    return {
        ast.unparse(one)
        for one in _walk(code)
        if isinstance(one, ast.Name | ast.Attribute) and isinstance(one.ctx, context)
    }


def _walk(code: str) -> Iterator[ast.AST]:
    try:
        yield from ast.walk(ast.parse(textwrap.dedent(code).strip()))
    except SyntaxError:  # the head of a compound statement
        return


def carried_names(source: Source, loop: Loop) -> list[str]:
    """What a loop reads before it assigns it, and assigns: it goes from iteration to iteration."""
    tree = next(_walk(source.code(loop)), None)
    written: set[str] = set()
    early: list[str] = []
    late: set[str] = set()
    assert isinstance(tree, ast.Module)

    def visit(code: ast.AST) -> None:
        text = ast.unparse(code)
        for name in sorted(reads(text) - written):
            if name not in early:
                early.append(name)
        written.update(writes(text))
        late.update(writes(text))

    def go(statements: Iterable[ast.stmt]) -> None:
        for one in statements:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            body = getattr(one, "body", None)
            if body is None:
                visit(one)
                continue
            for head in ("iter", "test", "target"):
                if isinstance(part := getattr(one, head, None), ast.AST):
                    visit(part)
            for item in getattr(one, "items", ()):
                visit(item.context_expr)
            go(body)
            go(getattr(one, "orelse", ()))

    go(tree.body)
    return [name for name in early if name in late]


def changes_in_place(source: Source, statement: cst.CSTNode) -> set[str]:
    """The names that a statement writes into: ``x[0] = …``, ``x += …``, ``x.mul_(…)``."""
    found: set[ast.expr] = set()
    for one in _walk(source.code(statement)):
        if isinstance(one, ast.AugAssign):
            found.add(one.target)
        elif isinstance(one, ast.Assign):
            found |= {target for target in one.targets if isinstance(target, ast.Subscript)}
        elif (
            isinstance(one, ast.Call)
            and isinstance(one.func, ast.Attribute)
            and one.func.attr.endswith("_")
            and not one.func.attr.endswith("__")
        ):
            found.add(one.func.value)
    names = set()
    for base in found:
        while isinstance(base, ast.Subscript):
            base = base.value
        names.add(ast.unparse(base))
    return names


def accumulated(source: Source, statement: cst.CSTNode) -> set[str]:
    """The names that a statement, or one inside it, adds to: ``x += …``, ``x.append(…)``."""
    found = set()
    for one in _walk(source.code(statement)):
        if isinstance(one, ast.AugAssign):
            found.add(ast.unparse(one.target))
        elif (
            isinstance(one, ast.Call)
            and isinstance(one.func, ast.Attribute)
            and one.func.attr in ("append", "extend", "insert", "add")
        ):
            found.add(ast.unparse(one.func.value))
    return found


def value_of(statement: cst.CSTNode) -> cst.BaseExpression | None:
    """What an assignment assigns."""
    if isinstance(statement, cst.Assign | cst.AnnAssign | cst.AugAssign):
        return statement.value
    return None


def assigned(source: Source) -> Iterator[tuple[str, cst.BaseExpression]]:
    """What the file assigns to which name; of ``a, b = f(), g()`` each apart."""
    for assign in source.all(cst.Assign):
        target, value = assign.targets[0].target, assign.value
        if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
            for one, made in zip(target.elements, value.elements, strict=False):
                yield source.code(one.value), made.value
        else:
            yield source.code(target), value


def in_function(source: Source, node: cst.CSTNode, name: str) -> bool:
    function: Function | None = source.function_of(node)
    return function is not None and function.name.value == name


_NO_NAMES = {
    "loss", "losses", "opt", "optim", "optimizer", "optimiser", "err", "error", "self", "net",
    "model", "backward", "total", "cost", "the", "of", "retain", "graph", "true", "inputs", "list",
    "parameters", "weight", "bias",
}  # fmt: skip  # fmt: skip


def _words(text: str) -> set[str]:
    parts = re.sub(r"([a-z])([A-Z])", r"\1_\2", text)
    return {word.lower() for word in re.findall(r"[A-Za-z]+", parts)} - _NO_NAMES


_Named = TypeVar("_Named")


def named_like(name: str, others: Mapping[_Named, str]) -> _Named | None:
    """The one whose name shares a word, or the beginning of one, with this name; None if not one.

    >>> named_like("g_loss", {1: "opt_d discriminator", 2: "opt_g generator"})
    2
    >>> named_like("loss", {1: "opt_d", 2: "opt_g"})
    """
    words = _words(name)
    fits = [
        key
        for key, other in others.items()
        if any(a.startswith(b) or b.startswith(a) for a in words for b in _words(other))
    ]
    return fits[0] if len(fits) == 1 else None
