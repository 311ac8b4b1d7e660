"""Repairs of values that last for several iterations: states, caches, lists, running sums."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from gradtrace.repair.code_names import (
    DRAWS,
    additions,
    assignments,
    carried_names,
    reads,
    value_of,
    writes,
)
from gradtrace.repair.edits import Changes, Function, method, removed
from gradtrace.repair.repairs import (
    CLEAR,
    COMPUTE_AGAIN,
    DETACH,
    DETACH_STATE,
    DETACH_STORED,
    NUMBER,
    RESET_STATE,
)
from gradtrace.repair.rule import Candidate, EditRule, Failure, Statement, edit

_DETACHED = {
    "tensor": "{0}.detach()",
    "tuple": "tuple(one.detach() for one in {0})",
    "list": "[one.detach() for one in {0}]",
    "deque": "type({0})((one.detach() for one in {0}), {0}.maxlen)",
    "dict": "{{key: one.detach() for key, one in {0}.items()}}",
    "nested": "[tuple(one.detach() for one in part) for part in {0}]",
}


def detach_carried_variables(failure: Failure) -> Iterator[Candidate]:
    """Detach all that a loop carries: ``h = h.detach()`` after backward or at the beginning."""
    for statement, loop in failure.loops:
        source = statement.source
        kinds = failure.run.graph_variables.get(statement.line, {})
        names = [name for name in carried_names(source, loop) if name in kinds]
        if not names:
            continue
        lines = [f"{name} = {_DETACHED[kinds[name]].format(name)}" for name in names]
        title = "; ".join(lines)
        member = source.line_of(statement.node, loop.body)
        is_direct = isinstance(member, cst.SimpleStatementLine)
        changes = source.next_to(statement.node if is_direct else member, after=lines)
        yield from edit(DETACH_STATE, title, {source: changes})
        # The variable may be assigned only after backward.
        changes = source.first_in(loop.body, lines)
        title = f"{title} at the beginning of each iteration"
        yield from edit(DETACH_STATE, title, {source: changes})


class _Attribute(NamedTuple):
    """An attribute with freed nodes: its owner's path in a frame, its name, the type of value."""

    owner: str
    name: str
    kind: str
    statement: Statement

    @property
    def path(self) -> str:
        return f"{self.owner}.{self.name}"


def _attributes(failure: Failure) -> list[_Attribute]:
    """Return the attributes whose graphs contain freed nodes, as the running frames name them."""
    attributes: dict[tuple[str, Statement], _Attribute] = {}
    for variable in failure.run.freed_variables:
        path = re.sub(r"\.(\d+)", r"[\1]", variable.name)
        match = re.fullmatch(r"(.+)\.([^\W\d]\w*)(\[.*\])?", path)
        statement = next((s for s in failure.running if s.line == variable.frame), None)
        if match and statement is not None:
            owner, name, index = match.groups()
            kind = variable.kind if variable.kind in _DETACHED else "list"
            kind = "tensor" if index is None else kind
            attribute = _Attribute(owner, name, kind, statement)
            attributes.setdefault((attribute.path, statement), attribute)
    return list(attributes.values())


def detach_attributes(failure: Failure) -> Iterator[Candidate]:
    """Insert ``net.mem = net.mem.detach()`` after the statement that runs backward."""
    lines: dict[Statement, list[str]] = {}
    for attribute in _attributes(failure):
        line = f"{attribute.path} = {_DETACHED[attribute.kind].format(attribute.path)}"
        lines.setdefault(attribute.statement, []).append(line)
    for statement, of_statement in lines.items():
        changes = statement.source.next_to(statement.node, after=of_statement)
        yield from edit(DETACH_STATE, "; ".join(of_statement), {statement.source: changes})


def reset_attributes(failure: Failure) -> Iterator[Candidate]:
    """Call a method that assigns the attribute, ``net.reset()``, when an iteration begins."""
    for source in failure.sources:
        for function in source.all(cst.FunctionDef):
            if source.class_of(function) is None or len(function.params.params) != 1:
                continue
            if function.name.value in ("__init__", "forward"):
                continue
            targets = {
                target.target.attr.value
                for assign in source.all(cst.Assign, function)
                for target in assign.targets
                if isinstance(target.target, cst.Attribute)
            }
            calls: dict[str, Statement] = {}
            for attribute in _attributes(failure):
                owner = attribute.owner if attribute.name in targets else ""
                while owner:  # the method may be that of an object further out
                    calls[f"{owner}.{function.name.value}()"] = attribute.statement
                    owner = re.sub(r"(^|\.)\w+$|\[[^\]]*\]$", "", owner)
            for code, statement in sorted(calls.items()):
                loops = statement.source.around(statement.node, cst.For, cst.While)
                loop = next(loops, None)
                if loop is not None:
                    changes = statement.source.first_in(loop.body, [code])
                    title = f"{code} at the beginning of each iteration"
                    yield from edit(RESET_STATE, title, {statement.source: changes})


