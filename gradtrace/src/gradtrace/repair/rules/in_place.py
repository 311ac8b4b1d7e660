"""Repairs of changes in place: out of place, or with a clone of what backward needs."""

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
from gradtrace.repair.repairs import CLONE_USED, CLONE_WRITTEN, KEEP_GRADIENT, NO_GRAD, OUT_OF_PLACE
from gradtrace.repair.rule import Candidate, Rule, Scene, Statement, one_file, several_files

_OPERATORS: dict[type[cst.BaseAugOp], Callable[[], cst.BaseBinaryOp]] = {
    cst.AddAssign: cst.Add,
    cst.SubtractAssign: cst.Subtract,
    cst.MultiplyAssign: cst.Multiply,
    cst.DivideAssign: cst.Divide,
    cst.PowerAssign: cst.Power,
    cst.MatrixMultiplyAssign: cst.MatrixMultiply,
}
_NOT_CHANGES = ("requires_grad_", "detach_", "retain_grad_", "share_memory_", "__init_subclass_")


def _near(scene: Scene) -> list[Statement]:
    """The statements named, and those of the functions that they are in that write in place."""
    found = {one.node: one for one in scene.involved}
    for one in scene.involved:
        inside = one.source.function_of(one.node) or one.source.module
        for node in one.source.all(cst.BaseSmallStatement, inside):  # type: ignore[type-abstract]
            place = one.place._replace(line=one.source.lines(node)[0])
            found.setdefault(node, Statement(one.source, node, place))
    return [
        one
        for one in found.values()
        if _in_place(one.source, one.node) and not _is_update(one.source, one.node)
    ]


def _is_update(source: Source, node: cst.CSTNode) -> bool:
    """Whether it runs in an optimizer or under ``no_grad()``: another name would end the update."""
    kind, function = source.class_of(node), source.function_of(node)
    bases = "" if kind is None else " ".join(source.code(base) for base in kind.bases)
    decorators = () if function is None else function.decorators
    around = [*decorators, *(item for w in source.around(node, cst.With) for item in w.items)]
    return "Optimizer" in bases or any("no_grad" in source.code(one) for one in around)


def _written(source: Source, node: cst.CSTNode) -> cst.BaseExpression | None:
    """What an assignment to an item writes into."""
    target: cst.BaseExpression | None = None
    if isinstance(node, cst.Assign) and len(node.targets) == 1:
        target = node.targets[0].target
    elif isinstance(node, cst.AugAssign):
        target = node.target
    else:
        return None
    while isinstance(target, cst.Subscript):
        inner = target.value
        if not isinstance(inner, cst.Subscript):
            return inner
        target = inner
    return None


def _methods(source: Source, node: cst.CSTNode) -> list[cst.Call]:
    return [
        call
        for call in source.all(cst.Call, node)
        if (name := method_called(call)).endswith("_")
        and not name.startswith("_")
        and name not in _NOT_CHANGES
        and isinstance(call.func, cst.Attribute)
    ]


def _in_place(source: Source, node: cst.CSTNode) -> bool:
    arithmetic = isinstance(node, cst.AugAssign) and type(node.operator) in _OPERATORS
    return bool(arithmetic or _written(source, node) is not None or _methods(source, node))


def _is_read_later(source: Source, node: cst.CSTNode) -> bool:
    """Whether what a statement changes is read again under its name: behind it, or in its loop."""
    changed = changes_in_place(source, node)
    if any(True for _ in source.around(node, cst.For, cst.While)) or not isinstance(
        node, cst.AugAssign | cst.Expr
    ):
        return True
    inside = source.function_of(node) or source.module
    last = source.lines(node)[-1]
    later = [one for one in source.all(cst.BaseSmallStatement, inside) if one is not node]  # type: ignore[type-abstract]
    return any(
        reads(source.code(one)) & changed for one in later if source.lines(one)[0] >= last
    ) or any(name.startswith("self.") for name in changed)


