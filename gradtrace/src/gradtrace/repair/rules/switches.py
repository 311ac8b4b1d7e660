"""Repairs that set an option of a call, or remove an operation that cuts the graph."""

import ast
import itertools
import re
from collections.abc import Iterator

from gradtrace.autograd.syntax import (
    is_true,
    keyword,
    reads,
    statements_computing,
    straight_through,
    with_own_buffers,
    writes,
)
from gradtrace.repair import kinds
from gradtrace.repair.edits import Edit, Source, call_of, method_called
from gradtrace.repair.rule import RIGHT_GRADIENTS, Candidate, Failure, edit

_OLD = re.compile(r"old|prev|last|target|teacher|ref|frozen|fixed|ema|const|base", re.IGNORECASE)
_CUTS = ("detach", "item", "numpy", "tolist")
_REGIONS = re.compile(r"no_grad|inference_mode")


def create_graph(failure: Failure) -> Iterator[Candidate]:
    """Insert ``create_graph=True`` where a gradient is computed that a loss uses."""
    if failure.cause in RIGHT_GRADIENTS:
        return
    # For a backward call it would only be another retain_graph there.
    names = ("grad",) if failure.family in ("freed", "modified") else ("grad", "backward")
    calls = {call: source for source, call in failure.calls(*names)}
    for source, node, _ in failure.running:  # a gradient computed earlier in the same function
        calls |= dict.fromkeys(source.calls("grad", under=source.scope_of(node)), source)
    single = {c: source for c, source in calls.items() if not is_true(c, "create_graph")}
    groups = [[call] for call in single]
    gradients = [call for call in single if method_called(call) == "grad"]
    if failure.cause == "create_graph_missing" and len(gradients) > 1:
        groups.append(gradients)  # a loss that compares gradients needs the graphs of all
    # Without it, the program runs in the first order, if only the graph is retained.
    question = "is the gradient itself to be differentiated?" if failure.family == "freed" else None
    for group in groups:
        edits = [e for c in group for e in single[c].set_keywords(c, create_graph="True")]
        lines = " and ".join(str(call.lineno) for call in group)
        title = f"create_graph=True at line {lines}"
        yield from edit(kinds.CREATE_GRAPH, title, edits, question)


def options(failure: Failure) -> Iterator[Candidate]:
    """Set options of a checkpoint or of ``autograd.grad``, or leave the checkpoint out."""
    checkpoints: list[Edit] = []
    for source in failure.sources:
        for call in source.calls("checkpoint", "checkpoint_sequential"):
            value, is_single = keyword(call, "use_reentrant"), method_called(call) == "checkpoint"
            if failure.cause == "checkpoint_differs" and is_single and call.args:
                function, *arguments = map(source.code, call.args)
                code = f"{function}({', '.join(arguments)})"
                title = f"{code}, not checkpointed, which needs more memory"
                yield from edit(kinds.NO_CHECKPOINT, title, source.replace(call, code))
            if "draws_unrestored" in failure.facts:
                edits = source.set_keywords(call, preserve_rng_state="True")
                title = f"preserve_rng_state=True at line {call.lineno}"
                yield from edit(kinds.REPEAT_DRAWS, title, edits)
            if value is not None and source.code(value) != "False":
                checkpoints += source.replace(value, "False")
    yield from edit(kinds.USE_REENTRANT, "checkpoint(…, use_reentrant=False)", checkpoints)
    for source, call in failure.calls("grad") if failure.family == "unused_input" else ():
        for option in ("allow_unused", "materialize_grads"):  # None, or zeros
            edits = source.set_keywords(call, **{option: "True"})
            yield from edit(kinds.SWITCH, f"{option}=True", edits)


def cast_again(failure: Failure) -> Iterator[Candidate]:
    """Pass ``cache_enabled=False`` to ``autocast``, or to the ``partial`` that calls it."""
    edits: list[Edit] = []
    for source in failure.sources if failure.cause == "autocast_stale" else ():
        for call in source.calls("autocast", "partial"):
            names = [method_called(call), *map(source.code, call.args[:1])]
            if any(name.endswith("autocast") for name in names):
                edits += source.set_keywords(call, cache_enabled="False")
    yield from edit(kinds.NO_CACHE, "autocast(…, cache_enabled=False)", edits)


