"""Repairs by one word: an option of a call, or a cut of the graph that should not be there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from gradtrace.repair.edits import (
    Changed,
    Changes,
    Source,
    call_of,
    instead,
    keyword,
    method,
    method_called,
    removed,
    to,
    with_keyword,
)
from gradtrace.repair.repairs import (
    CREATE_GRAPH,
    KEEP_GRADIENT,
    MOVE_DETACH,
    SWITCH,
    USE_REENTRANT,
)
from gradtrace.repair.rule import Candidate, EditRule, Failure, edit
from gradtrace.repair.rules.state import unindented

_FLAGS = re.compile(r"checkpoint|cache")
_OLD = re.compile(r"old|prev|last|target|teacher|ref|frozen|fixed|ema|const|base", re.IGNORECASE)
_CUTS = ("detach", "item", "numpy", "tolist")
_REGIONS = re.compile(r"no_grad|inference_mode")


def create_graph(failure: Failure) -> Iterator[Candidate]:
    """Insert ``create_graph=True`` where a gradient is computed that is used further."""
    # For a backward call it would only be another retain_graph there.
    names = ("grad",) if failure.family in ("freed", "modified") else ("grad", "backward")
    calls: dict[cst.Call, tuple[Source, int]] = {}
    for statement in failure.nearby:
        gradient = call_of(statement.source, statement.node, *names)
        if gradient is not None:
            calls[gradient] = statement.source, statement.line.line
    for statement in failure.running:  # a gradient computed earlier in the same function
        source = statement.source
        for call in source.all(cst.Call, source.scope_of(statement.node)):
            if method_called(call) == "grad":
                calls.setdefault(call, (source, source.lines(call)[0]))
    for call, (source, line) in calls.items():
        if keyword(call, "create_graph") is None:
            title = f"create_graph=True at line {line}"
            yield from edit(CREATE_GRAPH, title, {source: {call: _differentiable}})


def _differentiable(updated: cst.CSTNode) -> Changed:
    """Put ``create_graph=True`` in the place of ``retain_graph``."""
    assert isinstance(updated, cst.Call)
    arguments = [
        argument
        for argument in updated.args
        if argument.keyword is None or argument.keyword.value != "retain_graph"
    ]
    return with_keyword("create_graph", "True")(updated.with_changes(args=arguments))


def options(failure: Failure) -> Iterator[Candidate]:
    """Set ``use_reentrant=False``, ``find_unused_parameters=True`` or ``allow_unused=True``."""
    checkpoints: dict[Source, Changes] = {}
    for source in failure.sources:
        for call in source.all(cst.Call):
            name = method_called(call)
            if name in ("checkpoint", "checkpoint_sequential"):
                value = keyword(call, "use_reentrant")
                if value is not None and source.code(value) != "False":
                    change = with_keyword("use_reentrant", "False")
                    checkpoints.setdefault(source, {})[call] = change
            elif name in ("DistributedDataParallel", "DDP"):
                changes: Changes = {call: with_keyword("find_unused_parameters", "True")}
                yield from edit(SWITCH, "find_unused_parameters=True", {source: changes})
    yield from edit(USE_REENTRANT, "checkpoint(…, use_reentrant=False)", checkpoints)
    for statement in failure.running if failure.family == "unused_input" else ():
        gradient = call_of(statement.source, statement.node, "grad")
        if gradient is not None:
            changes = {gradient: with_keyword("allow_unused", "True")}
            yield from edit(SWITCH, "allow_unused=True", {statement.source: changes})


def flags(failure: Failure) -> Iterator[Candidate]:
    """Switch the program's own options for checkpoints and caches off."""
    for source in failure.sources:
        settings: list[tuple[str, cst.BaseExpression | None]] = []
        for argument in source.all(cst.Arg):
            if argument.keyword is not None:
                settings.append((f"{argument.keyword.value}=False", argument.value))
        for parameter in source.all(cst.Param):
            settings.append((f"{parameter.name.value}=False", parameter.default))
        for assign in source.all(cst.Assign):
            settings.append((f"{source.code(assign.targets[0].target)} = False", assign.value))
        for setting, value in settings:
            if value is not None and _FLAGS.search(setting) and source.code(value) == "True":
                title = f"{setting} at line {source.lines(value)[0]}"
                yield from edit(SWITCH, title, {source: {value: to("False")}})


