"""Repairs of the gradients that the backward of a custom function returns."""

import ast
import re
from collections.abc import Iterator

from gradtrace.autograd.syntax import reads, writes
from gradtrace.explaining.causes import gradient_counts
from gradtrace.repair import kinds
from gradtrace.repair.edits import Edit, Source
from gradtrace.repair.rule import Candidate, Failure, edit


def return_none(failure: Failure) -> Iterator[Candidate]:
    """Return ``None`` for the inputs of a custom function for which a gradient is missing."""
    expected, returned = gradient_counts(failure.run.error_line) or (0, 0)
    missing = ["None"] * (expected - returned)
    for source, statement, _ in failure.at("began_at") if missing else ():
        for first, last in (([], missing), (missing, [])):  # which inputs they are of
            edits: list[Edit] = []
            for node in source.all(ast.Return, source.scope_of(statement)):
                entries = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                codes = [*first, *(source.code(entry) for entry in entries if entry), *last]
                title = f"return {', '.join(codes)}"
                edits += source.replace(node, title)
            if edits:
                yield from edit(kinds.RETURN_NONE, title, edits)


def return_results(failure: Failure) -> Iterator[Candidate]:
    """Return the gradients that the backward of a custom function computes but does not return."""
    expected, _ = gradient_counts(failure.run.error_line) or (0, 0)
    for source, statement, _ in failure.at("began_at") if expected else ():
        is_in_class = source.class_of(statement) is not None
        results = _results(source.scope_of(statement).body)
        if not isinstance(statement, ast.Return) and is_in_class and len(results) == expected:
            line = f"return {', '.join(results)}"
            question = _question_of_order(source, statement, results)
            edits = source.insert(statement, after=[line])
            yield from edit(kinds.RETURN_ORDER, line, edits, question)


def _question_of_order(source: Source, statement: ast.stmt, gradients: list[str]) -> str | None:
    """Return a question, unless each gradient is named after its input: ``grad_weight``."""
    definition = source.class_of(statement)
    methods = [] if definition is None else [*source.all(ast.FunctionDef, definition)]
    inputs = [a.arg for m in methods if m.name == "forward" for a in m.args.args[1:]]
    pairs = [*zip(inputs, gradients, strict=False)]
    is_named = len(inputs) == len(gradients) and all(
        name in gradient or gradient == "None" for name, gradient in pairs
    )
    return None if is_named else "is this the order of the inputs of forward()?"


def _results(statements: list[ast.stmt]) -> list[str]:
    """Return the variables that statements assign and that no other statement reads."""
    names = dict.fromkeys(name for s in statements for name in sorted(writes(s)))
    others = {name: [s for s in statements if name not in writes(s)] for name in names}
    return [name for name in names if name not in reads(*others[name])]


def exchange_gradients(failure: Failure) -> Iterator[Candidate]:
    """Exchange a gradient that does not fit its input with what the function returns for another.

    That is None where the input is a number, else a gradient, if an input has this one's shape.
    """
    wrong = re.search(r"(None at position|gradient at index) (\d+)", failure.run.error or "")
    is_number = wrong is not None and wrong[1].startswith("None")
    if wrong is None or not (is_number or "fits_another_input" in failure.facts):
        return
    index = int(wrong[2]) - is_number
    for source, node, _ in failure.at("began_at"):
        match node:
            case ast.Return(ast.Tuple(elts=entries)):
                codes = [*map(source.code, entries)]
                fitting = {i for i, code in enumerate(codes) if (code == "None") is is_number}
                for i in sorted(fitting - {index}) if index < len(codes) else ():
                    order = [*codes]
                    order[i], order[index] = codes[index], codes[i]
                    edits = source.replace(entries[index], order[index])
                    edits += source.replace(entries[i], order[i])
                    # Of two, nothing else is possible.
                    question = _question_of_order(source, node, order) if len(codes) > 2 else None
                    title = f"return {', '.join(order)}"
                    yield from edit(kinds.RETURN_ORDER, title, edits, question)


def view_as_output(failure: Failure) -> Iterator[Candidate]:
    """Give a returned gradient the shape of an output: ``grad_x.view_as(grad_output)``."""
    wrong = re.search(r"gradient at index (\d+)", failure.run.error or "")
    for source, node, _ in failure.at("began_at") if "fits_an_output" in failure.facts else ():
        scope = source.scope_of(node)
        if wrong is None or not isinstance(node, ast.Return) or isinstance(scope, ast.Module):
            continue
        entries = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        for entry in filter(None, entries[int(wrong[1]) :][:1]):
            for output in scope.args.args[1:]:
                edits = source.call_method(entry, "view_as", output.arg)
                title = source.code_with(node, edits)
                gradient = source.code(entry)
                question = f"are the elements of {gradient} in the order of those of {output.arg}?"
                yield from edit(kinds.RESHAPE, title, edits, question)