def out_of_place(scene: Scene) -> Iterator[Candidate]:
    """``x += y`` as ``x = x + y``; ``x.mul_(y)`` as ``x = x.mul(y)``."""
    for one in _near(scene):
        source, node = one.source, one.node
        if not _is_read_later(source, node):  # the change is for whoever else has the tensor
            continue
        if isinstance(node, cst.AugAssign) and type(node.operator) in _OPERATORS:
            target = source.code(node.target)
            sign: cst.BaseBinaryOp = _OPERATORS[type(node.operator)]()

            def spelled(updated: cst.CSTNode, sign: cst.BaseBinaryOp = sign) -> cst.CSTNode:
                assert isinstance(updated, cst.AugAssign)
                right = updated.value
                if isinstance(right, cst.BinaryOperation | cst.Comparison | cst.IfExp):
                    right = in_parentheses(right)
                left = updated.target.deep_clone()
                assert isinstance(left, cst.BaseExpression)
                value = cst.BinaryOperation(left, sign, right)
                target = cst.AssignTarget(updated.target)
                return cst.Assign([target], value, semicolon=updated.semicolon)

            if not isinstance(node.target, cst.Subscript):
                title = (
                    f"{target} = {target} {source.code(sign).strip()} …, at line {one.place.line}"
                )
                yield from one_file(OUT_OF_PLACE, title, source, {node: spelled})
        calls = _methods(source, node)
        if not calls:
            continue
        names: Changes = {}
        for call in calls:
            assert isinstance(call.func, cst.Attribute)
            names[call.func.attr] = to(call.func.attr.value.rstrip("_"))
        base = _base(calls[0])
        title = f"out of place at line {one.place.line}"
        if isinstance(node, cst.Expr) and node.value is calls[0] and base is not None:

            def assigned(updated: cst.CSTNode, base: cst.BaseExpression = base) -> cst.CSTNode:
                assert isinstance(updated, cst.Expr)
                target = cst.AssignTarget(base.deep_clone())  # type: ignore[arg-type]
                return cst.Assign([target], updated.value, semicolon=updated.semicolon)

            names[node] = assigned
        yield from one_file(OUT_OF_PLACE, title, source, names)


def _base(call: cst.BaseExpression) -> cst.BaseExpression | None:
    """``x`` of ``x.sub_(y).mul_(z)``."""
    while isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
        call = call.func.value
    return call if isinstance(call, cst.Name | cst.Attribute | cst.Subscript) else None


def without_inplace(scene: Scene) -> Iterator[Candidate]:
    """``inplace=True`` of layers and functions as False: all of a file's, and each one's alone."""
    changes: dict[Source, Changes] = {}
    for source in scene.sources:
        found: Changes = {}
        for argument in source.all(cst.Arg):
            named = argument.keyword is not None and argument.keyword.value == "inplace"
            if named and source.code(argument.value) == "True":
                found[argument.value] = to("False")
        if found:
            changes[source] = found
    places = [(source, node, change) for source, c in changes.items() for node, change in c.items()]
    for source, node, change in places if len(places) <= 4 else ():
        title = f"inplace=False at line {source.lines(node)[0]}"
        yield from one_file(OUT_OF_PLACE, title, source, {node: change})
    yield from several_files(OUT_OF_PLACE, "inplace=False everywhere", changes)


def _augmented(node: cst.CSTNode) -> cst.BaseExpression | None:
    """``x`` of ``x += y``."""
    return node.target if isinstance(node, cst.AugAssign) else None


