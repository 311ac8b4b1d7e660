"""Repairs of values that last for several iterations: states, caches, lists, running sums."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from gradtrace.autograd.syntax import (
    DETACHED,
    DRAWS,
    Function,
    Loop,
    additions,
    carried_names,
    changes_in_place,
    pairs_of,
    reads,
    reads_first,
    statements_computing,
    writes,
)
from gradtrace.repair import kinds
from gradtrace.repair.edits import Edit, Source, call_of
from gradtrace.repair.rule import Candidate, Failure, Statement, edit


def detach_carried_variables(failure: Failure) -> Iterator[Candidate]:
    """Detach the variables with a graph that a loop carries, ``h = h.detach()``, or reset them."""
    for statement, loop in failure.loops:
        types = failure.variables(statement)
        changed = sorted(changes_in_place(loop) - writes(loop))
        names = [name for name in dict.fromkeys([*carried_names(loop), *changed]) if name in types]
        lines = [DETACHED[types[name]].format(name) for name in names]
        question = _question_of_mean(statement)
        yield from _in_each_iteration(statement, lines, kinds.DETACH_STATE, loop, question)
        source = statement.source
        inner = [part for part in source.all(ast.stmt, *loop.body) if isinstance(part, Loop)]
        over_sequence = {name for part in inner for name in carried_names(part)} & {*names}
        starts = [node for node in source.before(loop) if writes(node) & over_sequence]
        lines = [source.code(node) for node in starts if isinstance(node, ast.Assign)]
        yield from _in_each_iteration(statement, lines, kinds.RESET_STATE, loop)


def _question_of_mean(statement: Statement) -> str | None:
    """Return a question if the loss of a statement is a running mean of losses, or None.

    Without its older part, a mean gives each step a fraction of the newest loss's gradient.
    """
    source = statement.source
    call = call_of(source, statement.node, "backward")
    if call is None or not isinstance(call.func, ast.Attribute):
        return None
    loss = source.code(call.func.value)
    if not any(reads_first(loop, loss) for loop in source.loops_around(statement.node)):
        return None  # the loss of each iteration is a new one
    text = f"{loss} + …"  # in a sum, each term keeps its weight
    for node in source.before(statement.node):
        if isinstance(node, ast.Assign) and loss in writes(node) and loss in reads(node.value):
            text = source.code(node.value)
    is_sum = text.startswith(f"{loss} + ") or text.endswith(f" + {loss}")
    return None if is_sum else f"is {loss}, a running mean, to be trained, not its newest term?"


def _in_each_iteration(
    statement: Statement,
    lines: list[str],
    kind: kinds.Repair,
    loop: Loop | None = None,
    question: str | None = None,
) -> Iterator[Candidate]:
    """Insert lines after the statement or, as a second candidate, at the beginning of its loop."""
    source, title = statement.source, "; ".join(lines)
    loop = loop or next(source.loops_around(statement.node), None)
    member = statement.node if loop is None else source.member_of(loop.body, statement.node)
    # Before a step, a new state would be one of the old weights.
    if loop is None or kind != kinds.RESET_STATE:
        yield from edit(kind, title, source.insert(member, after=lines), question)
    if kind == kinds.DETACH_STATE and any(source.calls("grad")):
        leaves = [line.replace(".detach()", ".detach().requires_grad_()") for line in lines]
        yield from edit(kind, "; ".join(leaves), source.insert(member, after=leaves))
    if loop is not None:
        title = f"{title} at the beginning of each iteration"
        yield from edit(kind, title, source.first_in(loop.body, lines), question)


class _Attribute(NamedTuple):
    """An attribute with freed nodes, or an entry of a dict: its path, and the type of its value."""

    owner: str
    path: str
    name: str
    kind: str
    statement: Statement


def _attributes(failure: Failure) -> list[_Attribute]:
    """Return the attributes whose graphs contain freed nodes, as the running frames name them."""
    attributes: dict[tuple[str, Statement], _Attribute] = {}
    # With detached entries, a list that the program reads as a whole would grow for ever.
    filled = set() if "reads_older_entries" in failure.facts else _filled(failure)
    for variable, statement in failure.freed_variables:
        path = re.sub(r"\.(\d+)", r"[\1]", variable.name)
        # A key may contain dots: of h['net.bias'], the path is h.
        match = re.fullmatch(r"(((?:'[^']*'|[^'])+)\.([^\W\d]\w*))(\[.*\])?", path) or re.fullmatch(
            r"((\w+)\['(\w+)'\])(\[.*\])?", path
        )
        if match and match[3] not in filled:
            path, owner, name, index = match.groups()
            kind = "tuple" if path.endswith("]") else variable.kind
            if kind != "namedtuple":
                kind = "tensor" if index is None else kind if kind in DETACHED else "list"
            attribute = _Attribute(owner, path, name, kind, statement)
            attributes.setdefault((path, statement), attribute)
    return list(attributes.values())


def _filled(failure: Failure) -> set[str]:
    """Return the last names of the containers that the program appends to."""
    return {name.rpartition(".")[2] for s in failure.sources for name, _ in additions(s.tree)}


def detach_attributes(failure: Failure) -> Iterator[Candidate]:
    """Detach attributes and entries, ``net.mem = net.mem.detach()``, or reset them, ``= None``."""
    lines: dict[tuple[kinds.Repair, Statement], list[str]] = {}
    for attribute in _attributes(failure):
        line = DETACHED[attribute.kind].format(attribute.path, attribute.owner, attribute.name)
        if failure.cause != "computed_once_outside_loop":  # else only a first iteration trains it
            lines.setdefault((kinds.DETACH_STATE, attribute.statement), []).append(line)
        if value := _initial_value(failure, attribute):
            line = f"{attribute.path} = {value}"
            lines.setdefault((kinds.RESET_STATE, attribute.statement), []).append(line)
    for (kind, statement), of_statement in lines.items():
        if failure.cause == "copied_with_graph":
            title, source = f"{'; '.join(of_statement)} before the copy", statement.source
            yield from edit(kind, title, source.insert(statement.node, before=of_statement))
        else:
            yield from _in_each_iteration(statement, of_statement, kind)


def _initial_value(failure: Failure, attribute: _Attribute) -> str | None:
    """Return an attribute's first value, if the loss trains only through the freed graph."""
    # Whether a list that the program fills is to begin empty is a question: see clear_entries.
    is_needed = "trained_only_there" in failure.facts and attribute.name not in _filled(failure)
    is_buffer = failure.cause == "buffer_has_graph"  # None, if it is a cache
    for source in failure.sources if is_needed or is_buffer else ():
        buffers = (call.args for call in source.calls("register_buffer"))
        named = ((f"self.{getattr(args[0], 'value', '')}", args[1]) for args in buffers if args[1:])
        for target, value in (*source.assignments(), *named):
            is_initial = getattr(source.scope_of(value), "name", "") == "__init__"
            is_offered = is_needed or source.code(value) == "None"
            if is_initial and is_offered and target == f"self.{attribute.name}":
                return re.sub(r"\bself\b", attribute.owner, source.code(value))
    return None


