"""Repairs of what goes from one iteration to the next: states, caches, lists, things made once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from gradtrace.repair.code_names import (
    DRAWS,
    assigned,
    carried_names,
    in_function,
    reads,
    value_of,
    writes,
)
from gradtrace.repair.edits import (
    Change,
    Changed,
    Changes,
    Function,
    Source,
    method,
    method_called,
    removed,
)
from gradtrace.repair.repairs import (
    CLEAR,
    COMPUTE_AGAIN,
    DETACH,
    DETACH_STATE,
    DETACH_STORED,
    NUMBER,
    RESET_STATE,
    Repair,
)
from gradtrace.repair.rule import (
    Candidate,
    Rule,
    Scene,
    Statement,
    loops_of,
    one_file,
    several_files,
)

_DETACHED = {
    "tensor": "{0}.detach()",
    "tuple": "tuple(one.detach() for one in {0})",
    "list": "[one.detach() for one in {0}]",
    "deque": "type({0})((one.detach() for one in {0}), {0}.maxlen)",
    "dict": "{{key: one.detach() for key, one in {0}.items()}}",
    "nested": "[tuple(one.detach() for one in part) for part in {0}]",
}


def detach_carried_names(scene: Scene) -> Iterator[Candidate]:
    """``h = h.detach()`` for all that a loop carries: behind backward, or at the beginning."""
    for one, loop in loops_of(scene):
        kinds = scene.run.variables.get(one.place, {})
        names = [name for name in carried_names(one.source, loop) if name in kinds]
        if not names:
            continue
        lines = [f"{name} = {_DETACHED[kinds[name]].format(name)}" for name in names]
        here = one.source.line_of(one.node, loop.body)  # around it, where it is further in
        inside = isinstance(here, cst.SimpleStatementLine)
        changes = one.source.next_to(one.node if inside else here, after=lines)
        title = "; ".join(lines)
        yield from one_file(DETACH_STATE, title, one.source, changes)
        # Where what backward ran over is handed on only behind it.
        changes = one.source.first_in(loop.body, lines)
        title = f"{title} at the beginning of each iteration"
        yield from one_file(DETACH_STATE, title, one.source, changes)


def begin_anew(scene: Scene) -> Iterator[Candidate]:
    """What the state was made of before the loop is computed at each iteration's beginning."""
    for one, loop in loops_of(scene):
        source = one.source
        carried = set(carried_names(source, loop))
        statements = source.flat(source.suite_of(loop))
        lines: list[str] = []
        for statement in reversed(statements[: statements.index(loop)]):
            code = source.code(statement).rstrip("; ")
            if not isinstance(statement, cst.Assign) or not writes(code) & carried:
                continue
            if isinstance(statement.value, cst.Call | cst.BinaryOperation) and not _is_plain(
                statement.value
            ):
                lines.insert(0, code)
                carried |= reads(code)
                changes = source.first_in(loop.body, lines)
                title = f"{'; '.join(lines)} at the beginning of each iteration"
                names = ", ".join(sorted(writes(code)))
                question = f"is {names} to begin anew in each iteration?"
                yield from one_file(RESET_STATE, title, source, changes, question)


def detach_what_it_was_made_of(scene: Scene) -> Iterator[Candidate]:
    """``T.total = T.total.detach()`` behind backward, of what was made of its own old value."""
    for made in scene.at("made_at"):
        code = made.source.code(made.node)
        for name in sorted(name for name in writes(code) & reads(code) if "." in name):
            for one in [*scene.running, *scene.at("began_at")]:
                line = f"{name} = {name}.detach()"
                changes = one.source.next_to(one.node, after=[line])
                title = f"{line} behind line {one.place.line}"
                yield from one_file(DETACH_STATE, title, one.source, changes)


class _Attribute(NamedTuple):
    """An attribute that carries a graph: the path to its owner in a frame, its name, its kind."""

    owner: str
    name: str
    kind: str
    statement: Statement


def _attributes(scene: Scene) -> list[_Attribute]:
    """The attributes that lead to freed nodes, as they are called in the frames that ran."""
    found: dict[tuple[str, Statement], _Attribute] = {}
    for carrier in scene.run.carriers:
        path = re.sub(r"\.(\d+)", r"[\1]", carrier.name)
        match = re.fullmatch(r"(.+)\.([^\W\d]\w*)(\[.*\])?", path)
        statement = next((s for s in scene.running if s.place == carrier.frame), None)
        if match and statement is not None:
            owner, name, index = match.groups()
            kind = carrier.kind if carrier.kind in _DETACHED else "list"
            one = _Attribute(owner, name, "tensor" if index is None else kind, statement)
            found.setdefault((f"{owner}.{name}", statement), one)
    return list(found.values())