def clear_or_detach_entries(failure: Failure) -> Iterator[Candidate]:
    """Insert ``losses.clear()`` after backward, or detach the entries that are added."""
    for variable in failure.run.freed_variables:
        statement = next((s for s in failure.running if s.line == variable.frame), None)
        name = variable.name.partition("[")[0]
        if "[" not in variable.name or statement is None:
            continue
        if variable.kind in ("list", "deque", "dict") or "." in name:
            names = [name, *_parallel_lists(failure, statement, name)]
            lines = [f"{container}.clear()" for container in names]
            changes = statement.source.next_to(statement.node, after=lines)
            verb = "is" if len(names) == 1 else "are"
            question = f"{verb} {', '.join(names)} to begin empty in each iteration?"
            yield from edit(CLEAR, "; ".join(lines), {statement.source: changes}, question)
        last = name.rpartition(".")[2]
        for source in failure.sources:
            entries: Changes = {
                call.args[0].value: method("detach")
                for container, call in additions(source)
                if container.rpartition(".")[2] == last and len(call.args) == 1
            }
            for target, value in assignments(source):
                if re.fullmatch(rf"(.*\.)?{re.escape(last)}\[.*\]", target):
                    entries[value] = method("detach")
            title = f"detach what is put into {last}"
            yield from edit(DETACH_STORED, title, {source: entries})


def _parallel_lists(failure: Failure, statement: Statement, name: str) -> list[str]:
    """Return the other lists of the same owner that the function which reads this one reads.

    If only one of them were cleared, its new entries would be paired with old entries of another.
    """
    source = statement.source
    scope = source.scope_of(statement.node)
    code = source.code(scope.body if isinstance(scope, Function) else scope)
    loop = next(source.around(statement.node, cst.For, cst.While), None)
    created = writes(code if loop is None else source.code(loop))  # in each iteration or call
    filled = {list_ for source in failure.sources for list_, _ in additions(source)}
    names = {list_.rpartition(".")[2] for list_ in filled}
    owner, _, last = name.rpartition(".")
    return sorted(
        path
        for path in reads(code) - created - {name}
        if path.rpartition(".")[2] in names - {last} and path.rpartition(".")[0] == owner
    )


def compute_again(failure: Failure) -> Iterator[Candidate]:
    """Compute a cached value in each iteration: in the loop, in the method, without a guard."""
    for cached in failure.at("made_at"):
        yield from _in_the_loop(failure, cached)
        yield from _in_the_running_function(failure, cached)
        yield from _in_each_method(cached)
        yield from _without_guard(cached)


def _in_the_loop(failure: Failure, cached: Statement) -> Iterator[Candidate]:
    """Move the statement, and those that depend on it, to the beginning of the loop."""
    source = cached.source
    for statement, loop in failure.loops:
        if statement.source is not source or source.suite_of(loop) is not source.suite_of(
            cached.node
        ):
            continue
        statements = source.before(loop)
        if cached.node not in statements:
            continue
        moved: list[cst.CSTNode] = [cached.node]
        results = writes(source.code(cached.node))
        following = statements[statements.index(cached.node) + 1 :]
        for later in following:
            code = source.code(later)
            if isinstance(later, cst.Assign) and reads(code) & results:
                results |= writes(code)
                moved.append(later)
        lines = [source.code(member).rstrip("; ") for member in moved]
        head = loop.iter if isinstance(loop, cst.For) else loop.test
        names = results & reads(source.code(loop))
        if not names or any(map(DRAWS.search, lines)) or reads(source.code(head)) & results:
            continue
        unmoved = [later for later in following if later not in moved]
        is_needed_before = any(reads(source.code(later)) & results for later in unmoved)
        shares_line = any(source.anchor(member) is member for member in moved)
        changes: Changes = {}
        if not is_needed_before and not shares_line:
            changes = {source.anchor(member): removed for member in moved}
        changes.update(source.first_in(loop.body, lines))
        title = f"compute {', '.join(sorted(names))} inside the loop"
        yield from edit(COMPUTE_AGAIN, title, {source: changes})


