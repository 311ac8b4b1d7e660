"""The names that a piece of source reads, writes, and carries from iteration to iteration."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import TypeVar

import libcst as cst

from gradtrace.autograd.syntax import names, reads_first
from gradtrace.repair.edits import Loop, Source

# Functions that return something else each time: a repair does not call them again.
DRAWS = re.compile(r"\b(rand\w*|normal\w*|bernoulli|multinomial|rsample|sample|shuffle|next)\(")
_ADDERS = ("append", "appendleft", "extend", "insert", "add")


def _tree(code: str) -> ast.Module:
    try:
        return ast.parse(textwrap.dedent(code).strip())
    except SyntaxError:  # the head of a compound statement
        return ast.Module([], [])


def reads(code: str) -> set[str]:
    """Return the names and attributes (``self.h``) that the code reads.

    >>> sorted(reads("x[0] = a.b + 1; c += 1"))
    ['a', 'a.b', 'c', 'x']
    """
    tree = _tree(code)
    targets = {ast.unparse(n.target) for n in ast.walk(tree) if isinstance(n, ast.AugAssign)}
    return names(tree, ast.Load) | targets


def writes(code: str) -> set[str]:
    """Return the names and attributes that the code assigns."""
    return names(_tree(code), ast.Store)


def carried_names(source: Source, loop: Loop) -> list[str]:
    """Return the variables and attributes that an iteration reads before it assigns them."""
    code = source.code(loop)
    (tree,) = _tree(code).body
    return [
        name
        for name in sorted(writes(code))
        if name.isidentifier() and reads_first(tree, name)  # type: ignore[arg-type]
    ]


def changes_in_place(source: Source, statement: cst.CSTNode) -> set[str]:
    """Return the names that a statement writes into: ``x[0] = …``, ``x += …``, ``x.mul_(…)``."""
    targets: list[ast.expr] = []
    for node in ast.walk(_tree(source.code(statement))):
        if isinstance(node, ast.AugAssign):
            targets.append(node.target)
        elif isinstance(node, ast.Assign):
            targets += [target for target in node.targets if isinstance(target, ast.Subscript)]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr.endswith("_")
            and not node.func.attr.endswith("__")
        ):
            targets.append(node.func.value)
    bases = set()
    for target in targets:
        while isinstance(target, ast.Subscript):
            target = target.value
        bases.add(ast.unparse(target))
    return bases


def accumulated(source: Source, statement: cst.CSTNode) -> set[str]:
    """Return the names that a statement, or one inside it, adds to: ``x += …``, ``x.append(…)``."""
    targets = set()
    for node in ast.walk(_tree(source.code(statement))):
        if isinstance(node, ast.AugAssign):
            targets.add(ast.unparse(node.target))
    return targets | {container for container, _ in additions(source, statement)}


def additions(source: Source, root: cst.CSTNode | None = None) -> Iterator[tuple[str, cst.Call]]:
    """Yield the calls that add an element to a container, with the container's name."""
    for call in source.all(cst.Call, root):
        function = call.func
        if isinstance(function, cst.Attribute) and function.attr.value in _ADDERS and call.args:
            yield source.code(function.value), call


def value_of(statement: cst.CSTNode) -> cst.BaseExpression | None:
    """Return the value that an assignment assigns."""
    if isinstance(statement, cst.Assign | cst.AnnAssign | cst.AugAssign):
        return statement.value
    return None


def assignments(source: Source) -> Iterator[tuple[str, cst.BaseExpression]]:
    """Yield the targets and values of the file's assignments; ``a, b = f(), g()`` are two."""
    for assign in source.all(cst.Assign):
        target, value = assign.targets[0].target, assign.value
        if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
            for part, part_value in zip(target.elements, value.elements, strict=False):
                yield source.code(part.value), part_value.value
        else:
            yield source.code(target), value


def statements_computing(
    source: Source, statements: list[cst.CSTNode], names: set[str]
) -> Iterator[cst.Assign]:
    """Yield the assignments from which these names are computed, the last one first."""
    needed = {*names}
    for statement in reversed(statements):
        if isinstance(statement, cst.Assign) and writes(source.code(statement)) & needed:
            needed |= reads(source.code(statement))
            yield statement


_COMMON_WORDS = {
    "loss", "losses", "opt", "optim", "optimizer", "optimiser", "err", "error", "self", "net",
    "model", "backward", "total", "cost", "the", "of", "retain", "graph", "true", "inputs", "list",
    "parameters", "weight", "bias",
}  # fmt: skip


def _words(text: str) -> set[str]:
    separated = re.sub(r"([a-z])([A-Z])", r"\1_\2", text)
    return {word.lower() for word in re.findall(r"[A-Za-z]+", separated)} - _COMMON_WORDS


_Key = TypeVar("_Key")


def named_like(name: str, descriptions: Mapping[_Key, str]) -> _Key | None:
    """Return the key whose description shares a word, or the start of one, with a name.

    None if there is no such key, or more than one.

    >>> named_like("g_loss", {1: "opt_d discriminator", 2: "opt_g generator"})
    2
    >>> named_like("loss", {1: "opt_d", 2: "opt_g"})
    """
    words = _words(name)
    keys = [
        key
        for key, description in descriptions.items()
        if any(a.startswith(b) or b.startswith(a) for a in words for b in _words(description))
    ]
    return keys[0] if len(keys) == 1 else None