def copy_buffers(failure: Failure) -> Iterator[Candidate]:
    """Give ``functional_call`` copies of the buffers, which a layer changes in place."""
    for source, node, _ in failure.at("began_at", "captured_changed_inplace"):
        for call in source.calls("functional_call", under=node):
            if tensors := with_own_buffers(call):
                title = f"functional_call(…, {tensors}, …) at line {call.lineno}"
                yield from edit(kinds.OWN_BUFFERS, title, source.replace(call.args[1], tensors))


def differentiate_whole(failure: Failure) -> Iterator[Candidate]:
    """Take the part of a gradient, ``grad(y, x)[0][i]``, for ``grad(y, x[i])[0]``."""
    for source, node, _ in failure.running if "of_views" in failure.facts else ():
        call = call_of(source, node, "grad")
        match (call and source.parent(call), call and call.args[1:2]):
            case [ast.Subscript(slice=ast.Constant(0)) as first, [ast.Subscript() as part]]:
                tensor = source.code(part.value)
                index = source.code(part).removeprefix(tensor)
                end = source.span(first)[1]
                edits = [*source.replace(part, tensor), Edit(source, end, end, index)]
                yield from edit(kinds.PART, source.code_with(first, edits), edits)


def differentiate_copy(failure: Failure) -> Iterator[Candidate]:
    """Request the gradients of the copy, with the same values, that the loss was computed from."""
    for source, node, _ in failure.running if "an_equal_copy_takes_part" in failure.facts else ():
        call = call_of(source, node, "grad")
        copies = reads(*statements_computing(source.before(node), reads(node)))
        for part in [] if call is None else source.all(ast.expr, call.args[1]):
            original = source.code(part)
            if any(name.startswith(f"{original}.") for name in failure.carried):
                for copy in sorted(copies - {original}):
                    title = f"{copy} for {original} at line {part.lineno}"
                    yield from edit(kinds.OF_COPY, title, source.replace(part, copy))


def pass_argument(failure: Failure) -> Iterator[Candidate]:
    """Give a call, in place of ``None`` too, an argument that another call of the function has."""
    for source, node, _ in failure.running if failure.family == "unused_input" else ():
        calls = [*source.all(ast.Call, source.scope_of(node))]
        for call, model in itertools.permutations(calls, 2):
            function = source.code(call.func)
            if function != source.code(model.func):
                continue
            names = {keyword.arg for keyword in call.keywords}
            empty = [k for k in call.keywords if source.code(k.value) == "None"]
            for argument in (*model.args[len(call.args) :][:1], *model.keywords):
                arguments = map(source.code, (*call.args, argument, *call.keywords))
                code = f"{function}({', '.join(arguments)})"
                if reads(argument) and getattr(argument, "arg", "") not in names:
                    title = f"{code} at line {call.lineno}"
                    yield from edit(kinds.PASS_ARGUMENT, title, source.replace(call, code))
                value = argument.value if isinstance(argument, ast.keyword) else argument
                named = [k for k in empty if getattr(argument, "arg", k.arg) == k.arg]
                for option in named if reads(value) else ():
                    edits = source.replace(option.value, source.code(value))
                    title = f"{source.code_with(call, edits)} at line {call.lineno}"
                    yield from edit(kinds.PASS_ARGUMENT, title, edits)


def attention_by_parts(failure: Failure) -> Iterator[Candidate]:
    """Compute attention by operations with a second derivative, which the fused kernels lack."""
    head = "with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):"
    for source in failure.sources if "_scaled_dot_product" in failure.run.error_line else ():
        for node in source.statements():
            is_fused = call_of(source, node, "scaled_dot_product_attention")
            if (is_fused or node in failure.computing) and source.has_own_lines(node):
                title = f"SDPBackend.MATH at line {node.lineno}"
                yield from edit(kinds.SWITCH, title, source.indent_under(head, [node]))


def distance_by_parts(failure: Failure) -> Iterator[Candidate]:
    """Compute a distance by operations with a second derivative, which that of cdist lacks."""
    for source in failure.sources if "_cdist_backward" in failure.run.error_line else ():
        for call in source.calls("cdist"):
            if len(call.args) == 2 and not call.keywords:
                operands = map(source.code, call.args)
                x, y = (code if re.fullmatch(r"[\w.]+", code) else f"({code})" for code in operands)
                if x != y:  # where they are equal, the square root has no derivative
                    code = f"({x}.unsqueeze(-2) - {y}.unsqueeze(-3)).pow(2).sum(-1).sqrt()"
                    title = f"{code} at line {call.lineno}"
                    yield from edit(kinds.SWITCH, title, source.replace(call, code))