def _in_the_running_function(failure: Failure, cached: Statement) -> Iterator[Candidate]:
    """Repeat the statement in the running function that reads its result, such as a closure."""
    source, code = cached.source, cached.source.code(cached.node).rstrip("; ")
    if not isinstance(cached.node, cst.Assign) or DRAWS.search(code):
        return
    names = {name for name in writes(code) if name.isidentifier()}
    for statement in failure.running:
        function = source.function_of(statement.node) if statement.source is source else None
        if function is None or function is source.function_of(cached.node):
            continue
        if names & reads(source.code(function.body)):
            changes = source.first_in(function.body, [code])
            title = f"{code} at the beginning of {function.name.value}()"
            yield from edit(COMPUTE_AGAIN, title, {source: changes})


def _in_each_method(cached: Statement) -> Iterator[Candidate]:
    """Repeat the assignment of an attribute at the beginning of each method that reads it."""
    source, node = cached.source, cached.node
    definition = source.class_of(node)
    if not isinstance(node, cst.Assign) or definition is None:
        return
    names = [name for name in writes(source.code(node)) if name.startswith("self.")]
    if len(names) != 1:
        return
    changes: Changes = {}
    for function in source.all(cst.FunctionDef, definition):
        is_reader = names[0] in reads(source.code(function.body))
        if is_reader and function is not source.function_of(node):
            changes.update(source.first_in(function.body, [source.code(node).rstrip("; ")]))
    yield from edit(COMPUTE_AGAIN, f"compute {names[0]} where it is used", {source: changes})


def _without_guard(cached: Statement) -> Iterator[Candidate]:
    """Remove ``if self.cache is None:`` around the statement, or ``@functools.cache``."""
    source = cached.source
    for guard in source.around(cached.node, cst.If):
        if guard.orelse is None and isinstance(guard.body, cst.IndentedBlock):
            title = f"without: if {source.code(guard.test)}"
            yield from edit(COMPUTE_AGAIN, title, {source: {guard: unindented}})
            return
    function = source.function_of(cached.node)
    for decorator in function.decorators if function is not None else ():
        if "cache" in source.code(decorator):
            title = f"without {source.code(decorator).strip()}"
            yield from edit(COMPUTE_AGAIN, title, {source: {decorator: removed}})


def unindented(updated: cst.CSTNode) -> cst.CSTNode | cst.FlattenSentinel[cst.CSTNode]:
    """Replace a compound statement by the statements of its block."""
    assert isinstance(updated, cst.If | cst.With)
    if isinstance(updated.body, cst.IndentedBlock):
        return cst.FlattenSentinel(updated.body.body)
    return updated


def detach_at_assignment(failure: Failure) -> Iterator[Candidate]:
    """Detach an assigned value, an argument in it, or all variables that the advice names."""
    for cached in failure.at("made_at"):
        source, value = cached.source, value_of(cached.node)
        if value is None:
            continue
        title = f"detach what line {cached.line.line} makes"
        yield from edit(DETACH, title, {source: {value: method("detach")}})
        for argument in value.args if isinstance(value, cst.Call) else ():
            if isinstance(argument.value, cst.BaseNumber | cst.BaseString | cst.BaseComp):
                continue
            title = f"detach {source.code(argument.value)}"
            yield from edit(DETACH, title, {source: {argument.value: method("detach")}})
    carried = [name for name in failure.carried if name]
    for source in failure.sources if carried else ():
        values = {name: value for name, value in assignments(source) if name in carried}
        if len(values) == len(carried):
            detached: Changes = {value: method("detach") for value in values.values()}
            yield from edit(DETACH, f"detach {' and '.join(carried)}", {source: detached})


def sum_numbers(failure: Failure) -> Iterator[Candidate]:
    """Add numbers: ``total += loss.item()``, ``losses.append(loss.item())``."""
    for statement in [*failure.at("began_at"), *failure.at("made_at"), *failure.running]:
        source, node = statement.source, statement.node
        value = value_of(node)
        if isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.AddAssign):
            title = f"{source.code(node.target)} += {source.code(node.value)}.item()"
            yield from edit(NUMBER, title, {source: {node.value: method("item")}})
        elif isinstance(node, cst.Assign) and isinstance(value, cst.BinaryOperation):
            targets = writes(source.code(node))
            terms = [s for s in (value.left, value.right) if source.code(s) not in targets]
            if len(terms) == 1:
                title = f"add {source.code(terms[0])}.item()"
                yield from edit(NUMBER, title, {source: {terms[0]: method("item")}})
    for source in failure.sources:
        for container, call in additions(source):
            if container in failure.carried and len(call.args) == 1:
                value = call.args[0].value
                title = f"{container}.append({source.code(value)}.item())"
                yield from edit(NUMBER, title, {source: {value: method("item")}})


RULES: tuple[EditRule, ...] = (
    detach_carried_variables,
    detach_attributes,
    reset_attributes,
    clear_or_detach_entries,
    compute_again,
    detach_at_assignment,
    sum_numbers,
)