def remove_or_move_cuts(failure: Failure) -> Iterator[Candidate]:
    """Remove ``detach()``, ``item()`` and the like, or move it to one operand."""
    is_cut_off = failure.cause == "never_trained"
    if failure.family not in ("no_graph", None, "unused_input") and not is_cut_off:
        return
    question = _question(failure)
    for statement in failure.nearby:
        source, line = statement.source, statement.line.line
        for call in source.all(cst.Call, statement.node):
            if method_called(call) not in _CUTS or not isinstance(call.func, cst.Attribute):
                continue
            receiver = source.code(call.func.value)
            title = f"without .{method_called(call)}() at line {line}"
            # Only detach() cuts on purpose.
            on_purpose = method_called(call) == "detach" and failure.family == "no_graph"
            of_cut = question or (f"is {receiver} to be trained?" if on_purpose else None)
            yield from edit(KEEP_GRADIENT, title, {source: {call: to(receiver)}}, of_cut)
            for operand in _operands(source, call.func.value):
                name = source.code(operand)
                title = f"detach {name} only, in {source.code(call)}"
                changes: Changes = {operand: method("detach"), call: _receiver}
                of_operand = f"is {name} what is not to be trained?"
                yield from edit(MOVE_DETACH, title, {source: changes}, of_operand)
        for attribute in source.all(cst.Attribute, statement.node):
            if attribute.attr.value == "data":
                code = source.code(attribute.value)
                title = f"{code} in place of {code}.data"
                yield from edit(KEEP_GRADIENT, title, {source: {attribute: to(code)}}, question)
        yield from _stacked(source, statement.node)


def _question(failure: Failure) -> str | None:
    """Ask whether parameters that an optimizer has, and that are cut off, are to be trained."""
    is_cut_off = failure.cause == "never_trained"
    return f"is {' and '.join(failure.carried)} to be trained?" if is_cut_off else None


def _receiver(updated: cst.CSTNode) -> cst.CSTNode:
    """Replace a method call by the object on which the method is called."""
    assert isinstance(updated, cst.Call) and isinstance(updated.func, cst.Attribute)
    return updated.func.value


def _operands(source: Source, expression: cst.CSTNode) -> list[cst.Name]:
    """Return the variables that an expression computes with, those named as old ones first."""
    operands = []
    for name in source.all(cst.Name, expression):
        parent = next(source.parents(name))
        is_argument = isinstance(parent, cst.Arg) and parent.keyword is not name
        if is_argument or isinstance(parent, cst.BinaryOperation | cst.UnaryOperation):
            operands.append(name)
    operands.sort(key=lambda name: not _OLD.search(name.value))
    return operands[:4]


def _stacked(source: Source, node: cst.CSTNode) -> Iterator[Candidate]:
    """Replace ``torch.tensor([a, b])``, which copies numbers, by ``torch.stack``."""
    for call in source.all(cst.Call, node):
        function = source.code(call.func)
        if function not in ("torch.tensor", "torch.FloatTensor", "torch.Tensor") or not call.args:
            continue
        value = call.args[0].value
        code = source.code(value)
        if isinstance(value, cst.Name):
            yield from edit(KEEP_GRADIENT, f"{code}, not a copy", {source: {call: to(code)}})
        if isinstance(value, cst.ListComp | cst.List | cst.Tuple | cst.Name):
            stack = to(f"torch.stack([torch.as_tensor(value) for value in {code}])")
            title = f"torch.stack in place of {function}, which makes new numbers"
            yield from edit(KEEP_GRADIENT, title, {source: {call: stack}})


def open_regions(failure: Failure) -> Iterator[Candidate]:
    """Remove the ``torch.no_grad()`` around the statement, or put it around less."""
    if failure.family != "no_graph" and failure.cause != "never_trained":
        return
    question = _question(failure)
    for statement in failure.nearby:
        source = statement.source
        for block in source.around(statement.node, cst.With):
            context = source.code(block.items[0].item)
            if _REGIONS.search(context) and len(block.items) == 1:
                title = f"without {context} at line {source.lines(block)[0]}"
                yield from edit(KEEP_GRADIENT, title, {source: {block: unindented}}, question)
        function = source.function_of(statement.node)
        for decorator in function.decorators if function is not None else ():
            if _REGIONS.search(source.code(decorator)):
                title = f"without {source.code(decorator).strip()}"
                yield from edit(KEEP_GRADIENT, title, {source: {decorator: removed}}, question)
        yield from _limited_switch(source, statement.node)


def _limited_switch(source: Source, node: cst.CSTNode) -> Iterator[Candidate]:
    """Replace ``set_grad_enabled(False)`` by ``torch.no_grad()`` around the rest of the block."""
    suite, line = source.suite_of(node), source.anchor(node)
    switch = call_of(source, node, "set_grad_enabled")
    if switch is None or line is node or not isinstance(suite, cst.IndentedBlock):
        return
    following = suite.body[suite.body.index(line) + 1 :]
    context = cst.WithItem(cst.parse_expression("torch.no_grad()"))
    changes: Changes = dict.fromkeys(following, removed)
    changes[line] = instead(cst.With([context], cst.IndentedBlock(following)))
    title = f"with torch.no_grad(): from line {source.lines(node)[0]} to the end of its block"
    yield from edit(KEEP_GRADIENT, title, {source: changes})


RULES: tuple[EditRule, ...] = (
    create_graph,
    options,
    flags,
    remove_or_move_cuts,
    open_regions,
)