def remove_or_move_cuts(failure: Failure) -> Iterator[Candidate]:
    """Remove ``detach()``, ``item()`` and the like, or move it to one operand."""
    is_cut_off = failure.cause in ("never_trained", "constant_term")
    if failure.family not in ("no_graph", None, "unused_input") and not is_cut_off:
        return
    question = _question(failure)
    for source, node, place in failure.nearby:
        for call in source.calls(*_CUTS, under=node):
            if not isinstance(call.func, ast.Attribute) or straight_through(source.parent(call)):
                continue
            is_whole = getattr(node, "value", None) is call
            is_term = failure.cause == "constant_term" and is_whole
            statements = source.statements(source.scope_of(node))
            if is_term and sum(bool(reads(s) & writes(node)) for s in statements) > 1:
                continue  # another statement may store the graph
            receiver = source.code(call.func.value)
            title = f"without .{method_called(call)}() at line {place.line}"
            # Only detach() cuts on purpose.
            on_purpose = method_called(call) == "detach" and failure.family == "no_graph"
            of_cut = question or (f"is {receiver} to be trained?" if on_purpose else None)
            edits = source.drop_call(call)
            yield from edit(kinds.KEEP_GRADIENT, title, edits, of_cut)
            for operand in _operands(source, call.func.value):
                if is_cut_off and not _OLD.search(operand.id):
                    continue  # nothing says that a part of what is never trained is meant
                title = f"detach {operand.id} only, in {source.code(call)}"
                moved = [*source.call_method(operand, "detach"), *edits]
                of_operand = f"is {operand.id} what is not to be trained?"
                yield from edit(kinds.MOVE_DETACH, title, moved, of_operand)
        for attribute in source.all(ast.Attribute, node):
            if attribute.attr == "data":
                code = source.code(attribute.value)
                title, edits = f"{code} in place of {code}.data", source.replace(attribute, code)
                yield from edit(kinds.KEEP_GRADIENT, title, edits, question)
        yield from _stacked(source, node)


def compute_without_numpy(failure: Failure) -> Iterator[Candidate]:
    """Give NumPy tensors without a graph, or let PyTorch compute: ``torch.sum`` for ``np.sum``."""
    for source, node, place in failure.running if failure.cause == "numpy_of_graph" else ():
        for call in source.all(ast.Call, node):
            match call.func:
                case ast.Attribute(value=operand, attr="numpy"):
                    operands: list[ast.expr] = [operand]
                case ast.Attribute(value=ast.Name("np" | "numpy") as module) if call.args:
                    operands, first = [*_operands(source, call)], call.args[0]
                    for form in ("{}", "torch.stack({})"):
                        edits = source.replace(first, form.format(source.code(first)))
                        edits += source.replace(module, "torch")
                        title = f"{source.code_with(call, edits)} at line {place.line}"
                        question = f"is the loss to train through {source.code(call)}?"
                        yield from edit(kinds.IN_TORCH, title, edits, question)
                case _:
                    continue
            for operand in operands:
                of_list = source.replace(operand, f"[x.detach() for x in {source.code(operand)}]")
                for edits in (source.call_method(operand, "detach"), of_list):
                    title = f"{source.code_with(operand, edits)} at line {place.line}"
                    yield from edit(kinds.NUMBER, title, edits)
        calls = [*source.calls("numpy", under=source.scope_of(node))]
        receivers = [c.func.value for c in calls if isinstance(c.func, ast.Attribute)]
        together = [e for x in receivers for e in source.call_method(x, "detach")]
        yield from edit(kinds.NUMBER, "detach() before each numpy()", together)


