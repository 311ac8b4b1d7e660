"""Repairs of what is trained: frozen parameters, losses without a derivative, stale optimizers."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gradtrace.repair.code_names import assignments, reads, statements_computing, writes
from gradtrace.repair.edits import Source, method_called
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
        loop = next(source.around(node, ast.For), None)
        removable = loop if loop is not None and loop.body == [node] else node
        title = f"without line {statement.line.line}: {source.code(node)}"
        yield from edit(SWITCH_ON, title, {source: source.remove(removable)})
        function = source.function_of(node)
        calls = (
            call
            for call in source.all(ast.Expr)
            if function is not None and method_called(call.value) == function.name
        )
        for call in itertools.islice(calls, _MAX_PLACES):
            title = f"without line {call.lineno}: {source.code(call)}"
            yield from edit(SWITCH_ON, title, {source: source.remove(call)})


def ask_for_trained_parameters(failure: Failure) -> Iterator[Candidate]:
    """Replace ``net.parameters()`` by those with ``requires_grad``."""
    if failure.cause != "input_off":
        return
    for source in failure.sources:
        calls = (
            call
            for call in source.all(ast.Call)
            if method_called(call) == "parameters" and not call.args and _is_passed_on(source, call)
        )
        for call in itertools.islice(calls, _MAX_PLACES):
            code = f"p for p in {source.code(call)} if p.requires_grad"
            parent = source.parent(call)
            is_only_argument = isinstance(parent, ast.Call) and len(parent.args) == 1
            edits = source.replace(call, code if is_only_argument else f"({code})")
            yield from edit(ASK_LESS, f"{code}, at line {call.lineno}", {source: edits})


def _is_passed_on(source: Source, call: ast.Call) -> bool:
    """Whether it is an argument of a call that does not create an optimizer."""
    outer = [parent for parent in source.parents(call) if isinstance(parent, ast.Call)]
    return bool(outer) and not any(method_called(parent) in _OPTIMIZERS for parent in outer)


def before_the_operation(failure: Failure) -> Iterator[Candidate]:
    """Compute the loss from the operand of the operation that has no derivative."""
    if failure.cause != "not_differentiable_op":
        return
    for cut in failure.at("began_at"):
        source = cut.source
        yield from _differentiable_sample(cut)
        for statement in failure.running[:1]:
            earlier = source.before(statement.node)
            if not isinstance(cut.node, ast.Assign) or cut.node not in earlier:
                continue
            operands = _operands(source, cut.node, earlier)
            for assign in statements_computing(earlier, reads(statement.node)):
                if assign is not cut.node:
                    yield from _substituted(source, assign, writes(cut.node), operands)


def _differentiable_sample(cut: Statement) -> Iterator[Candidate]:
    """Replace ``sample()`` by ``rsample()``."""
    for call in cut.source.all(ast.Call, cut.node):
        if method_called(call) == "sample" and isinstance(call.func, ast.Attribute):
            title = f"rsample() in place of sample() at line {cut.line.line}"
            function = cut.source.code(call.func).removesuffix("sample") + "rsample"
            edits = cut.source.replace(call.func, function)
            question = "is the gradient to go through the sample, rather than its log-probability?"
            yield from edit(DIFFERENTIABLE, title, {cut.source: edits}, question)


class _Operand(NamedTuple):
    """An expression, and the value assigned to it if it is a variable."""

    expression: ast.expr
    value: ast.expr


def _operands(source: Source, cut: ast.Assign, earlier: list[ast.stmt]) -> list[_Operand]:
    """Return the operands of an assigned value, the outermost first: ``f(x)``, ``x``."""
    assigned_values = {
        source.code(statement.targets[0]): statement.value
        for statement in earlier
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1
    }
    operands: list[_Operand] = []
    value = cut.value
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        is_function = _MODULES.fullmatch(source.code(value.func.value)) and value.args
        operand = value.args[0] if is_function else value.func.value
        value = operand
        if isinstance(operand, ast.Name):
            value = assigned_values.get(operand.id, operand)
        operands.append(_Operand(operand, value))
    return operands[:_MAX_PLACES]


def _substituted(
    source: Source, assign: ast.Assign, names: set[str], operands: Iterable[_Operand]
) -> Iterator[Candidate]:
    """Replace the name by an operand, as an argument of the loss; its labels by integers."""
    for name in source.all(ast.Name, assign):
        loss = source.parent(name)
        if name.id not in names or not isinstance(loss, ast.Call) or name is loss.func:
            continue
        takes_logits = _takes_logits(source, loss)
        labels = [arg for arg in loss.args if arg is not name and isinstance(arg, ast.Name)]
        for operand in operands:
            if takes_logits and method_called(operand.value) in _PROBABILITIES:
                continue
            code = source.code(operand.expression)
            question = None if takes_logits else f"is the loss to be computed from {code}?"
            title = f"{code} in place of {name.id}"
            edits = source.replace(name, code)
            yield from edit(DIFFERENTIABLE, title, {source: edits}, question)
            for label in labels:
                with_integers = [*edits, *source.call_method(label, "long")]
                integer_title = f"{title}, {label.id}.long()"
                yield from edit(DIFFERENTIABLE, integer_title, {source: with_integers}, question)


def _takes_logits(source: Source, loss: ast.Call) -> bool:
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
        if not isinstance(node, ast.Assign):
            continue
        code = source.code(node)
        later = source.after(node)
        uses = [statement for statement in later if reads(statement) & writes(node)]
        for place in uses[:1] or later[-1:]:
            lines = ([code], []) if uses else ([], [code])
            edits = [*source.remove(node), *source.insert(place, *lines)]
            title = f"{code}, before line {place.lineno}"
            yield from edit(OPTIMIZER_LATER, title, {source: edits})


RULES: tuple[EditRule, ...] = (
    unfreeze,
    ask_for_trained_parameters,
    before_the_operation,
    make_optimizer_later,
)