def reset_attributes(failure: Failure) -> Iterator[Candidate]:
    """Call methods without parameters that assign attributes with freed nodes: ``reset()``.

    The first candidate calls it on the attributes' owners, the next on what these are part of.
    """
    targets: dict[str, set[str]] = {}
    for source in failure.sources:
        for function in source.all(ast.FunctionDef):
            is_method = source.class_of(function) is not None and len(function.args.args) == 1
            if is_method and function.name not in ("__init__", "forward"):
                written = {name.rpartition(".")[2] for name in writes(function) if "." in name}
                targets.setdefault(function.name, set()).update(written)
    for name, assigned in targets.items():
        owners: dict[Statement, set[str]] = {}
        for attribute in _attributes(failure):
            if attribute.name in assigned:
                owners.setdefault(attribute.statement, set()).add(attribute.owner)
        for statement, paths in owners.items():
            loops = statement.source.loops_around(statement.node)
            if any(call_of(statement.source, loop, name) for loop in loops):
                continue  # the program resets it where that is meant
            while paths:
                lines = [f"{path}.{name}()" for path in sorted(paths)]
                yield from _in_each_iteration(statement, lines, kinds.RESET_STATE)
                outer = {re.sub(r"(^|\.)\w+$|\[[^\]]*\]$", "", path) for path in paths}
                paths = outer - {""}


