"""Repairs of several losses and several steps: which backward, on what graph, before which step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import libcst as cst

from gradtrace.repair.code_names import (
    DRAWS,
    accumulated,
    assigned,
    carried_names,
    changes_in_place,
    named_like,
    reads,
    writes,
)
from gradtrace.repair.edits import (
    Changed,
    Changes,
    Loop,
    Small,
    Source,
    keyword,
    method,
    method_called,
    removed,
    to,
    with_keyword,
)
from gradtrace.repair.repairs import (
    ADD_LOSSES,
    ADD_ROUNDS,
    BEGIN_SUM,
    DETACH_SHARED,
    FORWARD_AGAIN,
    OWN_INPUTS,
    RETAIN_GRAPH,
    STEP_LATER,
)
from gradtrace.repair.rule import Candidate, Rule, Scene, loops_of, one_file

_RUNS = ("backward", "grad", "step", "zero_grad", "manual_backward")


def call_of(source: Source, statement: cst.CSTNode, *names: str) -> cst.Call | None:
    """The call of a method of one of these names in a statement."""
    calls = source.all(cst.Call, statement)
    return next((call for call in calls if method_called(call) in names), None)


def forward_again(scene: Scene) -> Iterator[Candidate]:
    """What the loss is made of is computed anew, just before the statement that failed.

    The statements that it follows from, from each of them on, with what they change in place on the
    way; not those that draw random numbers, or the next batch.
    """
    for one in scene.running:
        source = one.source
        statements = source.flat(source.suite_of(one.node))
        if one.node not in statements:
            continue
        wanted = reads(source.code(one.node))
        lines: list[str] = []
        sums: set[str] = set()
        for statement in reversed(statements[: statements.index(one.node)]):
            code = source.code(statement).rstrip("; ")
            if call_of(source, statement, *_RUNS):
                if sums & reads(code):
                    break  # what is added up beyond this is another sum: it would count twice
                continue
            sums |= accumulated(source, statement) & wanted
            if changes_in_place(source, statement) & wanted:
                lines = [code, *lines]
                wanted |= reads(code)
                continue
            if not isinstance(statement, cst.Assign):
                continue
            needed = [code for code in _assigned_apart(source, statement) if writes(code) & wanted]
            if needed and not any(map(DRAWS.search, needed)):
                wanted |= {name for code in needed for name in reads(code)}
                lines = [*needed, *lines]
                if sums - {name for code in lines for name in writes(code)}:
                    continue  # not from its beginning
                title = f"again, before line {one.place.line}: {'; '.join(lines)}"
                changes = source.next_to(one.node, before=lines)
                yield from one_file(FORWARD_AGAIN, title, source, changes)
        yield from _expanded(one.source, one.node, statements)


def begin_sum_again(scene: Scene) -> Iterator[Candidate]:
    """``loss = 0`` again, before the statements that go on adding to the last pass's loss."""
    for one in scene.running:
        source = one.source
        statements = source.flat(source.suite_of(one.node))
        if one.node not in statements:
            continue
        before = statements[: statements.index(one.node)]
        runs = [i for i, s in enumerate(before) if call_of(source, s, "backward")]
        for name in sorted(reads(source.code(one.node))):
            begins = [
                source.code(s).rstrip("; ")
                for s in before
                if isinstance(s, cst.Assign) and writes(source.code(s)) == {name}
            ]
            adds = (s for s in before[runs[-1] if runs else 0 :] if name in accumulated(source, s))
            first = next(adds, None)
            if runs and begins and first is not None:
                title = f"{begins[-1]}, before line {source.lines(first)[0]}"
                changes = source.next_to(first, before=[begins[-1]])
                yield from one_file(BEGIN_SUM, title, source, changes)


def _assigned_apart(source: Source, statement: cst.Assign) -> list[str]:
    """``a, b = f(), g()`` as ``a = f()`` and ``b = g()``, where that is the same."""
    code = source.code(statement).rstrip("; ")
    target, value = statement.targets[0].target, statement.value
    if not (isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple)):
        return [code]
    if len(target.elements) != len(value.elements) or writes(code) & reads(source.code(value)):
        return [code]
    pairs = zip(target.elements, value.elements, strict=True)
    return [f"{source.code(t.value)} = {source.code(v.value)}" for t, v in pairs]


