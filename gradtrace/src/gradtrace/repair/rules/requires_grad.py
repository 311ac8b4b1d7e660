"""Repairs of what is trained: frozen parameters, losses without a derivative, stale optimizers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import libcst as cst

from gradtrace.repair.code_names import assignments, reads, statements_computing, writes
from gradtrace.repair.edits import Changes, Source, method, method_called, removed, to
from gradtrace.repair.repairs import ASK_LESS, DIFFERENTIABLE, OPTIMIZER_LATER, SWITCH_ON
from gradtrace.repair.rule import Candidate, EditRule, Failure, Statement, edit

_MAX_PLACES = 4  # for one kind of edit
_OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "LBFGS", "NAdam", "RAdam")
_TAKE_LOGITS = {
    "cross_entropy",
    "CrossEntropyLoss",
    "binary_cross_entropy_with_logits",
    "BCEWithLogitsLoss",
}
_MODULES = re.compile(r"(torch|F|nn|functional)(\.\w+)*")
_PROBABILITIES = ("softmax", "log_softmax", "sigmoid", "Softmax", "LogSoftmax", "Sigmoid")


def unfreeze(failure: Failure) -> Iterator[Candidate]:
    """Remove the line that freezes parameters, or a call of the function that contains it."""
    if failure.cause != "frozen_parameters":
        return
    for statement in failure.at("began_at"):
        source, node = statement.source, statement.node
        loop = next(source.around(node, cst.For), None)
        removable: cst.CSTNode = source.anchor(node)
        if loop is not None and source.flat(loop.body) == [node]:
            removable = loop
        title = f"without line {statement.line.line}: {source.code(node).strip()}"
        yield from edit(SWITCH_ON, title, {source: {removable: removed}})
        function = source.function_of(node)
        calls = (
            call
            for call in source.all(cst.Expr)
            if function is not None and method_called(call.value) == function.name.value
        )
        for call in itertools.islice(calls, _MAX_PLACES):
            title = f"without line {source.lines(call)[0]}: {source.code(call).strip()}"
            yield from edit(SWITCH_ON, title, {source: {source.anchor(call): removed}})


def ask_for_trained_parameters(failure: Failure) -> Iterator[Candidate]:
    """Replace ``net.parameters()`` by those with ``requires_grad``."""
    if failure.cause != "input_off":
        return
    for source in failure.sources:
        calls = (
            call
            for call in source.all(cst.Call)
            if method_called(call) == "parameters" and not call.args and _is_passed_on(source, call)
        )
        for call in itertools.islice(calls, _MAX_PLACES):
            code = f"p for p in {source.code(call)} if p.requires_grad"
            parent = next(source.parents(call))
            outer = next(source.parents(parent))
            generator = cst.parse_expression(f"({code})")
            if isinstance(outer, cst.Call) and len(outer.args) == 1 and isinstance(parent, cst.Arg):
                generator = generator.with_changes(lpar=[], rpar=[])
            title = f"{code}, at line {source.lines(call)[0]}"
            changes: Changes = {call: lambda _, generator=generator: generator}  # type: ignore[misc]
            yield from edit(ASK_LESS, title, {source: changes})


def _is_passed_on(source: Source, call: cst.Call) -> bool:
    """Whether it is an argument of a call that does not create an optimizer."""
    outer = [parent for parent in source.parents(call) if isinstance(parent, cst.Call)]
    return bool(outer) and not any(method_called(parent) in _OPTIMIZERS for parent in outer)


def before_the_operation(failure: Failure) -> Iterator[Candidate]:
    """Compute the loss from the operand of the operation that has no derivative."""
    if failure.cause != "not_differentiable_op":
        return
    for cut in failure.at("began_at"):
        source = cut.source
        yield from _differentiable_sample(cut)
        for statement in failure.running[:1] if isinstance(cut.node, cst.Assign) else ():
            if cut.node not in source.flat(source.suite_of(statement.node)):
                continue
            earlier = source.before(statement.node)
            operands = _operands(source, cut.node, earlier)
            needed = reads(source.code(statement.node))
            for assign in statements_computing(source, earlier, needed):
                if assign is not cut.node:
                    names = writes(source.code(cut.node))
                    yield from _substituted(source, assign, names, operands)


def _differentiable_sample(cut: Statement) -> Iterator[Candidate]:
    """Replace ``sample()`` by ``rsample()``."""
    for call in cut.source.all(cst.Call, cut.node):
        if method_called(call) == "sample" and isinstance(call.func, cst.Attribute):
            title = f"rsample() in place of sample() at line {cut.line.line}"
            changes: Changes = {call.func.attr: to("rsample")}
            question = "is the gradient to go through the sample, rather than its log-probability?"
            yield from edit(DIFFERENTIABLE, title, {cut.source: changes}, question)


class _Operand(NamedTuple):
    """An expression, and the value assigned to it if it is a variable."""

    expression: cst.BaseExpression
    value: cst.BaseExpression


def _operands(source: Source, cut: cst.CSTNode, earlier: list[cst.CSTNode]) -> list[_Operand]:
    """Return the operands of an assigned value, the outermost first: ``f(x)``, ``x``."""
    assigned_values = {
        source.code(statement.targets[0].target): statement.value
        for statement in earlier
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1
    }
    operands: list[_Operand] = []
    assert isinstance(cut, cst.Assign)
    value: cst.BaseExpression = cut.value
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        is_function = _MODULES.fullmatch(source.code(value.func.value)) and value.args
        operand = value.args[0].value if is_function else value.func.value
        value = operand
        if isinstance(operand, cst.Name):
            value = assigned_values.get(operand.value, operand)
        operands.append(_Operand(operand, value))
    return operands[:_MAX_PLACES]


def _substituted(
    source: Source, assign: cst.CSTNode, names: set[str], operands: Iterable[_Operand]
) -> Iterator[Candidate]:
    """Replace the name by an operand, as an argument of the loss; its labels by integers."""
    for name in source.all(cst.Name, assign):
        argument = next(source.parents(name))
        if name.value not in names or not isinstance(argument, cst.Arg):
            continue
        loss = next(source.parents(argument))
        if not isinstance(loss, cst.Call) or argument.value is not name:
            continue
        takes_logits = _takes_logits(source, loss)
        labels = [
            label.value
            for label in loss.args
            if label is not argument and isinstance(label.value, cst.Name)
        ]
        for operand in operands:
            if takes_logits and method_called(operand.value) in _PROBABILITIES:
                continue
            code = source.code(operand.expression)
            question = None if takes_logits else f"is the loss to be computed from {code}?"
            title = f"{code} in place of {name.value}"
            changes: Changes = {name: to(code)}
            yield from edit(DIFFERENTIABLE, title, {source: changes}, question)
            for label in labels:
                with_integers: Changes = {**changes, label: method("long")}
                integer_title = f"{title}, {label.value}.long()"
                yield from edit(DIFFERENTIABLE, integer_title, {source: with_integers}, question)


def _takes_logits(source: Source, loss: cst.Call) -> bool:
    """Whether it is a cross entropy, which takes the values before softmax or sigmoid."""
    function = source.code(loss.func)
    constructors = {method_called(value) for name, value in assignments(source) if name == function}
    return not _TAKE_LOGITS.isdisjoint({method_called(loss), *constructors})


def make_optimizer_later(failure: Failure) -> Iterator[Candidate]:
    """Create the optimizer just before its first use."""
    if failure.cause != "optimizer_holds_replaced":
        return
    for statement in failure.at("began_at"):
        source, node = statement.source, statement.node
        if not isinstance(node, cst.Assign):
            continue
        code = source.code(node).rstrip("; ")
        statements = source.flat(source.suite_of(node))
        later = statements[statements.index(node) + 1 :]
        uses = [s for s in later if reads(source.code(s)) & writes(code)]
        for place in uses[:1] or later[-1:]:
            lines = ([code], []) if uses else ([], [code])
            changes: Changes = {
                source.anchor(node): removed,
                source.anchor(place): source.between(place, *lines),
            }
            title = f"{code}, before line {source.lines(place)[0]}"
            yield from edit(OPTIMIZER_LATER, title, {source: changes})


RULES: tuple[EditRule, ...] = (
    unfreeze,
    ask_for_trained_parameters,
    before_the_operation,
    make_optimizer_later,
)