def clear_entries(failure: Failure) -> Iterator[Candidate]:
    """Insert ``losses.clear()`` after the running statement, for lists with freed graphs."""
    for variable, statement in failure.freed_variables:
        name, index, _ = variable.name.partition("[")
        if not index:
            continue
        loops = statement.source.loops_around(statement.node)
        if any(isinstance(loop, ast.For) and name in reads(loop.iter) for loop in loops):
            continue  # clearing the list would end the loop over it
        if variable.kind in ("list", "deque", "dict") or "." in name:
            names = [name, *_parallel_lists(failure, statement, name)]
            lines = [f"{container}.clear()" for container in names]
            edits = statement.source.insert(statement.node, after=lines)
            verb = "is" if len(names) == 1 else "are"
            question = f"{verb} {', '.join(names)} to begin empty in each iteration?"
            yield from edit(kinds.CLEAR, "; ".join(lines), edits, question)


def _parallel_lists(failure: Failure, statement: Statement, name: str) -> list[str]:
    """Return the other lists of the same owner that the function reading this list also reads."""
    # If only one were cleared, its new entries would be paired with old entries of another.
    source = statement.source
    scope = source.scope_of(statement.node)
    loop = next(source.loops_around(statement.node), scope)
    created = writes(*loop.body)  # in each iteration or call
    names = _filled(failure)
    owner, _, last = name.rpartition(".")
    return sorted(
        path
        for path in reads(*scope.body) - created - {name}
        if path.rpartition(".")[2] in names - {last} and path.rpartition(".")[0] == owner
    )


def compute_again(failure: Failure) -> Iterator[Candidate]:
    """Compute a cached value in each iteration: in the loop, in the method, without a guard."""
    for cached in failure.cached if failure.family != "unused_input" else ():
        yield from _in_the_loop(failure, cached)
        yield from _in_the_functions_that_read(failure, cached)
        yield from _without_guard(cached)


def _in_the_loop(failure: Failure, cached: Statement) -> Iterator[Candidate]:
    """Run the statement, its operands and what depends on it at the beginning of each iteration."""
    source = cached.source
    for statement, loop in failure.loops:
        if statement.source is not source:
            continue
        earlier, scope = source.before(loop), source.scope_of(loop)
        is_before = cached.node in earlier
        is_inside = any(parent in earlier for parent in source.around(cached.node, ast.stmt))
        is_global = source.scope_of(cached.node) is source.tree is not scope
        if not (is_before or is_inside or is_global):
            continue
        following = [node for node in source.after(cached.node) if node in earlier]
        moved = [*_operands(failure, cached), cached.node]
        for later in following:
            if isinstance(later, ast.Assign) and reads(later) & writes(*moved):
                moved.append(later)
        results = writes(*moved)
        lines = [source.code(member) for member in moved]
        head = loop.test if isinstance(loop, ast.While) else loop.iter
        names = results & reads(loop)
        if not names or any(map(DRAWS.search, lines)) or reads(head) & results:
            continue
        last = loop.end_lineno or loop.lineno
        read_after = reads(*(node for node in source.statements(scope) if node.lineno > last))
        if names & read_after & changes_in_place(loop):
            continue  # the loop fills it for what follows
        unmoved = [later for later in following if later not in moved]
        is_movable = not reads(*unmoved) & results and all(map(source.has_own_lines, moved))
        removal = source.remove(*moved) if is_before and is_movable else []
        for target in dict.fromkeys((loop, next(source.loops_around(statement.node)))):
            title = f"compute {', '.join(sorted(names))} inside the loop at line {target.lineno}"
            edits = [*source.first_in(target.body, lines), *removal]
            yield from edit(kinds.COMPUTE_AGAIN, title, edits)


