"""Repairs of in-place changes: out of place, or with a clone of what backward needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from gradtrace.repair.code_names import changes_in_place, reads, value_of
from gradtrace.repair.edits import (
    Changes,
    Source,
    in_parentheses,
    instead,
    method,
    method_called,
    removed,
    to,
)
from gradtrace.repair.repairs import CLONE_USED, CLONE_WRITTEN, NO_GRAD, OUT_OF_PLACE
from gradtrace.repair.rule import Candidate, EditRule, Failure, Statement, edit

_OPERATORS: dict[type[cst.BaseAugOp], Callable[[], cst.BaseBinaryOp]] = {
    cst.AddAssign: cst.Add,
    cst.SubtractAssign: cst.Subtract,
    cst.MultiplyAssign: cst.Multiply,
    cst.DivideAssign: cst.Divide,
    cst.PowerAssign: cst.Power,
    cst.MatrixMultiplyAssign: cst.MatrixMultiply,
}
_WITHOUT_WRITING = ("requires_grad_", "detach_", "retain_grad_", "share_memory_")


def _in_place_statements(failure: Failure) -> list[Statement]:
    """Return the in-place statements that the failure names, and others of their functions.

    Those in an optimizer or under ``no_grad()`` are left out: if the name stood for another tensor,
    the update would not reach the parameter.
    """
    statements = {statement.node: statement for statement in failure.involved}
    for statement in failure.involved:
        source = statement.source
        for node in source.statements(source.scope_of(statement.node)):
            line = statement.line._replace(line=source.lines(node)[0])
            statements.setdefault(node, Statement(source, node, line))
    return [
        statement
        for statement in statements.values()
        if _is_in_place(statement.source, statement.node)
        and not _is_update(statement.source, statement.node)
    ]


def _is_update(source: Source, node: cst.CSTNode) -> bool:
    """Whether a statement runs in an optimizer or without gradients."""
    definition, function = source.class_of(node), source.function_of(node)
    bases = () if definition is None else definition.bases
    decorators = () if function is None else function.decorators
    blocks = [item for block in source.around(node, cst.With) for item in block.items]
    return any("Optimizer" in source.code(base) for base in bases) or any(
        "no_grad" in source.code(context) for context in (*decorators, *blocks)
    )


def _indexed(node: cst.CSTNode) -> cst.BaseExpression | None:
    """Return ``x`` of ``x[0] = …`` and ``x[0][1] += …``."""
    target: cst.BaseExpression | None = None
    if isinstance(node, cst.Assign) and len(node.targets) == 1:
        target = node.targets[0].target
    elif isinstance(node, cst.AugAssign):
        target = node.target
    if not isinstance(target, cst.Subscript):
        return None
    while isinstance(target, cst.Subscript):
        target = target.value
    return target


def _in_place_calls(source: Source, node: cst.CSTNode) -> list[cst.Call]:
    """Return the calls of in-place methods, such as ``x.mul_(2)``, in a statement."""
    return [
        call
        for call in source.all(cst.Call, node)
        if isinstance(call.func, cst.Attribute)
        and (name := method_called(call)).endswith("_")
        and not name.startswith("_")
        and name not in _WITHOUT_WRITING
    ]


def _is_in_place(source: Source, node: cst.CSTNode) -> bool:
    is_arithmetic = isinstance(node, cst.AugAssign) and type(node.operator) in _OPERATORS
    return bool(is_arithmetic or _indexed(node) is not None or _in_place_calls(source, node))


def _is_read_later(source: Source, node: cst.CSTNode) -> bool:
    """Whether the changed tensor is read under this name after the statement, or in its loop."""
    changed = changes_in_place(source, node)
    in_loop = any(True for _ in source.around(node, cst.For, cst.While))
    if in_loop or not isinstance(node, cst.AugAssign | cst.Expr):
        return True
    if any(name.startswith("self.") for name in changed):
        return True
    end = source.lines(node)[-1]
    return any(
        reads(source.code(statement)) & changed
        for statement in source.statements(source.scope_of(node))
        if statement is not node and source.lines(statement)[0] >= end
    )


def out_of_place(failure: Failure) -> Iterator[Candidate]:
    """Write ``x += y`` as ``x = x + y``, ``x.mul_(y)`` as ``x = x.mul(y)``; and all of them so."""
    together: dict[Source, Changes] = {}
    for statement in _in_place_statements(failure):
        source, node, line = statement.source, statement.node, statement.line.line
        if not _is_read_later(source, node):  # another name of the tensor needs the change
            continue
        changes: Changes = {}
        title = f"out of place at line {line}"
        if isinstance(node, cst.AugAssign) and type(node.operator) in _OPERATORS:
            if not isinstance(node.target, cst.Subscript):
                sign = source.code(_OPERATORS[type(node.operator)]()).strip()
                target = source.code(node.target)
                title = f"{target} = {target} {sign} …, at line {line}"
                changes[node] = _without_augmentation
        elif calls := _in_place_calls(source, node):
            for call in calls:
                assert isinstance(call.func, cst.Attribute)
                changes[call.func.attr] = to(call.func.attr.value.rstrip("_"))
            if isinstance(node, cst.Expr) and node.value is calls[0]:
                base = _receiver(calls[0])
                if base is None:
                    continue
                changes[node] = _assigned_to(base)
        yield from edit(OUT_OF_PLACE, title, {source: changes})
        together.setdefault(source, {}).update(changes)
    yield from edit(OUT_OF_PLACE, "all of them out of place", together)


def _without_augmentation(updated: cst.CSTNode) -> cst.CSTNode:
    """Write ``x += y`` as ``x = x + y``."""
    assert isinstance(updated, cst.AugAssign)
    right = updated.value
    if isinstance(right, cst.BinaryOperation | cst.Comparison | cst.IfExp):
        right = in_parentheses(right)
    left = updated.target.deep_clone()
    assert isinstance(left, cst.BaseExpression)
    value = cst.BinaryOperation(left, _OPERATORS[type(updated.operator)](), right)
    return cst.Assign([cst.AssignTarget(updated.target)], value, semicolon=updated.semicolon)


def _assigned_to(
    base: cst.Name | cst.Attribute | cst.Subscript,
) -> Callable[[cst.CSTNode], cst.CSTNode]:
    """Return the change that assigns the value of an expression statement."""

    def change(updated: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(updated, cst.Expr)
        target = cst.AssignTarget(base.deep_clone())
        return cst.Assign([target], updated.value, semicolon=updated.semicolon)

    return change


def _receiver(call: cst.BaseExpression) -> cst.Name | cst.Attribute | cst.Subscript | None:
    """Return ``x`` of ``x.sub_(y).mul_(z)``."""
    while isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
        call = call.func.value
    return call if isinstance(call, cst.Name | cst.Attribute | cst.Subscript) else None


def without_inplace(failure: Failure) -> Iterator[Candidate]:
    """Give layers and functions ``inplace=False``: each alone, and all of them."""
    changes: dict[Source, Changes] = {}
    for source in failure.sources:
        arguments = [
            argument.value
            for argument in source.all(cst.Arg)
            if argument.keyword is not None
            and argument.keyword.value == "inplace"
            and source.code(argument.value) == "True"
        ]
        for value in arguments if len(arguments) <= 4 else ():
            title = f"inplace=False at line {source.lines(value)[0]}"
            yield from edit(OUT_OF_PLACE, title, {source: {value: to("False")}})
        changes[source] = dict.fromkeys(arguments, to("False"))
    yield from edit(OUT_OF_PLACE, "inplace=False everywhere", changes)


def clone_the_written(failure: Failure) -> Iterator[Candidate]:
    """Insert ``x = x.clone()`` before the in-place change."""
    for statement in _in_place_statements(failure):
        source, node = statement.source, statement.node
        written = _indexed(node)
        if written is None and isinstance(node, cst.AugAssign):
            written = node.target if isinstance(node.target, cst.BaseExpression) else None
        if written is None and (calls := _in_place_calls(source, node)):
            written = _receiver(calls[0])
        if isinstance(written, cst.Attribute) and written.attr.value == "data":
            written = written.value
        if isinstance(written, cst.Name | cst.Attribute):
            line = f"{source.code(written)} = {source.code(written)}.clone()"
            changes = source.next_to(node, before=[line])
            title = f"{line} before line {statement.line.line}"
            yield from edit(CLONE_WRITTEN, title, {source: changes})


def clone_the_operand(failure: Failure) -> Iterator[Candidate]:
    """Clone an operand of the operation that saves the old value."""
    if failure.family == "freed":
        return
    for statement in failure.at("made_at"):
        source, value = statement.source, value_of(statement.node)
        if value is None:
            continue
        operands: list[cst.BaseExpression] = []
        for kind in (cst.Attribute, cst.Name):
            for part in source.all(kind, value):
                parent = next(source.parents(part))
                is_called = isinstance(parent, cst.Call) and parent.func is part
                is_keyword = isinstance(parent, cst.Arg) and parent.keyword is part
                is_inner = is_called or is_keyword or isinstance(parent, cst.Attribute)
                if not is_inner and source.code(part) not in ("True", "False", "None"):
                    operands.append(part)
        operands.sort(key=lambda part: source.code(part) not in failure.carried)
        for operand in operands[:4]:
            title = f"{source.code(operand)}.clone() at line {statement.line.line}"
            yield from edit(CLONE_USED, title, {source: {operand: method("clone")}})


def without_gradient(failure: Failure) -> Iterator[Candidate]:
    """Put the in-place changes of one tensor under ``torch.no_grad()``."""
    if failure.family != "leaf_inplace":
        return
    for statement in failure.running[:1]:
        source, node = statement.source, statement.node
        suite = source.suite_of(node)
        if not isinstance(suite, cst.IndentedBlock | cst.Module):
            continue
        statements = source.flat(suite)
        written = _indexed(node)
        names = reads(source.code(node if written is None else written))
        block: list[cst.CSTNode] = [node]
        for following in statements[statements.index(node) + 1 :]:
            if not (_is_in_place(source, following) and reads(source.code(following)) & names):
                break
            block.append(following)
        lines = [source.code(member).rstrip("; ") for member in block]
        body = "\n    ".join(lines)
        new_block = source.line(f"with torch.no_grad():\n    {body}\n").with_changes(
            leading_lines=getattr(source.anchor(node), "leading_lines", ())
        )
        changes: Changes = {source.anchor(member): removed for member in block}
        changes[source.anchor(node)] = instead(new_block)
        title = f"under torch.no_grad() from line {statement.line.line} on"
        yield from edit(NO_GRAD, title, {source: changes})


RULES: tuple[EditRule, ...] = (
    out_of_place,
    without_inplace,
    clone_the_written,
    clone_the_operand,
    without_gradient,
)
