"""Repairs of what is trained: parameters that are off, asked for though off, or of no optimizer."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import libcst as cst

from gradtrace.repair.code_names import assigned, reads, writes
from gradtrace.repair.edits import Change, Changes, Source, method, method_called, removed, to
from gradtrace.repair.repairs import ASK_LESS, DIFFERENTIABLE, OPTIMIZER_LATER, SWITCH_ON
from gradtrace.repair.rule import Candidate, Rule, Scene, Statement, one_file
from gradtrace.repair.rules.losses import call_of

_MOST = 4  # places for one kind of edit
_OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "LBFGS", "NAdam", "RAdam")
_TAKE_LOGITS = {
    "cross_entropy",
    "CrossEntropyLoss",
    "binary_cross_entropy_with_logits",
    "BCEWithLogitsLoss",
}
_MODULES = re.compile(r"(torch|F|nn|functional)(\.\w+)*")
_PROBABILITIES = ("softmax", "log_softmax", "sigmoid", "Softmax", "LogSoftmax", "Sigmoid")


def switch_on(scene: Scene) -> Iterator[Candidate]:
    """Before the loss is computed, all that this iteration's optimizer holds is switched on."""
    if scene.diagnosis.get("cause") != "frozen_parameters":
        return
    for one in scene.running[:1]:
        source = one.source
        statements = source.flat(source.suite_of(one.node))
        place = statements.index(one.node)
        steps = (call_of(source, later, "step") for later in statements[place:])
        call = next(filter(None, steps), None)
        if call is None or not isinstance(call.func, cst.Attribute):
            continue
        optimizer = source.code(call.func.value)
        code = (
            f"for group in {optimizer}.param_groups:\n"
            '    for parameter in group["params"]:\n'
            "        parameter.requires_grad_(True)\n"
        )
        for made in _making(source, statements[:place], reads(source.code(one.node))):
            title = f"switch on what {optimizer} holds, before line {source.lines(made)[0]}"
            yield from one_file(SWITCH_ON, title, source, source.next_to(made, before=[code]))


def _making(
    source: Source, statements: list[cst.CSTNode], wanted: set[str]
) -> Iterator[cst.CSTNode]:
    """The statements that these names follow from, the last one first."""
    for statement in reversed(statements):
        if isinstance(statement, cst.Assign) and writes(source.code(statement)) & wanted:
            wanted = wanted | reads(source.code(statement))
            yield statement


def never_off(scene: Scene) -> Iterator[Candidate]:
    """Without the line that switches parameters off, or without a call of the function it is in."""
    if scene.diagnosis.get("cause") != "frozen_parameters":
        return
    for one in scene.at("began_at"):
        source, node = one.source, one.node
        line = one.place.line
        loop = next(source.around(node, cst.For), None)
        alone = loop is not None and source.flat(loop.body) == [node]
        whole = loop if alone and loop is not None else source.anchor(node)
        title = f"without line {line}: {source.code(node).strip()}"
        yield from one_file(SWITCH_ON, title, source, {whole: removed})
        function = source.function_of(node)
        if function is None:
            continue
        calls = (
            statement
            for statement in source.all(cst.Expr)
            if method_called(statement.value) == function.name.value
        )
        for statement in itertools.islice(calls, _MOST):
            title = f"without line {source.lines(statement)[0]}: {source.code(statement).strip()}"
            yield from one_file(SWITCH_ON, title, source, {source.anchor(statement): removed})


def only_what_is_on(scene: Scene) -> Iterator[Candidate]:
    """``(p for p in net.parameters() if p.requires_grad)`` for ``net.parameters()``."""
    if scene.diagnosis.get("cause") != "input_off":
        return
    for source in scene.sources:
        calls = (
            call
            for call in source.all(cst.Call)
            if method_called(call) == "parameters" and not call.args and _is_asked_for(source, call)
        )
        for call in itertools.islice(calls, _MOST):
            code = f"p for p in {source.code(call)} if p.requires_grad"
            parent = next(source.parents(call))
            around = next(source.parents(parent))
            sole = isinstance(around, cst.Call) and len(around.args) == 1
            changes: Changes = {call: to(f"({code})")}
            if sole and isinstance(parent, cst.Arg):
                changes = {call: _without_parentheses(code)}
            title = f"{code}, at line {source.lines(call)[0]}"
            yield from one_file(ASK_LESS, title, source, changes)


def _without_parentheses(code: str) -> Change:
    made = cst.parse_expression(f"({code})")
    return lambda _: made.with_changes(lpar=[], rpar=[])


def _is_asked_for(source: Source, call: cst.Call) -> bool:
    """Whether it is handed on to something, but not to an optimizer."""
    around = [parent for parent in source.parents(call) if isinstance(parent, cst.Call)]
    return bool(around) and not any(method_called(one) in _OPTIMIZERS for one in around)