def clone_what_is_written(scene: Scene) -> Iterator[Candidate]:
    """``x = x.clone()`` before the write, or a clone where it is made or taken from."""
    for one in _near(scene):
        source, node = one.source, one.node
        written: cst.BaseExpression | None = _written(source, node)
        if written is None:
            calls = _methods(source, node)
            written = _base(calls[0]) if calls else _augmented(node)
        if isinstance(written, cst.Attribute) and written.attr.value == "data":
            written = written.value
        if written is None:
            continue
        name = source.code(written)
        line = f"{name} = {name}.clone()"
        title = f"{line} before line {one.place.line}"
        if isinstance(written, cst.Name | cst.Attribute):
            changes = source.next_to(node, before=[line])
            yield from one_file(CLONE_WRITTEN, title, source, changes)
        inside = source.function_of(node) or source.module
        for assign in source.all(cst.Assign, inside):
            if [source.code(t.target) for t in assign.targets] == [name]:
                if assign is node or source.code(assign.value).endswith(".clone()"):
                    continue
                code = f"{source.code(assign.value)}.clone()"
                title = f"{name} = {code}"
                changes = {assign.value: method("clone")}
                yield from one_file(CLONE_WRITTEN, title, source, changes)


def clone_what_is_used(scene: Scene) -> Iterator[Candidate]:
    """A clone for the operation that needs the old value."""
    if scene.family == "freed":
        return
    carried = scene.carried
    for one in scene.at("made_at"):
        source, value = one.source, value_of(one.node)
        if value is None:
            continue
        operands: list[cst.BaseExpression] = []
        for kind in (cst.Attribute, cst.Name):
            for part in source.all(kind, value):
                parent = next(source.parents(part))
                called = isinstance(parent, cst.Call) and parent.func is part
                inner = isinstance(parent, cst.Attribute | cst.Arg) and (
                    isinstance(parent, cst.Attribute) or parent.keyword is part
                )
                if not called and not inner and source.code(part) not in ("True", "False", "None"):
                    operands.append(part)
        operands.sort(key=lambda part: source.code(part) not in carried)
        for operand in operands[:4]:
            title = f"{source.code(operand)}.clone() at line {one.place.line}"
            yield from one_file(CLONE_USED, title, source, {operand: method("clone")})


def without_gradient(scene: Scene) -> Iterator[Candidate]:
    """The change itself under ``torch.no_grad()``: this statement, and all that write there."""
    if scene.family != "leaf_inplace":
        return
    for one in scene.running[:1]:
        source, node = one.source, one.node
        suite = source.suite_of(node)
        if not isinstance(suite, cst.IndentedBlock | cst.Module):
            continue
        statements = source.flat(suite)
        written = _written(source, node)
        names = reads(source.code(written)) if written is not None else reads(source.code(node))
        run = [node]
        for following in statements[statements.index(node) + 1 :]:
            if _in_place(source, following) and reads(source.code(following)) & names:
                run.append(following)  # type: ignore[arg-type]
            else:
                break
        lines = [source.code(part).rstrip("; ") for part in run]
        body = "\n    ".join(lines)
        block = cst.parse_statement(
            f"with torch.no_grad():\n    {body}\n", config=source.module.config_for_parsing
        )
        changes: Changes = {source.anchor(part): removed for part in run}
        above = getattr(source.anchor(node), "leading_lines", ())
        whole = block.with_changes(leading_lines=above)
        changes[source.anchor(node)] = instead(whole)
        title = f"under torch.no_grad() from line {one.place.line} on"
        yield from one_file(NO_GRAD, title, source, changes)


def past_autograd(scene: Scene) -> Iterator[Candidate]:
    """``.data`` as ``.detach()``; a clone of what is written through it."""
    for one in _near(scene):
        for attribute in one.source.all(cst.Attribute, one.node):
            if attribute.attr.value == "data":
                code = one.source.code(attribute.value)
                changes: Changes = {attribute: to(f"{code}.detach()")}
                title = f"{code}.detach() in place of {code}.data"
                yield from one_file(KEEP_GRADIENT, title, one.source, changes)


RULES: tuple[Rule, ...] = (
    out_of_place,
    without_inplace,
    clone_what_is_written,
    clone_what_is_used,
    without_gradient,
    past_autograd,
)