def without_data(failure: Failure) -> Iterator[Candidate]:
    """Put a computed tensor, with its graph, in the place of a parameter that gets its values."""
    edits: list[Edit] = []
    began = [statement.node for statement in failure.at("began_at")]
    suites = ((s.source, s.source.suite_of(s.node)) for s in failure.nearby)
    nodes = {node: source for source, suite in suites for node in suite}
    for node, source in nodes.items() if failure.cause == "never_trained" else ():
        match node:
            case ast.Assign([ast.Attribute(ast.Attribute() as parameter, "data")], value):
                pass
            case ast.Assign([ast.Attribute() as parameter], ast.Call(args=[value]) as call) if (
                method_called(call) == "Parameter" and node in began
            ):
                pass
            case _:
                continue
        code, name = source.code(parameter), f"new_{parameter.attr}"
        edits += source.replace(node, f"{name} = {source.code(value)}")
        edits += source.insert(node, after=[f"del {code}", f"{code} = {name}"])
    title = "the tensors themselves in place of parameters with their values"
    yield from edit(kinds.KEEP_GRADIENT, title, edits)


def new_parameter(failure: Failure) -> Iterator[Candidate]:
    """Put a new parameter in the place of one whose ``.data`` gets another shape."""
    names = {name.rpartition(".")[2] for name in failure.carried}
    for source in failure.sources if failure.cause == "leaf_reshaped" else ():
        for node in source.all(ast.Assign):
            match node:
                case ast.Assign([ast.Attribute(ast.Attribute() as parameter, "data")], value) if (
                    parameter.attr in names
                ):
                    line = f"{source.code(parameter)} = torch.nn.Parameter({source.code(value)})"
                    title = f"{line}, at line {node.lineno}"
                    yield from edit(kinds.NEW_PARAMETER, title, source.replace(node, line))


def _question(failure: Failure) -> str | None:
    """Return the question whether what was detached is to be trained, or None."""
    if failure.cause == "constant_term":
        return "is this term to be trained?"
    is_cut_off = failure.cause == "never_trained"
    return f"is {' and '.join(failure.carried)} to be trained?" if is_cut_off else None


def _operands(source: Source, expression: ast.expr) -> list[ast.Name]:
    """Return at most four operand names, those that suggest an old or fixed value first."""
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
    # What stays detached in the same function may have been detached by the same mistake.
    detached = call_of(source, source.scope_of(node), "detach")
    kept = None if detached is None else source.code(detached).removesuffix(".detach()")
    question = kept and f"is {kept} not to be trained?"
    for call in source.all(ast.Call, node):
        function = source.code(call.func)
        if function not in ("torch.tensor", "torch.FloatTensor", "torch.Tensor") or not call.args:
            continue
        code = source.code(call.args[0])
        if isinstance(call.args[0], ast.Name):
            yield from edit(kinds.KEEP_GRADIENT, f"{code}, not a copy", source.replace(call, code))
            stack = f"torch.stack([torch.as_tensor(value) for value in {code}])"
        elif isinstance(call.args[0], ast.ListComp | ast.List | ast.Tuple):
            stack = _stack(source, call.args[0])
        else:
            continue
        title = f"torch.stack in place of {function}, which makes new numbers"
        edits = source.replace(call, stack)
        yield from edit(kinds.KEEP_GRADIENT, title, edits, question)
        for statement in source.statements():  # which raises for a result
            if re.fullmatch(r"\w+\.requires_grad( = True|_\(\))", source.code(statement)):
                both = [*edits, *source.remove(statement)]
                of_both = f"{title}; without {source.code(statement)}"
                yield from edit(kinds.KEEP_GRADIENT, of_both, both, question)


def _stack(source: Source, value: ast.expr) -> str:
    """Return code that stacks the tensors of a list, without the ``.item()`` of each."""
    match value:
        case ast.ListComp(elt=entry):
            entries = [entry]
        case ast.List(elts=entries) | ast.Tuple(elts=entries):
            pass
        case ast.Call(func=ast.Attribute(value=tensor, attr="item")):
            return source.code(tensor)
        case _:
            return f"torch.as_tensor({source.code(value)})"
    edits = [part for entry in entries for part in source.replace(entry, _stack(source, entry))]
    return f"torch.stack({source.code_with(value, edits)})"