def before_the_operation(scene: Scene) -> Iterator[Candidate]:
    """The loss of the value that the operation without a derivative was applied to."""
    if scene.diagnosis.get("cause") != "not_differentiable_op":
        return
    for cut in scene.at("began_at"):
        source = cut.source
        yield from _differentiable_sample(cut)
        if not isinstance(cut.node, cst.Assign):
            continue
        names = writes(source.code(cut.node))
        for one in scene.running[:1]:
            statements = source.flat(source.suite_of(one.node))
            if cut.node not in statements or one.node not in statements:
                continue
            before = statements[: statements.index(one.node)]
            for made in _making(source, before, reads(source.code(one.node))):
                if made is not cut.node:
                    yield from _of_the_value(source, made, names, _inner(source, cut.node, before))


def _differentiable_sample(cut: Statement) -> Iterator[Candidate]:
    for call in cut.source.all(cst.Call, cut.node):
        if method_called(call) == "sample" and isinstance(call.func, cst.Attribute):
            title = f"rsample() in place of sample() at line {cut.place.line}"
            changes: Changes = {call.func.attr: to("rsample")}
            question = "is the gradient to go through the sample, rather than its log-probability?"
            yield from one_file(DIFFERENTIABLE, title, cut.source, changes, question)


class _Value(NamedTuple):
    """An expression, and what computes it: of a variable what was assigned to it."""

    expression: cst.BaseExpression
    made_by: cst.BaseExpression


def _inner(source: Source, cut: cst.Assign, before: list[cst.CSTNode]) -> list[_Value]:
    """What the value of an assignment was computed from, step by step: ``f(x).g()``: f(x), x."""
    found: list[_Value] = []
    value: cst.BaseExpression | None = cut.value
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        is_function = _MODULES.fullmatch(source.code(value.func.value))
        inner = value.args[0].value if is_function and value.args else value.func.value
        value = inner
        if isinstance(inner, cst.Name):
            value = _last_assigned(source, inner.value, before)
        found.append(_Value(inner, inner if value is None else value))
    return found[:_MOST]


def _last_assigned(
    source: Source, name: str, before: list[cst.CSTNode]
) -> cst.BaseExpression | None:
    for statement in reversed(before):
        if isinstance(statement, cst.Assign) and writes(source.code(statement)) == {name}:
            return statement.value
    return None


def _of_the_value(
    source: Source, made: cst.CSTNode, names: set[str], values: Iterable[_Value]
) -> Iterator[Candidate]:
    """The value in place of the name, as an argument of the loss; its labels as whole numbers."""
    for name in source.all(cst.Name, made):
        argument = next(source.parents(name))
        if name.value not in names or not isinstance(argument, cst.Arg):
            continue
        loss = next(source.parents(argument))
        if not isinstance(loss, cst.Call) or argument.value is not name:
            continue
        logits = _takes_logits(source, loss)
        labels = [
            other.value
            for other in loss.args
            if other is not argument and isinstance(other.value, cst.Name)
        ]
        for value in values:
            if logits and method_called(value.made_by) in _PROBABILITIES:
                continue
            code = source.code(value.expression)
            question = None if logits else f"is the loss to be computed from {code}?"
            title = f"{code} in place of {name.value}"
            changes: Changes = {name: to(code)}
            yield from one_file(DIFFERENTIABLE, title, source, changes, question)
            for label in labels:
                more: Changes = {**changes, label: method("long")}
                with_labels = f"{title}, {label.value}.long()"
                yield from one_file(DIFFERENTIABLE, with_labels, source, more, question)


def _takes_logits(source: Source, loss: cst.Call) -> bool:
    """Whether it is a cross entropy, which takes the values before softmax or sigmoid."""
    if method_called(loss) in _TAKE_LOGITS:
        return True
    called = source.code(loss.func)
    made = (value for name, value in assigned(source) if name == called)
    return any(method_called(value) in _TAKE_LOGITS for value in made)


def optimizer_later(scene: Scene) -> Iterator[Candidate]:
    """The optimizer is made just before its first use."""
    if scene.diagnosis.get("cause") != "optimizer_holds_replaced":
        return
    for one in scene.at("began_at"):
        source, node = one.source, one.node
        if not isinstance(node, cst.Assign):
            continue
        code = source.code(node).rstrip("; ")
        statements = source.flat(source.suite_of(node))
        later = statements[statements.index(node) + 1 :]
        names = writes(code)
        used = next((s for s in later if reads(source.code(s)) & names), None)
        target = later[-1:] if used is None else [used]
        for place in target:
            before, after = ([], [code]) if used is None else ([code], [])
            changes: Changes = {
                source.anchor(node): removed,
                source.anchor(place): source.between(place, before, after),
            }
            title = f"{code}, before line {source.lines(place)[0]}"
            yield from one_file(OPTIMIZER_LATER, title, source, changes)


RULES: tuple[Rule, ...] = (
    switch_on,
    never_off,
    only_what_is_on,
    before_the_operation,
    optimizer_later,
)