def _operands(failure: Failure, cached: Statement) -> list[ast.stmt]:
    """Return the earlier statements that compute inputs with a graph for the cached statement."""
    variables = {variable.name for variable in failure.run.graph_variables}
    earlier = cached.source.before(cached.node)
    computing = [*statements_computing(earlier, reads(cached.node))]
    return [node for node in reversed(computing) if writes(node) & variables]


def _in_the_functions_that_read(failure: Failure, cached: Statement) -> Iterator[Candidate]:
    """Repeat the statement in the running functions, or the methods, that read its result."""
    source, definition = cached.source, cached.source.class_of(cached.node)
    lines = [source.code(node) for node in (*_operands(failure, cached), cached.node)]
    if not isinstance(cached.node, ast.Assign) or any(map(DRAWS.search, lines)):
        return
    names = writes(cached.node)
    functions = [source.scope_of(s.node) for s in failure.running if s.source is source]
    if definition is not None and all(name.startswith("self.") for name in names):
        functions = [*source.all(ast.FunctionDef, definition)]
    readers = [
        function
        for function in dict.fromkeys(functions)
        if isinstance(function, Function)
        and function is not source.scope_of(cached.node)
        and names & reads(*function.body)
    ]
    edits = [part for function in readers for part in source.first_in(function.body, lines)]
    read_elsewhere = {
        name.rpartition(".")[2]
        for file in failure.sources
        for part in file.all(ast.expr)
        if file.scope_of(part) not in readers
        for name in reads(part)
    }
    if readers and read_elsewhere.isdisjoint(name.rpartition(".")[2] for name in names):
        edits += source.remove(cached.node)
    title = f"compute {', '.join(sorted(names))} where it is used"
    yield from edit(kinds.COMPUTE_AGAIN, title, edits)


def _without_guard(cached: Statement) -> Iterator[Candidate]:
    """Remove ``if self.cache is None:`` around the statement, or ``@functools.cache``."""
    source = cached.source
    for guard in source.around(cached.node, ast.If):
        if not guard.orelse:
            title = f"without: if {source.code(guard.test)}"
            yield from edit(kinds.COMPUTE_AGAIN, title, source.unindent(guard))
            return
    for decorator in source.decorators_of(cached.node):
        if "cache" in source.code(decorator):
            title = f"without @{source.code(decorator)}"
            yield from edit(kinds.COMPUTE_AGAIN, title, source.remove_line(decorator))


def compute_in_lambda(failure: Failure) -> Iterator[Candidate]:
    """Compute in a ``lambda``, an optimizer's closure, what it reads from statements before it."""
    for source, node, _ in failure.running:
        earlier = [s for s in source.before(node) if isinstance(s, ast.Assign)]
        pairs = (pair for statement in earlier for pair in pairs_of(statement))
        values = {name: value for name, value in pairs if isinstance(value, ast.Call)}
        for closure in source.all(ast.Lambda, node):
            parts = [part for part in source.all(ast.Name, closure.body) if part.id in values]
            edits = [e for p in parts for e in source.replace(p, source.code(values[p.id]))]
            names = {part.id for part in parts} - reads(*source.after(node))
            unread = [statement for statement in earlier if writes(statement) <= names]
            title = f"{source.code_with(closure, edits)} at line {node.lineno}"
            yield from edit(kinds.COMPUTE_AGAIN, title, [*edits, *source.remove(*unread)])


def narrow_context(failure: Failure) -> Iterator[Candidate]:
    """Move a ``with`` from around the loop into it, so that its cache ends in each iteration."""
    for statement, loop in failure.loops:
        source, loops = statement.source, [loop]
        while isinstance(block := source.parent(loops[0]), ast.For) and block.body == [loops[0]]:
            loops = [block, *loops]
        if isinstance(block, ast.With) and block.body == [loops[0]]:
            head = source.code(block.items[0].context_expr)
            title = f"{head} inside the loop at line {loop.lineno}"
            yield from edit(kinds.COMPUTE_AGAIN, title, source.move_head(block, loops))


