"""Repairs that set an option of a call, or remove an operation that cuts the graph."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gradtrace.repair import kinds
from gradtrace.repair.edits import Edit, Source, call_of, keyword, method_called
from gradtrace.repair.rule import Candidate, EditRule, Failure, edit

_FLAGS = re.compile(r"checkpoint|cache")
_OLD = re.compile(r"old|prev|last|target|teacher|ref|frozen|fixed|ema|const|base", re.IGNORECASE)
_CUTS = ("detach", "item", "numpy", "tolist")
_REGIONS = re.compile(r"no_grad|inference_mode")


def create_graph(failure: Failure) -> Iterator[Candidate]:
    """Insert ``create_graph=True`` where a gradient is computed that a loss uses."""
    # For a backward call it would only be another retain_graph there.
    names = ("grad",) if failure.family in ("freed", "modified") else ("grad", "backward")
    calls = {call: source for source, call in failure.calls(*names)}
    for statement in failure.running:  # a gradient computed earlier in the same function
        source = statement.source
        for call in source.all(ast.Call, source.scope_of(statement.node)):
            if method_called(call) == "grad":
                calls.setdefault(call, source)
    for call, source in calls.items():
        if keyword(call, "create_graph") is None:
            retains = [argument for argument in call.keywords if argument.arg == "retain_graph"]
            edits = source.set_keywords(call, create_graph="True")
            if retains:  # create_graph=True includes it
                edits = source.replace(retains[0], "create_graph=True")
            title = f"create_graph=True at line {call.lineno}"
            yield from edit(kinds.CREATE_GRAPH, title, {source: edits})


def options(failure: Failure) -> Iterator[Candidate]:
    """Set an option of ``grad``, checkpoints or DistributedDataParallel, or drop a checkpoint."""
    checkpoints: dict[Source, list[Edit]] = {}
    for source in failure.sources:
        for call in source.all(ast.Call):
            name = method_called(call)
            if name in ("checkpoint", "checkpoint_sequential"):
                value = keyword(call, "use_reentrant")
                if failure.cause == "checkpoint_differs" and name == "checkpoint" and call.args:
                    function, *arguments = map(source.code, call.args)
                    code = f"{function}({', '.join(arguments)})"
                    edits = source.replace(call, code)
                    yield from edit(kinds.SWITCH, f"{code}, not checkpointed", {source: edits})
                if value is not None and source.code(value) != "False":
                    checkpoints.setdefault(source, []).extend(source.replace(value, "False"))
            elif name in ("DistributedDataParallel", "DDP"):
                edits = source.set_keywords(call, find_unused_parameters="True")
                yield from edit(kinds.SWITCH, "find_unused_parameters=True", {source: edits})
    yield from edit(kinds.USE_REENTRANT, "checkpoint(…, use_reentrant=False)", checkpoints)
    for statement in failure.running if failure.family == "unused_input" else ():
        source, gradient = statement.source, call_of(statement.source, statement.node, "grad")
        if gradient is not None:
            for option in ("allow_unused", "materialize_grads"):  # None, or zeros
                edits = source.set_keywords(gradient, **{option: "True"})
                yield from edit(kinds.SWITCH, f"{option}=True", {source: edits})


def return_none(failure: Failure) -> Iterator[Candidate]:
    """Return ``None`` for the inputs of a custom function for which a gradient is missing."""
    pattern = r"(\w+)Backward returned an incorrect .*expected (\d+), got (\d+)"
    match = re.search(pattern, failure.run.error_line)
    missing = ["None"] * (int(match[2]) - int(match[3])) if match else []
    for source in failure.sources if match and missing else ():
        returns = [
            node
            for node in source.all(ast.Return)
            if getattr(source.class_of(node), "name", "") == match[1]  # type: ignore[index]
            and getattr(source.function_of(node), "name", "") == "backward"
        ]
        for first, last in (([], missing), (missing, [])):  # which inputs they are of
            edits: list[Edit] = []
            for node in returns:
                entries = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                codes = [*first, *(source.code(entry) for entry in entries if entry), *last]
                title = f"return {', '.join(codes)}"
                edits += source.replace(node, title)
            if edits:
                yield from edit(kinds.RETURN_NONE, title, {source: edits})


def flags(failure: Failure) -> Iterator[Candidate]:
    """Turn off the program's own options for checkpoints and caches."""
    for source in failure.sources:
        settings: list[tuple[str, ast.expr]] = []
        settings += [(str(argument.arg), argument.value) for argument in source.all(ast.keyword)]
        for of_function in source.all(ast.arguments):
            names = [parameter.arg for parameter in of_function.args]
            settings += zip(reversed(names), reversed(of_function.defaults), strict=False)
        for assign in source.all(ast.Assign):
            settings.append((source.code(assign.targets[0]), assign.value))
        for name, value in settings:
            if _FLAGS.search(name) and source.code(value) == "True":
                title = f"{name}=False at line {value.lineno}"
                yield from edit(kinds.SWITCH, title, {source: source.replace(value, "False")})


