"""Repairs that move a statement, but never across one that its operands depend on."""

import ast
from collections.abc import Iterator

from gradtrace.autograd.syntax import DRAWS, changes_in_place, reads, statements_computing, writes
from gradtrace.repair import kinds
from gradtrace.repair.edits import Source, call_of, is_simple
from gradtrace.repair.rule import Candidate, Failure, edit


def _move(
    kind: kinds.Repair, source: Source, moved: list[ast.stmt], place: ast.stmt, after: bool = False
) -> Iterator[Candidate]:
    codes = [source.code(statement) for statement in moved]
    position = f"after line {place.end_lineno}" if after else f"before line {place.lineno}"
    insertion = source.insert(place, after=codes) if after else source.insert(place, before=codes)
    yield from edit(kind, f"{codes[-1]}, {position}", [*source.remove(*moved), *insertion])


def _independent_before(source: Source, node: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the statements that a statement can move across, the nearest first."""
    for previous in reversed(source.before(node)):
        if (reads(node) | writes(node)) & (writes(previous) | changes_in_place(previous)):
            return
        yield previous


def make_leaf_earlier(failure: Failure) -> Iterator[Candidate]:
    """Make a leaf before a statement that reads its variable, so that it computes from the leaf."""
    for source, node, _ in failure.running if failure.family == "unused_input" else ():
        for leaf in source.before(node):
            code, names = source.code(leaf), writes(leaf)
            if "requires_grad" in code and names & reads(node) and not DRAWS.search(code):
                for place in _independent_before(source, leaf):
                    if names & reads(place):
                        yield from _move(kinds.REQUIRE_GRADIENT, source, [leaf], place)


def clear_earlier(failure: Failure) -> Iterator[Candidate]:
    """Clear gradients before a step's backward calls or, if they are elsewhere, after the step.

    If several calls belong to one step, clear the gradients before their loop, or after the step.
    """
    for source, node, _ in failure.at("began_at", "gradients_discarded"):
        for step in failure.at("raised_at"):
            if step.source is source:
                yield from _move(kinds.CLEAR_GRADIENTS, source, [node], step.node, after=True)
        for loop in source.loops_around(node):
            yield from _move(kinds.CLEAR_GRADIENTS, source, [node], loop)
    causes = "gradients_cleared_early", "scaler_without_gradients"
    for source, node, _ in failure.involved if failure.cause in causes else ():
        for clearing in source.before(node) if call_of(source, node, "step") else ():
            if not isinstance(clearing, ast.Expr) or not call_of(source, clearing, "zero_grad"):
                continue
            place = None
            for previous in _independent_before(source, clearing):
                if call_of(source, previous, "step"):
                    break
                place = previous if call_of(source, previous, "backward") else place
            end = place or node
            yield from _move(kinds.CLEAR_GRADIENTS, source, [clearing], end, after=place is None)


def update_scaler_always(failure: Failure) -> Iterator[Candidate]:
    """Call ``scaler.update()`` after an ``if`` that skips it, or before a ``continue``."""
    for source, node, _ in failure.at("began_at") if "update_is_skipped" in failure.facts else ():
        line = source.code(node)
        for guard in source.around(node, ast.If):
            yield from _move(kinds.UPDATE_SCALER, source, [node], guard, after=True)
        for jump in source.all(ast.Continue, next(source.loops_around(node), node)):
            title = f"{line} before line {jump.lineno}"
            yield from edit(kinds.UPDATE_SCALER, title, source.insert(jump, before=[line]))


def make_optimizer_later(failure: Failure) -> Iterator[Candidate]:
    """Create the optimizer just before its first use, or again before a later use."""
    for source, node, _ in failure.at("began_at", "optimizer_holds_replaced"):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        moved: list[ast.stmt] = [node]
        for operand in statements_computing(source.before(node), reads(node)):
            scope = source.statements(source.scope_of(node))
            if all(reader in moved for reader in scope if reads(reader) & writes(operand)):
                moved.insert(0, operand)  # such as groups of parameters
        codes = [source.code(statement) for statement in moved]
        is_used = False
        previous: ast.stmt = node
        for place in source.after(node):
            if is_simple(place) and writes(place) & reads(*node.value.args[:1]):
                title = f"{codes[-1]} again, after line {place.end_lineno}"
                again = [source.code(s) for s in moved if s is node or reads(s) & writes(place)]
                yield from edit(kinds.OPTIMIZER_LATER, title, source.insert(place, after=again))
            if writes(place) & reads(*node.value.args[1:], *node.value.keywords):
                break  # the settings would be others
            if reads(place) & writes(node):
                if not is_used:
                    yield from _move(kinds.OPTIMIZER_LATER, source, moved, place)
                elif not reads(previous) & writes(node):  # it may replace parameters
                    title = f"{codes[-1]} again, before line {place.lineno}"
                    edits = source.insert(place, before=codes)
                    yield from edit(kinds.OPTIMIZER_AGAIN, title, edits)
                is_used = True
            previous = place