def detach_attributes(scene: Scene) -> Iterator[Candidate]:
    """``net.mem = net.mem.detach()`` behind the statement that runs backward."""
    attributes = _attributes(scene)
    for place in dict.fromkeys(one.statement for one in attributes):
        lines = []
        for one in attributes:
            if one.statement == place:
                path = f"{one.owner}.{one.name}"
                lines.append(f"{path} = {_DETACHED[one.kind].format(path)}")
        changes = place.source.next_to(place.node, after=lines)
        yield from one_file(DETACH_STATE, "; ".join(lines), place.source, changes)


def detach_what_attributes_store(scene: Scene) -> Iterator[Candidate]:
    """``self.h = h.detach()`` where it is stored, or where it is read."""
    kinds = {one.name: one.kind for one in _attributes(scene)}
    stores: dict[Source, Changes] = {}
    loads: dict[Source, Changes] = {}
    names = " and ".join(f".{name}" for name in kinds)
    for source in scene.sources:
        stored: Changes = {}
        loaded: Changes = {}
        for node in source.all(cst.Attribute):
            name = node.attr.value
            if name not in kinds or not isinstance(node.value, cst.Name):
                continue
            statement = next((p for p in source.parents(node) if isinstance(p, cst.Assign)), None)
            target = statement is not None and any(t.target is node for t in statement.targets)
            if target and statement is not None:
                if not _is_plain(statement.value):
                    stored[statement.value] = _detached(kinds[name])
            elif not in_function(source, node, "__init__") and not _is_test(source, node):
                loaded[node] = _detached(kinds[name])
        if stored:
            stores[source] = stored
        if loaded:
            loads[source] = loaded
    yield from several_files(DETACH_STORED, f"detach what {names} stores", stores)
    yield from several_files(DETACH_STORED, f"detach {names} where it is read", loads)


def _detached(kind: str) -> Change:
    def change(updated: cst.CSTNode) -> Changed:
        assert isinstance(updated, cst.BaseExpression)
        if isinstance(updated, cst.Tuple | cst.List):
            parts = [
                part.with_changes(value=method("detach")(part.value)) for part in updated.elements
            ]
            return updated.with_changes(elements=parts)
        if kind == "tensor":
            return method("detach")(updated)
        code = cst.Module([]).code_for_node(updated)
        return cst.parse_expression(_DETACHED[kind].format(code))

    return change


def _is_plain(value: cst.BaseExpression) -> bool:
    """Whether it can have no graph: None, numbers, ``torch.zeros(…)``."""
    plain = isinstance(value, cst.BaseNumber | cst.SimpleString) or (
        isinstance(value, cst.Name) and value.value in ("None", "True", "False")
    )
    return plain or method_called(value) in ("zeros", "ones", "zeros_like", "new_zeros", "empty")


def _is_test(source: Source, node: cst.CSTNode) -> bool:
    """Whether it stands in a comparison or is called or written into."""
    parent = next(source.parents(node))
    if isinstance(parent, cst.Attribute | cst.Subscript):
        return True
    return isinstance(parent, cst.Comparison | cst.ComparisonTarget | cst.Call | cst.AssignTarget)


def reset_attributes(scene: Scene) -> Iterator[Candidate]:
    """``net.reset()`` at the beginning of each iteration: a method that gives it a new value."""
    attributes = _attributes(scene)
    for source in scene.sources:
        for function in source.all(cst.FunctionDef):
            wanted = [one for one in attributes if _resets(source, function, one.name)]
            kind = source.class_of(function)
            if not wanted or kind is None or len(function.params.params) != 1:
                continue
            calls = set()
            for one in wanted:
                owner = one.owner
                while owner:  # the method may be of an object further out
                    calls.add((owner, one.statement))
                    owner = re.sub(r"(^|\.)\w+$|\[[^\]]*\]$", "", owner)
            for owner, statement in sorted(calls, key=lambda call: call[0]):
                code = f"{owner}.{function.name.value}()"
                yield from _at_each_iteration(RESET_STATE, statement, [code])


def _resets(source: Source, function: cst.FunctionDef, name: str) -> bool:
    if function.name.value in ("__init__", "forward"):
        return False
    return any(
        isinstance(target.target, cst.Attribute) and target.target.attr.value == name
        for assign in source.all(cst.Assign, function)
        for target in assign.targets
    )


def _at_each_iteration(
    repair: Repair, statement: Statement, lines: list[str]
) -> Iterator[Candidate]:
    """Lines at the beginning of the innermost loop around, if there is one in this function."""
    source = statement.source
    for loop in source.around(statement.node, cst.For, cst.While):
        changes = source.first_in(loop.body, lines)
        title = f"{'; '.join(lines)} at the beginning of each iteration"
        yield from one_file(repair, title, source, changes)
        return


