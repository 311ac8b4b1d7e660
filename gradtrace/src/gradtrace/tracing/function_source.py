"""The source of a function: its lines by number, its statements and its branches."""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from types import CodeType
from typing import NamedTuple

_KINDS = {
    inspect.CO_GENERATOR: "generator",
    inspect.CO_COROUTINE: "coroutine",
    inspect.CO_ASYNC_GENERATOR: "asynchronous generator",
}


class FunctionSource(NamedTuple):
    """The text of a function, without its decorators."""

    lines: dict[int, str]  # by number
    statements: dict[int, int]  # first and last lines, as in gradtrace.Trace
    branches: list[tuple[int, range]]  # the line of an `if`, loop or `match`, and those of a block


def read_function_source(name: str, code: CodeType) -> FunctionSource:
    for flag, kind in _KINDS.items():
        if code.co_flags & flag:
            raise TypeError(
                f"calling the {kind} function {name} runs none of its lines: trace a function "
                "that consumes it"
            )
    try:
        lines, first = inspect.getsourcelines(code)
    except (OSError, TypeError):
        raise ValueError(
            f"the source of {name} cannot be found (it was typed at a prompt or made by "
            "exec): put it into a file or a notebook cell"
        ) from None
    text = textwrap.dedent("".join(lines))
    numbered = dict(enumerate(text.splitlines(), first))
    tree = parsed(numbered)
    begin = tree.body[0].lineno if tree.body else first  # the line of def: decorators come before
    statements = {}
    branches = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            body = _first_inside(node)  # if it has one, its head ends before
            last = node.end_lineno if body is None else body - 1
            if last is not None and last > node.lineno:
                statements[node.lineno] = last
            for block in _blocks(node):
                end = block[-1].end_lineno or block[-1].lineno
                branches.append((node.lineno, range(block[0].lineno, end + 1)))
    lines_by_number = {number: line for number, line in numbered.items() if number >= begin}
    return FunctionSource(lines_by_number, statements, branches)


def parsed(lines: Mapping[int, str]) -> ast.Module:
    """Parse source lines, by number, into a syntax tree with the same line numbers.

    The tree is empty if the source does not parse, as for a lambda in the middle of an expression.
    """
    first = min(lines, default=1)
    text = "\n".join(lines.get(n, "") for n in range(first, max(lines, default=0) + 1))
    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return ast.Module([], [])
    ast.increment_lineno(tree, first - 1)
    return tree


def _first_inside(statement: ast.stmt) -> int | None:
    """Return the line on which the body of a compound statement begins, or None."""
    if isinstance(statement, ast.Match):
        return statement.cases[0].pattern.lineno
    body = getattr(statement, "body", None)
    return body[0].lineno if body else None


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """Return the blocks of an ``if``, a loop or a ``match``; no blocks of other statements."""
    if isinstance(statement, ast.If | ast.For | ast.While):
        return [block for block in (statement.body, statement.orelse) if block]
    return [case.body for case in statement.cases] if isinstance(statement, ast.Match) else []