def _expanded(source: Source, node: Small, statements: list[cst.CSTNode]) -> Iterator[Candidate]:
    """``crit(output, y)`` becomes ``crit(model(x), y)``: the name by what made it."""
    values = {}
    for statement in statements[: statements.index(node)]:
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            target = statement.targets[0].target
            if isinstance(target, cst.Name) and isinstance(statement.value, cst.Call):
                values[target.value] = statement.value
    for name in source.all(cst.Name, node):
        value = values.get(name.value)
        if value is not None and not (
            call_of(source, value, *_RUNS) or DRAWS.search(source.code(value))
        ):
            parent = next(source.parents(name))
            if isinstance(parent, cst.Arg | cst.BinaryOperation | cst.UnaryOperation):
                code = source.code(value)
                title = f"{code} in place of {name.value}"
                yield from one_file(FORWARD_AGAIN, title, source, {name: to(code)})


def add_losses(scene: Scene) -> Iterator[Candidate]:
    """One backward over the sum, in place of two one after the other, or of one in each round."""
    if scene.family != "freed":
        return
    for source, block in _blocks(scene):
        yield from _added(source, block)
    for one, loop in loops_of(scene):
        state = scene.run.variables.get(one.place, {})
        yield from _added_in_loop(one.source, one.node, loop, state)
        break


class _Move(NamedTuple):
    """A backward, a step or a ``zero_grad`` in a block."""

    what: str
    node: Small
    of: str  # the loss or the optimizer, as the program writes it
    call: cst.Call


def _blocks(scene: Scene) -> Iterator[tuple[Source, list[_Move]]]:
    """The blocks that run more than one backward, with all that they do about gradients."""
    seen = set()
    for one in scene.involved:
        suite = one.source.suite_of(one.node)
        if suite in seen:
            continue
        seen.add(suite)
        moves = []
        for node in one.source.flat(suite):
            call = call_of(one.source, node, "backward", "step", "zero_grad")
            if not isinstance(node, cst.Expr) or call is None or node.value is not call:
                continue
            if isinstance(call.func, cst.Attribute):
                of = one.source.code(call.func.value)
                moves.append(_Move(method_called(call), node, of, call))
        if any(move.what == "backward" for move in moves):
            yield one.source, moves


def _backwards(moves: list[_Move]) -> list[_Move]:
    return [move for move in moves if move.what == "backward"]


def _added(source: Source, moves: list[_Move]) -> Iterator[Candidate]:
    for i, first in enumerate(moves):
        if first.what != "backward":
            continue
        rest = moves[i + 1 :]
        second = next((move for move in rest if move.what != "zero_grad"), None)
        if second is None or second.what != "backward":
            continue
        between = source.flat(source.suite_of(first.node))
        between = between[between.index(first.node) : between.index(second.node)]
        if any(writes(source.code(one)) & reads(first.of) for one in between):
            continue  # its name stands for another loss by then
        total = f"({_bare(first.of)} + {_bare(second.of)}).backward()"
        yield from one_file(
            ADD_LOSSES,
            total,
            source,
            {source.anchor(first.node): removed, second.call: to(total)},
        )


def _bare(code: str) -> str:
    return (
        code[1:-1] if code.startswith("(") and code.endswith(")") and ")" not in code[:-1] else code
    )


def _added_in_loop(
    source: Source, node: Small, loop: Loop, state: Iterable[str]
) -> Iterator[Candidate]:
    """Losses of the rounds added up, and one backward behind the loop."""
    call = call_of(source, node, "backward")
    inner = call_of(source, loop, "step", "zero_grad")
    if call is None or inner is not None or not isinstance(call.func, cst.Attribute):
        return
    if set(carried_names(source, loop)) & set(state):  # the graph would go through all rounds
        return
    if source.line_of(node, loop.body) not in (source.anchor(node), node):
        return
    loss = source.code(call.func.value)
    changes: Changes = {node: lambda _: source.parse(f"total = total + {loss}")[0]}

    def around(updated: cst.CSTNode) -> Changed:
        first = cst.SimpleStatementLine(source.parse("total = 0.0"))
        last = cst.SimpleStatementLine(source.parse("total.backward()"))
        return cst.FlattenSentinel([first, updated, last])

    changes[loop] = around
    title = "add the losses of the loop, one backward behind it"
    yield from one_file(ADD_ROUNDS, title, source, changes)