def clear_lists(scene: Scene) -> Iterator[Candidate]:
    """``losses.clear()`` behind backward; ``losses.append(x.detach())`` where they are filled."""
    for carrier in scene.run.carriers:
        statement = next((s for s in scene.running if s.place == carrier.frame), None)
        name = carrier.name.partition("[")[0]
        if "[" not in carrier.name or statement is None:
            continue
        if carrier.kind in ("list", "deque", "dict") or "." in name:
            names = [name, *_consumed_together(scene, statement, name)]
            lines = [f"{one}.clear()" for one in names]
            changes = statement.source.next_to(statement.node, after=lines)
            verb = "is" if len(names) == 1 else "are"
            question = f"{verb} {', '.join(names)} to begin empty in each iteration?"
            yield from one_file(CLEAR, "; ".join(lines), statement.source, changes, question)
        last = name.rpartition(".")[2]
        for source in scene.sources:
            stored: Changes = {}
            for call in source.all(cst.Call):
                added = method_called(call) in ("append", "appendleft", "add")
                if added and isinstance(call.func, cst.Attribute) and len(call.args) == 1:
                    owner = source.code(call.func.value).rpartition(".")[2]
                    if owner == last:
                        stored[call.args[0].value] = _detached("tensor")
            for target, value in assigned(source):
                if re.fullmatch(rf"(.*\.)?{re.escape(last)}\[.*\]", target):
                    stored[value] = _detached("tensor")
            title = f"detach what is put into {last}"
            yield from one_file(DETACH_STORED, title, source, stored)


def _consumed_together(scene: Scene, statement: Statement, name: str) -> list[str]:
    """The lists that are filled elsewhere and that the function which reads this one reads, too.

    They are parallel: cleared alone, one would pair its new entries with the other's old ones.
    """
    source = statement.source
    function: cst.CSTNode = source.function_of(statement.node) or source.module
    code = source.code(function.body if isinstance(function, Function) else function)
    nearby = reads(code) - writes(code)
    filled = {
        source.code(call.func.value).rpartition(".")[2]
        for source in scene.sources
        for call in source.all(cst.Call)
        if method_called(call) == "append" and isinstance(call.func, cst.Attribute)
    }
    owner, _, last = name.rpartition(".")
    return sorted(
        other
        for other in nearby - {name}
        if other.rpartition(".")[2] in filled - {last} and other.rpartition(".")[0] == owner
    )


def compute_again(scene: Scene) -> Iterator[Candidate]:
    """What was made once is made in each iteration: in the loop, in the method, without a guard."""
    for made in scene.at("made_at"):
        yield from _into_the_loop(scene, made)
        yield from _into_the_function(scene, made)
        yield from _where_it_is_used(made)
        yield from _without_guard(made)


def _into_the_loop(scene: Scene, made: Statement) -> Iterator[Candidate]:
    """The statement, and those that follow from it, at the beginning of the loop."""
    source = made.source
    for one, loop in loops_of(scene):
        if one.source is not source or made.node in source.all(cst.BaseSmallStatement, loop):  # type: ignore[type-abstract]
            continue
        suite = source.suite_of(made.node)
        if source.suite_of(loop) is not suite or not writes(source.code(made.node)):
            continue
        statements = source.flat(suite)
        between = statements[statements.index(made.node) : statements.index(loop)]
        changed = set(writes(source.code(made.node)))
        used = reads(source.code(loop))
        moved = [made.node]
        for statement in between[1:]:
            code = source.code(statement)
            if isinstance(statement, cst.Assign) and reads(code) & changed:
                changed |= writes(code)
                moved.append(statement)
        if not changed & used:
            continue
        lines = [source.code(statement).rstrip("; ") for statement in moved]
        if any(map(DRAWS.search, lines)):
            continue
        rest = [s for s in between if s not in moved]
        early = any(reads(source.code(s)) & changed for s in rest) or _shares_line(source, moved)
        changes: Changes = {} if early else {source.anchor(s): removed for s in moved}
        if {made.node} <= set(moved) and reads(_head(source, loop)) & changed:
            continue  # the loop goes through it
        changes.update(source.first_in(loop.body, lines))
        title = f"compute {', '.join(sorted(changed & used))} inside the loop"
        yield from one_file(COMPUTE_AGAIN, title, source, changes)


def _head(source: Source, loop: cst.CSTNode) -> str:
    part = loop.iter if isinstance(loop, cst.For) else loop.test  # type: ignore[attr-defined]
    return source.code(part)


def _shares_line(source: Source, statements: list) -> bool:  # type: ignore[type-arg]
    return any(source.anchor(one) is one for one in statements)


