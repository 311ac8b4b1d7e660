"""Questions about a syntax tree alone: which names it reads and writes, and in which order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

Loop = ast.For | ast.AsyncFor | ast.While
Function = ast.FunctionDef | ast.AsyncFunctionDef


def reads_first(loop: Loop, name: str) -> bool:
    """Whether an iteration reads the variable before assigning it, so that it is carried over."""
    head = loop.test if isinstance(loop, ast.While) else loop.target
    return _first_access([head, *loop.body], name) is ast.Load


def _first_access(nodes: Iterable[ast.AST], name: str) -> type[ast.expr_context] | None:
    """Return whether nodes, in the order in which they run, load the variable first or store it."""
    for node in nodes:
        if isinstance(node, ast.Name):
            if node.id == name:
                return type(node.ctx)
            continue
        if isinstance(node, ast.If):  # either branch may run
            accesses = [
                _first_access([node.test, *part], name) for part in (node.body, node.orelse)
            ]
            if ast.Load in accesses or None not in accesses:
                return ast.Load if ast.Load in accesses else ast.Store
            continue
        if isinstance(node, Function | ast.Lambda):
            continue
        first = _first_access(_as_they_run(node), name)
        if first is not None:
            return ast.Load if isinstance(node, ast.AugAssign) else first
    return None


def _as_they_run(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a statement or expression in the order in which Python evaluates them."""
    parts = list(ast.iter_child_nodes(node))
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
        value = node.value
        return [*([value] if value else []), *(part for part in parts if part is not value)]
    if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        return [node.iter, *(part for part in parts if part is not node.iter)]
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        return [*node.generators, *(part for part in parts if part not in node.generators)]
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return [*node.items, *node.body]
    return parts


def names(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """Return the names, and attributes such as ``self.mem``, that the code loads or stores."""
    return {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, context)
    }


def written_in_place(node: ast.AST) -> ast.expr | None:
    """Return what a node writes into: ``x`` of ``x += …``, ``x[0] = …`` and ``x.mul_(…)``."""
    match node:
        case ast.AugAssign(target=target) | ast.Assign(targets=[ast.Subscript() as target]):
            return without_index(target)
        case ast.Call(func=ast.Attribute(value=target, attr=name)):
            in_place = re.fullmatch(r"[a-z]\w*[a-z0-9]_", name) and name not in _NOT_IN_PLACE
            return without_index(target) if in_place else None
    return None


_NOT_IN_PLACE = (
    "requires_grad_", "share_memory_", "detach_", "retain_grad_", "clip_grad_norm_",
    "clip_grad_value_",
)  # fmt: skip


def without_index(expression: ast.expr) -> ast.expr:
    """Return ``x`` of ``x[0][1]``."""
    while isinstance(expression, ast.Subscript):
        expression = expression.value
    return expression