def remove_or_move_cuts(failure: Failure) -> Iterator[Candidate]:
    """Remove ``detach()``, ``item()`` and the like, or move it to one operand."""
    is_cut_off = failure.cause == "never_trained"
    if failure.family not in ("no_graph", None, "unused_input") and not is_cut_off:
        return
    question = _question(failure)
    for statement in failure.nearby:
        source, line = statement.source, statement.line.line
        for call in source.all(ast.Call, statement.node):
            if is_cut_off and method_called(call) == "deepcopy" and call.args:
                code = source.code(call.args[0])
                edits = source.replace(call, code)
                yield from edit(kinds.KEEP_GRADIENT, f"{code}, not a copy", {source: edits})
            if method_called(call) not in _CUTS or not isinstance(call.func, ast.Attribute):
                continue
            receiver = source.code(call.func.value)
            title = f"without .{method_called(call)}() at line {line}"
            # Only detach() cuts on purpose.
            on_purpose = method_called(call) == "detach" and failure.family == "no_graph"
            of_cut = question or (f"is {receiver} to be trained?" if on_purpose else None)
            if "Can't call numpy()" in failure.run.error_line:
                edits = source.call_method(call.func.value, "detach")
                title = f"{receiver}.detach() at line {line}"
                yield from edit(kinds.NUMBER, title, {source: edits})
                continue
            edits = source.drop_call(call)
            yield from edit(kinds.KEEP_GRADIENT, title, {source: edits}, of_cut)
            for operand in _operands(source, call.func.value):
                title = f"detach {operand.id} only, in {source.code(call)}"
                moved = [*source.call_method(operand, "detach"), *edits]
                of_operand = f"is {operand.id} what is not to be trained?"
                yield from edit(kinds.MOVE_DETACH, title, {source: moved}, of_operand)
        for attribute in source.all(ast.Attribute, statement.node):
            if attribute.attr == "data":
                code = source.code(attribute.value)
                title = f"{code} in place of {code}.data"
                edits = source.replace(attribute, code)
                yield from edit(kinds.KEEP_GRADIENT, title, {source: edits}, question)
        yield from _stacked(source, statement.node)


def without_data(failure: Failure) -> Iterator[Candidate]:
    """Put a computed tensor, with its graph, in the place of a parameter whose ``.data`` is set."""
    edits: dict[Source, list[Edit]] = {}
    for statement in failure.at("began_at") if failure.cause == "never_trained" else ():
        source = statement.source
        for node in source.suite_of(statement.node):
            match node:
                case ast.Assign([ast.Attribute(ast.Attribute() as parameter, "data")], value):
                    code, name = source.code(parameter), f"new_{parameter.attr}"
                    exchange = [f"del {code}", f"{code} = {name}"]
                    computed = source.replace(node, f"{name} = {source.code(value)}")
                    both = [*computed, *source.insert(node, after=exchange)]
                    edits.setdefault(source, []).extend(both)
    title = "the tensors themselves in place of parameters with another .data"
    yield from edit(kinds.KEEP_GRADIENT, title, edits)