def _into_the_function(scene: Scene, made: Statement) -> Iterator[Candidate]:
    """The statement at the beginning of the running function that reads what it made: a closure."""
    source, code = made.source, made.source.code(made.node).rstrip("; ")
    if not isinstance(made.node, cst.Assign) or DRAWS.search(code):
        return
    names = {name for name in writes(code) if name.isidentifier()}
    for one in scene.running:
        function = source.function_of(one.node) if one.source is source else None
        if function is None or function is source.function_of(made.node):
            continue
        if names & reads(source.code(function.body)):
            changes = source.first_in(function.body, [code])
            title = f"{code} at the beginning of {function.name.value}()"
            yield from one_file(COMPUTE_AGAIN, title, source, changes)


def _where_it_is_used(made: Statement) -> Iterator[Candidate]:
    """``self.beta = self.log_beta.exp()`` at the beginning of each method that reads it."""
    source, node = made.source, made.node
    inside, kind = source.function_of(node), source.class_of(node)
    if not isinstance(node, cst.Assign) or inside is None or kind is None:
        return
    names = {name for name in writes(source.code(node)) if name.startswith("self.")}
    if len(names) != 1:
        return
    (name,) = names
    changes: Changes = {}
    for function in source.all(cst.FunctionDef, kind):
        if function is not inside and name in reads(source.code(function.body)):
            changes.update(source.first_in(function.body, [source.code(node).rstrip("; ")]))
    title = f"compute {name} where it is used"
    yield from one_file(COMPUTE_AGAIN, title, source, changes)


def _without_guard(made: Statement) -> Iterator[Candidate]:
    """``if self.cache is None:`` goes, and what it guards stays."""
    source = made.source
    for guard in source.around(made.node, cst.If):
        if guard.orelse is not None or not isinstance(guard.body, cst.IndentedBlock):
            continue

        def opened(updated: cst.CSTNode) -> Changed:
            assert isinstance(updated, cst.If)
            return cst.FlattenSentinel(updated.body.body)

        test = source.code(guard.test)
        yield from one_file(COMPUTE_AGAIN, f"without: if {test}", source, {guard: opened})
        return
    function = source.function_of(made.node)
    for decorator in function.decorators if function is not None else ():
        if "cache" in source.code(decorator):
            title = f"without {source.code(decorator).strip()}"
            yield from one_file(COMPUTE_AGAIN, title, source, {decorator: removed})


def detach_where_it_is_made(scene: Scene) -> Iterator[Candidate]:
    """``x = (…).detach()``; or of what is handed on there; or leaves that need no gradient."""
    for made in scene.at("made_at"):
        source, value = made.source, value_of(made.node)
        if value is None:
            continue
        title = f"detach what line {made.place.line} makes"
        yield from one_file(DETACH, title, source, {value: _detached("tensor")})
        if isinstance(value, cst.Call):
            for argument in value.args:
                if isinstance(argument.value, cst.BaseNumber | cst.BaseString | cst.BaseComp):
                    continue
                changes: Changes = {argument.value: method("detach")}
                title = f"detach {source.code(argument.value)}"
                yield from one_file(DETACH, title, source, changes)


def numbers_in_sums(scene: Scene) -> Iterator[Candidate]:
    """``total += loss.item()``, ``losses.append(loss.item())``."""
    for one in [*scene.at("began_at"), *scene.at("made_at"), *scene.running]:
        source, node = one.source, one.node
        value = value_of(node)
        if isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.AddAssign):
            assert value is not None
            title = f"{source.code(node.target)} += {source.code(value)}.item()"
            yield from one_file(NUMBER, title, source, {value: method("item")})
        elif isinstance(node, cst.Assign) and isinstance(value, cst.BinaryOperation):
            own = writes(source.code(node))
            sides = [s for s in (value.left, value.right) if source.code(s) not in own]
            if len(sides) == 1:
                title = f"add {source.code(sides[0])}.item()"
                yield from one_file(NUMBER, title, source, {sides[0]: method("item")})
    carried = scene.carried
    for source in scene.sources:
        for call in source.all(cst.Call):
            if method_called(call) == "append" and isinstance(call.func, cst.Attribute):
                owner = source.code(call.func.value)
                if owner in carried and len(call.args) == 1:
                    value = call.args[0].value
                    title = f"{owner}.append({source.code(value)}.item())"
                    yield from one_file(NUMBER, title, source, {value: method("item")})


RULES: tuple[Rule, ...] = (
    detach_carried_names,
    begin_anew,
    detach_what_it_was_made_of,
    detach_attributes,
    detach_what_attributes_store,
    reset_attributes,
    clear_lists,
    compute_again,
    detach_where_it_is_made,
    numbers_in_sums,
)
