"""Repairs of in-place changes: out of place, or with a clone that the backward pass needs."""

import ast
import re
from collections.abc import Iterator
from itertools import chain

from gradtrace.autograd.syntax import (
    changes_in_place,
    is_true,
    keyword,
    new_assignment,
    reads,
    reads_first,
    without_index,
    written_in_place,
    written_values,
)
from gradtrace.repair import kinds
from gradtrace.repair.edits import Edit, Source
from gradtrace.repair.rule import Candidate, Failure, Statement, edit


def _in_place_statements(failure: Failure) -> list[Statement]:
    """Return the in-place statements that the failure names, and others of their functions."""
    if "updates_a_parameter" in failure.facts:
        return []  # a new tensor would not reach the parameter
    statements = {statement.node: statement for statement in failure.involved}
    for statement in failure.involved:
        source = statement.source
        for node in source.statements(source.scope_of(statement.node)):
            line = statement.line._replace(line=node.lineno)
            statements.setdefault(node, Statement(source, node, line))
    # Nor would it in an optimizer or under no_grad().
    return [
        statement
        for statement in statements.values()
        if changes_in_place(statement.node) and not _is_update(statement.source, statement.node)
    ]


def _is_update(source: Source, node: ast.stmt) -> bool:
    """Whether a statement is in an ``Optimizer`` subclass or under ``no_grad()``."""
    bases = getattr(source.class_of(node), "bases", ())
    items = (item for block in source.around(node, ast.With) for item in block.items)
    contexts = [*source.decorators_of(node), *(item.context_expr for item in items)]
    return any("Optimizer" in source.code(base) for base in bases) or any(
        "no_grad" in source.code(context) for context in contexts
    )


def _is_read_later(source: Source, node: ast.stmt) -> bool:
    """Whether a changed tensor may be read later: after it, in a new iteration, as ``self.x``."""
    changed = changes_in_place(node)
    loops = [*source.loops_around(node)]
    is_carried = any(reads_first(loop, name) for loop in loops for name in changed)
    # y = x.mul_(2) reads the tensor itself.
    if is_carried or any("." in name for name in changed) or reads(node) == _operands(node):
        return True
    end = source.lines(node)[-1]
    return any(
        _operands(statement) & changed
        for statement in source.statements(source.scope_of(node))
        if statement is not node and statement.lineno >= end
    )


def _operands(node: ast.stmt) -> set[str]:
    """Return the names that a statement reads, without those that it only writes into."""
    change = node.value if isinstance(node, ast.Expr) else node
    return reads(node) if written_in_place(change) is None else reads(*written_values(change))


def out_of_place(failure: Failure) -> Iterator[Candidate]:
    """Write ``x += y`` as ``x = x + y``, ``x.mul_(y)`` as ``x = x.mul(y)``: each alone, and all."""
    together: list[Edit] = []
    for source, node, place in _in_place_statements(failure):
        if not _is_read_later(source, node):  # another name of the tensor needs the change
            continue
        new, edits = new_assignment(node), _without_underscores(source, node)
        title = f"out of place at line {place.line}"
        if new is not None:
            title, edits = f"{new}, at line {place.line}", source.replace(node, new)
        elif isinstance(node, ast.AugAssign | ast.Expr):
            continue
        yield from edit(kinds.OUT_OF_PLACE, title, edits)
        together += edits
    yield from edit(kinds.OUT_OF_PLACE, "all of them out of place", together)


def collect_new_parts(failure: Failure) -> Iterator[Candidate]:
    """Collect new tensors, ``x = [f(t) for t in x]``, where a loop writes into the parts of x."""
    is_view, is_entry = failure.cause == "view_changed_inplace", "of_an_element" in failure.facts
    form = "torch.stack([{}])" if is_view else "[{}]"
    writing = failure.running[:1] if is_view else failure.at("began_at")
    for source, member, _ in writing if is_view or is_entry else ():
        code, written = (new_assignment(member) or "").partition(" = ")[2], changes_in_place(member)
        for loop in source.around(member, ast.For):
            targets = getattr(loop.target, "elts", [loop.target])
            iterated = getattr(loop.iter, "args", [loop.iter])  # of zip() or enumerate()
            pairs = zip(reversed(targets), reversed(iterated), strict=False)
            tensors = {source.code(x) for part, x in pairs if source.code(part) in written}
            if loop.body != [member] or not code or not tensors:
                break
            head = f"for {source.code(loop.target)} in {source.code(loop.iter)}"
            code, member, written = form.format(f"{code} {head}"), loop, tensors
        if isinstance(member, ast.For):
            line = f"{written.pop()} = {code}"
            yield from edit(kinds.OUT_OF_PLACE, line, source.replace(member, line))


def create_batched(failure: Failure) -> Iterator[Candidate]:
    """Create what vmap writes into from an argument that it batches: ``x.new_zeros(3)``."""
    for source, node, place in failure.at("made_at", "vmap_writes_in_place"):
        for call in source.all(ast.Call, node):
            module, _, name = source.code(call.func).rpartition(".")
            # Else it would have the argument's dtype, which may be that of indices.
            dtype = {} if keyword(call, "dtype") else {"dtype": "torch.get_default_dtype()"}
            for argument in source.all(ast.arg, source.scope_of(node)):
                if module == "torch" and name in ("zeros", "ones", "empty"):
                    edits = source.replace(call.func, f"{argument.arg}.new_{name}")
                    edits += source.set_keywords(call, **dtype)
                    title = f"{source.code_with(call, edits)} at line {place.line}"
                    yield from edit(kinds.BATCHED, title, edits)


