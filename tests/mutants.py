"""Small, meaningful changes of a program: the faults that a question has to notice.

A statement or a keyword dropped, a constant changed, an operator swapped, a call or a condition
taken away.  Each is one change, so that a mutant which a question lets pass shows what no property
looks at.
"""

import ast
import copy
from collections.abc import Iterator

_SWAPPED = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult},
    **{ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr},
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In},
}
_DEFINITIONS = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def mutants(source: str) -> Iterator[str]:
    """The sources that differ from ``source`` in one place, each once, in a stable order."""
    tree = ast.parse(source)
    sources = {ast.unparse(tree)}
    for changed in _changed(tree):
        text = ast.unparse(ast.fix_missing_locations(changed))
        if text not in sources:
            sources.add(text)
            yield text


def _changed(tree: ast.Module) -> Iterator[ast.Module]:
    for number, node in enumerate(ast.walk(tree)):
        for field, value in ast.iter_fields(node):
            for i, item in enumerate(value if isinstance(value, list) else ()):
                if isinstance(item, ast.keyword) or _is_droppable(item):
                    copied = copy.deepcopy(tree)
                    parts = getattr(_nth(copied, number), field)
                    parts[i : i + 1] = [ast.Pass()] if isinstance(item, ast.stmt) else []
                    yield copied
        for replacement in _replacements(node):
            yield _Replaced(number, replacement).visit(copy.deepcopy(tree))


def _is_droppable(item: object) -> bool:
    is_docstring = isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)
    return isinstance(item, ast.stmt) and not (isinstance(item, _DEFINITIONS) or is_docstring)


def _nth(tree: ast.AST, number: int) -> ast.AST:
    return next(node for k, node in enumerate(ast.walk(tree)) if k == number)


class _Replaced(ast.NodeTransformer):
    """The tree with one of its nodes, by its number in :func:`ast.walk`, replaced."""

    def __init__(self, number: int, replacement: ast.AST) -> None:
        self._number, self._replacement = number, replacement
        self._target: ast.AST | None = None

    def visit(self, node: ast.AST) -> ast.AST:
        if self._target is None:
            self._target = _nth(node, self._number)
        if node is self._target:
            return copy.deepcopy(self._replacement)
        return self.generic_visit(node)


def _replacements(node: ast.AST) -> list[ast.AST]:
    match node:
        case ast.Constant(value=bool() as value):
            return [ast.Constant(not value)]
        case ast.Constant(value=int() as value):
            return [ast.Constant(value + 1), ast.Constant(value - 1)]
        case ast.Constant(value=float() as value):
            return [ast.Constant(2 * value)]
        case ast.BinOp(left=left, op=op, right=right):
            swapped = _SWAPPED.get(type(op))
            return [*([ast.BinOp(left, swapped(), right)] if swapped else []), left, right]
        case ast.Compare(left=left, ops=[op], comparators=others):
            swapped = ast.Compare(left, [_SWAPPED[type(op)]()], others)
            return [swapped, ast.Constant(True), ast.Constant(False)]
        case ast.BoolOp(values=values):
            return list(values)
        case ast.Call(func=ast.Attribute(value=value), args=[]):
            return [value]
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
        case ast.UnaryOp(operand=operand):
            return [operand]
    return []