def detach_constants(failure: Failure) -> Iterator[Candidate]:
    """Detach what outlives an iteration where it is made or stored: ``a = a.detach()``."""
    names = failure.carried
    question = f"is the loss to use {', '.join(names)} as a constant?"
    for statement, loop in reversed([*failure.loops]):  # once, before the outermost loop
        source, types = statement.source, failure.variables(statement)
        local = [name for name in names if name in types and name not in writes(loop)]
        lines = [DETACHED[types[name]].format(name) for name in local]
        making = [node for node in source.before(loop) if writes(node) & {*local}]
        edits = source.insert(making[-1], after=lines) if making else source.insert(loop, lines)
        yield from edit(kinds.DETACH, f"detach {' and '.join(local)}", edits, question)
    is_untrained, origins = "never_trained" in failure.facts, failure.at("made_at")
    # A state that a loss trains through is no constant, unless it is updated in place: an average.
    if not (is_untrained or failure.cause in ("computed_once_outside_loop", "buffer_has_graph")):
        origins = [s for s in origins if isinstance(s.node, ast.Expr) and changes_in_place(s.node)]
    storing = [*(failure.at("stored_at") if origins else ()), *origins]
    edits = [part for source, node, _ in storing for part in _stored(source, node, names)]
    title = f"store without a graph, at line {' and '.join(str(s.line.line) for s in storing)}"
    yield from edit(kinds.DETACH, title, edits, None if is_untrained else question)


def _stored(source: Source, node: ast.stmt, names: list[str]) -> Iterator[Edit]:
    """Yield the edits by which a statement stores no graph under these names."""
    if changes_in_place(node) and source.has_own_lines(node):
        yield from source.indent_under("with torch.no_grad():", [node])
    for target, value in pairs_of(node) if isinstance(node, ast.Assign) else ():
        is_named = target.rpartition(".")[2] in {name.rpartition(".")[2] for name in names}
        if (is_named or value is getattr(node, "value", None)) and not changes_in_place(node):
            yield from source.call_method(_entry(value), "detach")


def store_without_graph(failure: Failure) -> Iterator[Candidate]:
    """Store values without their graph: ``total += loss.item()``, ``kept.append(z.detach())``."""
    terms: list[tuple[Source, list[ast.expr]]] = []
    began = failure.at("began_at")
    for source, node, _ in [*began, *failure.at("made_at"), *failure.running]:
        match node:
            case ast.AugAssign(op=ast.Add(), value=term):
                terms.append((source, [term]))
            case ast.Assign(value=ast.BinOp(left=left, right=right)):
                others = [side for side in (left, right) if ast.unparse(side) not in writes(node)]
                terms += [(source, others)] if len(others) == 1 else []
    growing = [s.source.scope_of(s.node) for s in began if failure.cause == "graph_grows"]
    names = {scope.name for scope in growing if isinstance(scope, Function)}
    stored = [call for statement in began for _, call in additions(statement.node)]
    for source in failure.sources:
        for container, call in additions(source.tree):
            is_stored = growing or container in failure.carried or call in stored
            if len(call.args) == 1 and is_stored:
                terms.append((source, [_entry(call.args[0])]))
        calls = [*source.calls(*names)]
        # The same argument of all calls, if a function updates several values.
        columns = zip(*(call.args for call in calls), strict=False)
        terms += [(source, [*column]) for column in columns if len(calls) > 1]
        terms += [(source, [argument]) for call in calls for argument in call.args]
    for method in ("item", "detach"):  # several elements are no number
        for source, together in terms:
            changes = [(term, source.call_method(term, method)) for term in together]
            places = [f"{source.code_with(t, edits)} at line {t.lineno}" for t, edits in changes]
            edits = [part for _, parts in changes for part in parts]
            yield from edit(kinds.NUMBER, " and ".join(places), edits)


def _entry(value: ast.expr) -> ast.expr:
    """Return the expression of each entry, if the value is a comprehension."""
    match value:
        case ast.DictComp(value=entry) | ast.ListComp(elt=entry):
            return entry
    return value