def orders(scene: Scene) -> Iterator[Candidate]:
    """Steps behind the last backward, each backward kept to its own parameters or not."""
    for source, moves in _blocks(scene):
        backwards = _backwards(moves)
        last = backwards[-1]
        place = moves.index(last)
        early = [m for i, m in enumerate(moves) if m.what == "step" and i < place]
        late: Changes = {source.anchor(move.node): removed for move in early}
        lines = [source.code(move.node).rstrip("; ") for move in early]
        behind = source.between(last.node, [], lines)
        if early and len(backwards) > 1:
            changes = {**late, source.anchor(last.node): behind}
            title = f"{'; '.join(lines)} behind {last.of}.backward()"
            yield from one_file(STEP_LATER, title, source, changes)
        owners = _owners(source, moves)
        changes, named = dict(late), []
        for move in backwards:
            owner = owners.get(move.node)
            if owner is None:
                continue
            parameters = _parameters(source, owner)
            named.append(f"{move.of}.backward(inputs={parameters})")
            keeps = move is not last or keyword(move.call, "retain_graph") is not None

            def own(
                updated: cst.CSTNode, parameters: str = parameters, keeps: bool = keeps
            ) -> Changed:
                limited = with_keyword("inputs", parameters)(updated)
                assert isinstance(limited, cst.Call)
                return with_keyword("retain_graph", "True")(limited) if keeps else limited

            changes[move.call] = own
        if not named or not owners:
            continue
        title = "; ".join(named)
        if early:
            in_place = {node: how for node, how in changes.items() if node not in late}
            yield from one_file(OWN_INPUTS, f"{title}, steps as they are", source, in_place)
            changes[source.anchor(last.node)] = behind
        yield from one_file(OWN_INPUTS, title, source, changes)


def _owners(source: Source, moves: list[_Move]) -> dict[Small, str]:
    """For each backward the optimizer that it is for: the one cleared just before it, or the only
    one that steps before the next backward, or the one that is called like the loss."""
    optimizers = {move.of for move in moves if move.what == "step"}
    names = {one: f"{one} {_parameters(source, one)}" for one in sorted(optimizers)}
    owners: dict[Small, str] = {}
    cleared: set[str] = set()
    last_step = ""
    for i, move in enumerate(moves):
        if move.what == "zero_grad":
            if move.of != last_step:
                cleared.add(move.of)
        elif move.what == "step":
            last_step = move.of
        else:
            following = []
            for later in moves[i + 1 :]:
                if later.what == "backward":
                    break
                if later.what == "step":
                    following.append(later.of)
            if len(cleared) == 1:
                owners[move.node] = next(iter(cleared))
            elif len(following) == 1:
                owners[move.node] = following[0]
            elif (like := named_like(move.of, names)) is not None:
                owners[move.node] = like
            cleared, last_step = set(), ""
    return owners if len(set(owners.values())) > 1 else {}


def _parameters(source: Source, optimizer: str) -> str:
    """The optimizer's parameters, as the program wrote them where it made it."""
    for name, made in assigned(source):
        if name == optimizer and isinstance(made, cst.Call) and made.args:
            code = source.code(made.args[0].value)
            is_list = isinstance(made.args[0].value, cst.List)
            return code if is_list else f"list({code})"
    return f'[p for group in {optimizer}.param_groups for p in group["params"]]'


def detach_shared(scene: Scene) -> Iterator[Candidate]:
    """``D(fake.detach())`` in one of two losses that share ``fake``."""
    for source, moves in _blocks(scene):
        if len(_backwards(moves)) < 2:
            continue
        statements = source.flat(source.suite_of(moves[0].node))
        made = [one for one in statements if isinstance(one, cst.Assign)]
        assigned = {name for one in made for name in writes(source.code(one))}
        for move in _backwards(moves):
            before = statements[: statements.index(move.node)]
            for loss in _computing(source, before, reads(move.of)):
                for name in source.all(cst.Name, loss.value):
                    parent = next(source.parents(name))
                    handed_on = isinstance(parent, cst.Arg) and parent.keyword is not name
                    if name.value in assigned and handed_on:
                        title = f"{name.value}.detach() in {', '.join(writes(source.code(loss)))}"
                        changes: Changes = {name: method("detach")}
                        yield from one_file(DETACH_SHARED, title, source, changes)


def _computing(
    source: Source, statements: list[cst.CSTNode], wanted: set[str]
) -> Iterator[cst.Assign]:
    """The assignments that these names follow from, the last one first."""
    wanted = {*wanted}
    for statement in reversed(statements):
        if isinstance(statement, cst.Assign) and (made := writes(source.code(statement))) & wanted:
            wanted = (wanted - made) | reads(source.code(statement))
            yield statement


def retain_graph(scene: Scene) -> Iterator[Candidate]:
    """What PyTorch's own message names."""
    places = [*scene.at("began_at"), *scene.running]
    for one in places:
        source = one.source
        call = call_of(source, one.node, "backward", "grad")
        if call is None or keyword(call, "create_graph") is not None:
            continue
        if (given := keyword(call, "retain_graph")) is not None and source.code(given) == "True":
            continue
        title = f"retain_graph=True at line {one.place.line}"
        changes: Changes = {call: with_keyword("retain_graph", "True")}
        yield from one_file(RETAIN_GRAPH, title, source, changes)


RULES: tuple[Rule, ...] = (
    begin_sum_again,
    forward_again,
    add_losses,
    orders,
    detach_shared,
    retain_graph,
)