def _question(failure: Failure) -> str | None:
    """Ask whether an optimizer's parameters that the graph does not reach are to be trained."""
    is_cut_off = failure.cause == "never_trained"
    return f"is {' and '.join(failure.carried)} to be trained?" if is_cut_off else None


def _operands(source: Source, expression: ast.expr) -> list[ast.Name]:
    """Return at most four variables that an expression computes with, those named as old first."""
    operands = []
    for name in source.all(ast.Name, expression):
        parent = source.parent(name)
        is_function = getattr(parent, "func", None) is name
        is_argument = isinstance(parent, ast.Call | ast.keyword) and not is_function
        if is_argument or isinstance(parent, ast.BinOp | ast.UnaryOp):
            operands.append(name)
    operands.sort(key=lambda name: not _OLD.search(name.id))
    return operands[:4]


def _stacked(source: Source, node: ast.stmt) -> Iterator[Candidate]:
    """Replace ``torch.tensor([a, b])``, which copies numbers, by ``torch.stack``."""
    for call in source.all(ast.Call, node):
        function = source.code(call.func)
        if function not in ("torch.tensor", "torch.FloatTensor", "torch.Tensor") or not call.args:
            continue
        code = source.code(call.args[0])
        if isinstance(call.args[0], ast.Name):
            edits = source.replace(call, code)
            yield from edit(kinds.KEEP_GRADIENT, f"{code}, not a copy", {source: edits})
        if isinstance(call.args[0], ast.ListComp | ast.List | ast.Tuple | ast.Name):
            stack = f"torch.stack([torch.as_tensor(value) for value in {code}])"
            title = f"torch.stack in place of {function}, which makes new numbers"
            yield from edit(kinds.KEEP_GRADIENT, title, {source: source.replace(call, stack)})


def open_regions(failure: Failure) -> Iterator[Candidate]:
    """Remove ``torch.no_grad()`` around a statement, or limit ``set_grad_enabled`` to a block."""
    if failure.family != "no_graph" and failure.cause != "never_trained":
        return
    question = _question(failure)
    for statement in failure.nearby:
        source = statement.source
        for block in source.around(statement.node, ast.With):
            context = source.code(block.items[0].context_expr)
            if _REGIONS.search(context) and len(block.items) == 1:
                title = f"without {context} at line {block.lineno}"
                edits = source.unindent(block)
                yield from edit(kinds.KEEP_GRADIENT, title, {source: edits}, question)
        function = source.function_of(statement.node)
        for decorator in function.decorator_list if function is not None else ():
            if _REGIONS.search(source.code(decorator)):
                title = f"without @{source.code(decorator)}"
                edits = source.remove_line(decorator)
                yield from edit(kinds.KEEP_GRADIENT, title, {source: edits}, question)
        if call_of(source, statement.node, "set_grad_enabled"):
            title = f"with torch.no_grad(): from line {statement.node.lineno} to its block's end"
            edits = _limited_switch(source, statement.node)
            yield from edit(kinds.KEEP_GRADIENT, title, {source: edits})


def _limited_switch(source: Source, node: ast.stmt) -> list[Edit]:
    """Replace ``set_grad_enabled(False)`` by ``torch.no_grad()`` around the rest of the block."""
    following = source.after(node)
    if not following or not source.has_own_lines(node):
        return []
    return [*source.remove(node), *source.indent_under("with torch.no_grad():", following)]


def without_inference_mode(failure: Failure) -> Iterator[Candidate]:
    """Replace ``torch.inference_mode()`` by ``torch.no_grad()``."""
    modes: dict[Source, list[Edit]] = {}
    for source in failure.sources if "Inference tensors" in failure.run.error_line else ():
        for mode in source.all(ast.Attribute):
            if mode.attr == "inference_mode":
                code = f"{source.code(mode.value)}.no_grad"
                modes.setdefault(source, []).extend(source.replace(mode, code))
    yield from edit(kinds.SWITCH, "torch.no_grad() in place of torch.inference_mode()", modes)


RULES: tuple[EditRule, ...] = (
    create_graph,
    options,
    return_none,
    flags,
    remove_or_move_cuts,
    without_data,
    open_regions,
    without_inference_mode,
)