def detach_out_of_place(failure: Failure) -> Iterator[Candidate]:
    """Assign the detached tensor, ``x = x.detach()`` for ``x.detach_()`` or ``x[i].detach_()``."""
    for source, node, _ in failure.running[:1] if failure.cause == "view_detached_inplace" else ():
        match node:
            case ast.Expr(ast.Call(ast.Attribute(value=view, attr="detach_"))):
                tensor = source.code(without_index(view))
                line = f"{tensor} = {tensor}.detach()"
                yield from edit(kinds.DETACH_STATE, line, source.replace(node, line))


def _without_underscores(source: Source, node: ast.AST) -> list[Edit]:
    """Replace the in-place calls of a statement: ``mul`` for ``mul_``, ``inplace=False``."""
    calls = [*filter(written_in_place, source.all(ast.Call, node))]
    ends = [source.span(call.func)[1] for call in calls if not is_true(call, "inplace")]
    with_keyword = (call for call in calls if is_true(call, "inplace"))
    named = (source.set_keywords(call, inplace="False") for call in with_keyword)
    return [*(Edit(source, end - 1, end, "") for end in ends), *chain.from_iterable(named)]


def without_inplace(failure: Failure) -> Iterator[Candidate]:
    """Give layers and functions ``inplace=False``: each alone, and all of them."""
    together: list[Edit] = []
    for source in failure.sources:
        keywords = source.all(ast.keyword)
        values = [keyword.value for keyword in keywords if ast.unparse(keyword) == "inplace=True"]
        for value in values if len(values) <= 4 else ():
            title = f"inplace=False at line {value.lineno}"
            yield from edit(kinds.OUT_OF_PLACE, title, source.replace(value, "False"))
        together += (part for value in values for part in source.replace(value, "False"))
    yield from edit(kinds.OUT_OF_PLACE, "inplace=False everywhere", together)


def clone_the_written(failure: Failure) -> Iterator[Candidate]:
    """Insert ``x = x.clone()`` before an in-place change of ``x``, or before each of them."""
    together: dict[tuple[Source, str, str | None], list[Edit]] = {}
    for source, node, place in _in_place_statements(failure):
        # A clone in a variable that nothing reads would be lost, one in a container would not.
        names = changes_in_place(node) if _is_read_later(source, node) else set()
        parts = (
            part for part in source.all(ast.Subscript, node) if isinstance(part.ctx, ast.Store)
        )
        names |= {source.code(p.value) for p in parts if isinstance(p.value, ast.Subscript)}
        for name in sorted(name for name in names if re.fullmatch(r"[\w.]+|.*\]", name)):
            tensor = name.removesuffix(".data")
            line = f"{tensor} = {tensor}.clone()"
            lines, change = [line], source.code(node)
            if isinstance(node, ast.Assign) and name in reads(node.value):  # the old tensor
                target, value = source.code(node.targets[0]), source.code(node.value)
                lines, change = [], f"{tensor}, {target} = {tensor}.clone(), {value}"
            # Autograd does not track a change of x.data, which may be on purpose.
            for answer in (None,) if name == tensor else ("a", "no"):
                question = answer and f"is this change of {tensor} to have {answer} gradient?"
                code = re.sub(r"\.data\b", "", change) if answer == "a" else change
                title = f"{line} before line {place.line}"
                title = title if lines and code == change else "; ".join([*lines, code])
                edits = [*source.insert(node, before=lines), *source.replace(node, code)]
                yield from edit(kinds.CLONE_WRITTEN, title, edits, question)
                together.setdefault((source, line, question), []).extend(edits)
    for (_, line, question), edits in together.items():
        yield from edit(kinds.CLONE_WRITTEN, f"{line} before each in-place change", edits, question)


def clone_the_operand(failure: Failure) -> Iterator[Candidate]:
    """Clone an operand of the operation that saves the tensor before its in-place change."""
    carried = {name.rpartition(".")[2] for name in failure.carried}
    for source, node, place in failure.at("made_at") if failure.family != "freed" else ():
        value = getattr(node, "value", None)  # assigned or returned
        operands = [
            part
            for part in source.all(ast.expr, *filter(None, [value]))
            if isinstance(part, ast.Name | ast.Attribute)
            and getattr(source.parent(part), "func", None) is not part
            and (
                getattr(part, "attr", None) in carried
                or not isinstance(source.parent(part), ast.Attribute)
            )
        ]
        operands.sort(key=lambda part: source.code(part) not in failure.carried)
        for operand in operands[:4]:
            title = f"{source.code(operand)}.clone() at line {place.line}"
            yield from edit(kinds.CLONE_USED, title, source.call_method(operand, "clone"))


def without_gradient(failure: Failure) -> Iterator[Candidate]:
    """Put the in-place changes of one tensor, or manual updates, under ``torch.no_grad()``."""
    for statement in failure.running[:1] if failure.family == "leaf_inplace" else ():
        source, node = statement.source, statement.node
        block = [node]
        for following in source.after(node):
            changed = changes_in_place(following)
            is_of_gradient = any(name.endswith(".grad") for name in changed)
            is_update = ".grad" in source.code(following) and not is_of_gradient
            if not changed or not (is_update or changed & changes_in_place(node)):
                break
            block.append(following)
        if all(map(source.has_own_lines, block)):
            title = f"under torch.no_grad() from line {statement.line.line} on"
            edits = source.indent_under("with torch.no_grad():", block)
            changed = set().union(*map(changes_in_place, block))
            written = sorted(reads(*block) & failure.variables(statement).keys() - changed)
            names = " and ".join(written)
            asks = written and "updates_a_parameter" not in failure.facts
            question = f"is {names} not to be trained through this change?" if asks else None
            yield from edit(kinds.NO_GRAD, title, edits, question)
