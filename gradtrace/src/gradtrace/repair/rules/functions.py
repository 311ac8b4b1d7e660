"""Repairs of values that functions, estimators and parameters keep without their graph."""

import ast
from collections.abc import Iterator

from gradtrace.autograd.syntax import (
    pairs_of,
    reads,
    statements_computing,
    straight_through,
    writes,
)
from gradtrace.repair import kinds
from gradtrace.repair.edits import call_of, method_called
from gradtrace.repair.rule import Candidate, Failure, edit


def recompute_in_backward(failure: Failure) -> Iterator[Candidate]:
    """Compute in ``backward()``, from saved inputs, the values that ``forward()`` has kept."""
    for source, node, _ in failure.at("began_at", "intermediate_saved"):
        forward, definition = source.scope_of(node), source.class_of(node)
        saving = call_of(source, forward, "save_for_backward")
        on_ctx = [a for a in source.all(ast.Assign, forward) if "." in source.code(a.targets[0])]
        entries = [*(a.value for a in on_ctx), *(saving.args if saving else ())]
        kept = [x for x in entries if isinstance(x, ast.Name) and x.id in writes(forward)]
        names = {source.code(entry) for entry in kept}
        edits = [part for entry in kept for part in source.replace(entry, "None")]
        copies = {
            source.code(a.targets[0]): source.code(a.value) for a in on_ctx if a.value in kept
        }
        computing = reversed([*statements_computing(forward.body, names)])
        lines = [source.code(statement) for statement in computing]
        for backward in source.all(ast.FunctionDef, *filter(None, [definition])):
            readers = [s for s in backward.body if reads(s) & (names | copies.keys())]
            if backward.name == "backward" and readers:
                edits += source.insert(readers[0], before=lines)
                for part in source.all(ast.Attribute, backward):
                    if name := copies.get(source.code(part)):
                        edits += source.replace(part, name)
                yield from edit(kinds.KEEP_GRADIENT, f"{'; '.join(lines)} in backward()", edits)


def value_before_estimator(failure: Failure) -> Iterator[Candidate]:
    """Compare ``x.detach()`` with ``y``, not with ``x + (y - x).detach()``, which trains x."""
    for source, node, _ in failure.at("began_at", "never_trained"):
        for _, estimator in pairs_of(node) if isinstance(node, ast.Assign) else ():
            x, y = straight_through(estimator) or (None, None)
            if x is None or y is None:
                continue
            # As an attribute, y reaches other functions, and no loss that detaches another tensor.
            line = f"{source.code(x)}.quantized = {source.code(y)}"
            for file in failure.sources:
                for call in file.all(ast.Call):
                    detached = [a for a in call.args if method_called(a) == "detach"]
                    for compared in call.args[:2] if len(detached) == 1 else ():
                        target = file.code(detached[0]).removesuffix(".detach()")
                        edits = file.replace(compared, f"{target}.quantized")
                        title = f"{line}; {file.code_with(call, edits)} at line {call.lineno}"
                        edits += source.insert(node, before=[line])
                        if compared is not detached[0]:
                            yield from edit(kinds.KEEP_GRADIENT, title, edits)


def call_functionally(failure: Failure) -> Iterator[Candidate]:
    """Compute with the tensors that ``model.load_state_dict()`` would copy without their graph."""
    for source, node, _ in failure.at("began_at", "written_without_graph"):
        scope, loading = source.scope_of(node), call_of(source, node, "load_state_dict")
        match loading, scope:
            case ast.Call(ast.Attribute(model), [tensors]), ast.FunctionDef():
                name = source.code(model)
            case _:
                continue
        begin = f"tensors = dict({name}.named_parameters())"
        edits = source.first_in(scope.body, [begin])
        edits += source.replace(node, f"tensors = {source.code(tensors)}")
        replaced = {f"{name}.parameters": "values", f"{name}.named_parameters": "items"}
        for call in source.all(ast.Call, scope):
            function, parent = source.code(call.func), source.parent(call)
            if function == name and not call.keywords:
                inputs = ", ".join(map(source.code, call.args))
                new = f"torch.func.functional_call({name}, tensors, ({inputs},))"
                edits += source.replace(call, new)
            elif method := replaced.get(function):
                edits += source.replace(call, f"tensors.{method}()")
            elif function == f"{name}.load_state_dict" and isinstance(parent, ast.Expr):
                edits += source.insert(parent, after=[begin] if parent is not node else [])
        title = f"torch.func.functional_call({name}, …) from line {scope.lineno} on"
        yield from edit(kinds.KEEP_GRADIENT, title, edits)