def open_regions(failure: Failure) -> Iterator[Candidate]:
    """Remove ``torch.no_grad()`` around a statement, or end its block earlier."""
    is_cut_off = failure.family == "no_graph" or failure.cause == "never_trained"
    if not is_cut_off or "Inference tensors" in failure.run.error_line:
        return
    question = _question(failure)
    for source, node, _ in failure.nearby:
        for block in source.around(node, ast.With):
            managers = [item.context_expr for item in block.items]
            i = next((i for i, m in enumerate(managers) if _REGIONS.search(source.code(m))), None)
            if i is None or any(item.optional_vars for item in block.items):
                continue
            context = source.code(managers[i])
            title = f"without {context} at line {block.lineno}"
            if len(managers) > 1:
                edits = source.remove_entry(managers, i)
                whole = question or "is all that the block computes to be trained?"
                yield from edit(kinds.KEEP_GRADIENT, title, edits, whole)
                continue
            for kept, first in enumerate(block.body):
                if kept:
                    title = f"line {first.lineno} and those after it outside of {context}"
                kind = kinds.NARROW_REGION if kept else kinds.KEEP_GRADIENT
                yield from edit(kind, title, source.unindent(block, kept), question)
        for decorator in source.decorators_of(node):
            if _REGIONS.search(source.code(decorator)):
                title = f"without @{source.code(decorator)}"
                yield from edit(kinds.KEEP_GRADIENT, title, source.remove_line(decorator), question)


def without_compile(failure: Failure) -> Iterator[Candidate]:
    """Use the function or module itself, for ``torch.compile(f)``, ``m.compile()``, a decorator."""
    is_compiled = failure.cause in ("double_backward_compiled", "donated_buffers")
    for source in failure.sources if is_compiled else ():
        for node in source.all(ast.expr):
            match source.code(node).partition("(")[0], node, source.parent(node):
                case "torch.compile", _, ast.FunctionDef():
                    edits = source.remove_line(node)
                case "torch.compile", ast.Call(args=[function, *_]), _:
                    edits = source.replace(node, source.code(function))
                case _, ast.Call(func=ast.Attribute(attr="compile")), ast.Expr() as statement:
                    edits = source.remove(statement)
                case _:
                    continue
            yield from edit(kinds.SWITCH, f"without {source.code(node)}", edits)


def record_in_forward(failure: Failure) -> Iterator[Candidate]:
    """Run a statement of a custom function's ``forward`` under ``torch.enable_grad()``.

    If it requests a gradient, what reads the input before it is recorded, too.
    """
    head = "with torch.enable_grad():"
    for source, node, place in failure.running if "in_a_functions_forward" in failure.facts else ():
        if source.has_own_lines(node):
            title = f"torch.enable_grad() at line {place.line}"
            yield from edit(kinds.NARROW_REGION, title, source.indent_under(head, [node]))
        match call_of(source, node, "grad"):
            case ast.Call(args=[_, ast.Name(name), *_]):
                suite = [*source.before(node), node]
                reading = (i for i, statement in enumerate(suite) if name in reads(statement))
                block = suite[next(reading) :]
                line = f"{name} = {name}.clone().requires_grad_()"
                edits = [*source.insert(block[0], before=[line]), *source.indent_under(head, block)]
                if all(map(source.has_own_lines, block)):
                    title = f"{line}; torch.enable_grad() from line {block[0].lineno} on"
                    yield from edit(kinds.NARROW_REGION, title, edits)


def twice_differentiable(failure: Failure) -> Iterator[Candidate]:
    """Remove ``@once_differentiable`` where a program declares its own functions."""
    edits: list[Edit] = []
    for source in failure.sources if failure.cause == "once_differentiable" else ():
        decorators = itertools.chain(*(f.decorator_list for f in source.all(ast.FunctionDef)))
        for mark in (d for d in decorators if "once_differentiable" in source.code(d)):
            edits += source.remove_line(mark)
    yield from edit(kinds.KEEP_GRADIENT, "without @once_differentiable", edits)


def without_inference_mode(failure: Failure) -> Iterator[Candidate]:
    """Replace ``torch.inference_mode()`` by ``torch.no_grad()``."""
    modes: list[Edit] = []
    for source in failure.sources if "Inference tensors" in failure.run.error_line else ():
        for mode in source.all(ast.Attribute):
            if mode.attr == "inference_mode":
                modes += source.replace(mode, f"{source.code(mode.value)}.no_grad")
    yield from edit(kinds.SWITCH, "torch.no_grad() in place of torch.inference_mode()", modes)
