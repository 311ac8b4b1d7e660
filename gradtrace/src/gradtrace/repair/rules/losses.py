"""Repairs of several losses and several steps: which backward, on what graph, before which step."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import NamedTuple

import libcst as cst

from gradtrace.repair.code_names import (
    DRAWS,
    accumulated,
    assignments,
    carried_names,
    changes_in_place,
    reads,
    statements_computing,
    writes,
)
from gradtrace.repair.edits import (
    Change,
    Changed,
    Changes,
    Loop,
    Small,
    Source,
    call_of,
    keyword,
    method,
    method_called,
    removed,
    to,
    with_keyword,
)
from gradtrace.repair.intent import TrainingAction, assign_losses
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
from gradtrace.repair.rule import Candidate, EditRule, Failure, Statement, edit

_RUNS = ("backward", "grad", "step", "zero_grad", "manual_backward")


def _running_in_a_suite(failure: Failure) -> Iterator[tuple[Statement, list[cst.CSTNode]]]:
    """Yield the running statements, each with the statements before it in its suite."""
    for statement in failure.running:
        source = statement.source
        if statement.node in source.flat(source.suite_of(statement.node)):
            yield statement, source.before(statement.node)


def forward_again(failure: Failure) -> Iterator[Candidate]:
    """Compute the loss again from the present weights, before the statement that failed.

    The statements from which it is computed are repeated, from each of them on, with in-place
    changes between them; not those that draw random numbers or the next batch, nor a part of a sum.
    """
    for statement, earlier in _running_in_a_suite(failure):
        source = statement.source
        needed = reads(source.code(statement.node))
        lines: list[str] = []
        sums: set[str] = set()
        for previous in reversed(earlier):
            code = source.code(previous).rstrip("; ")
            if call_of(source, previous, *_RUNS):
                if sums & reads(code):
                    break  # an earlier sum: its terms would count twice
                continue
            sums |= (accumulated(source, previous) | writes(code) & reads(code)) & needed
            if changes_in_place(source, previous) & needed:
                lines = [code, *lines]
                needed |= reads(code)
                continue
            if not isinstance(previous, cst.Assign):
                continue
            parts = [part for part in _separate(source, previous) if writes(part) & needed]
            if parts and not any(map(DRAWS.search, parts)):
                needed |= {name for part in parts for name in reads(part)}
                lines = [*parts, *lines]
                starts = {name for line in lines for name in writes(line) - reads(line)}
                if sums - starts:
                    continue  # the sum would not begin at zero
                title = f"again, before line {statement.line.line}: {'; '.join(lines)}"
                changes = source.next_to(statement.node, before=lines)
                yield from edit(FORWARD_AGAIN, title, {source: changes})


def _separate(source: Source, statement: cst.Assign) -> list[str]:
    """Return ``a, b = f(), g()`` as ``a = f()`` and ``b = g()``, where that is the same."""
    code = source.code(statement).rstrip("; ")
    target, value = statement.targets[0].target, statement.value
    if not (isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple)):
        return [code]
    if len(target.elements) != len(value.elements) or writes(code) & reads(source.code(value)):
        return [code]
    pairs = zip(target.elements, value.elements, strict=True)
    return [f"{source.code(t.value)} = {source.code(v.value)}" for t, v in pairs]


def begin_sum_again(failure: Failure) -> Iterator[Candidate]:
    """Insert ``loss = 0`` before the statements that add to the loss of the last pass."""
    for statement, earlier in _running_in_a_suite(failure):
        source = statement.source
        runs = [i for i, node in enumerate(earlier) if call_of(source, node, "backward")]
        for name in sorted(reads(source.code(statement.node))) if runs else ():
            starts = [
                source.code(node).rstrip("; ")
                for node in earlier
                if isinstance(node, cst.Assign) and writes(source.code(node)) == {name}
            ]
            terms = [node for node in earlier[runs[-1] :] if name in accumulated(source, node)]
            if starts and terms:
                title = f"{starts[-1]}, before line {source.lines(terms[0])[0]}"
                changes = source.next_to(terms[0], before=[starts[-1]])
                yield from edit(BEGIN_SUM, title, {source: changes})


class _Action(NamedTuple):
    """A backward call, a step or a ``zero_grad`` in a block."""

    kind: str
    node: Small
    receiver: str  # the loss or the optimizer, as the program writes it
    call: cst.Call


def _blocks(failure: Failure) -> Iterator[tuple[Source, list[_Action]]]:
    """Yield the blocks that run backward, with their calls of backward, step and zero_grad."""
    suites = set()
    for statement in failure.involved:
        source, suite = statement.source, statement.source.suite_of(statement.node)
        if suite in suites:
            continue
        suites.add(suite)
        actions = []
        for node in source.flat(suite):
            call = call_of(source, node, "backward", "step", "zero_grad")
            if not isinstance(node, cst.Expr) or call is None or node.value is not call:
                continue
            if isinstance(call.func, cst.Attribute):
                receiver = source.code(call.func.value)
                actions.append(_Action(method_called(call), node, receiver, call))
        if _backward_calls(actions):
            yield source, actions


def _backward_calls(actions: list[_Action]) -> list[_Action]:
    return [action for action in actions if action.kind == "backward"]


def add_losses(failure: Failure) -> Iterator[Candidate]:
    """Call backward once on the sum: of two consecutive losses, or of the losses of a loop."""
    if failure.family != "freed":
        return
    for source, actions in _blocks(failure):
        relevant = [action for action in actions if action.kind != "zero_grad"]
        for first, second in itertools.pairwise(relevant):
            if {first.kind, second.kind} != {"backward"}:
                continue
            earlier = source.before(second.node)
            between = earlier[earlier.index(first.node) :]
            if any(writes(source.code(node)) & reads(first.receiver) for node in between):
                continue  # the name has been assigned another loss
            total = f"({_bare(first.receiver)} + {_bare(second.receiver)}).backward()"
            changes: Changes = {source.anchor(first.node): removed, second.call: to(total)}
            yield from edit(ADD_LOSSES, total, {source: changes})
    for statement, loop in failure.loops:
        variables = failure.run.graph_variables.get(statement.line, {})
        yield from _added_in_loop(statement.source, statement.node, loop, variables)
        break


def _bare(code: str) -> str:
    """Remove the parentheses around an expression."""
    is_whole = code.startswith("(") and code.endswith(")") and ")" not in code[:-1]
    return code[1:-1] if is_whole else code


def _added_in_loop(
    source: Source, node: Small, loop: Loop, variables: Collection[str]
) -> Iterator[Candidate]:
    """Add the losses of the rounds, and call backward after the loop."""
    call = call_of(source, node, "backward")
    is_training = call_of(source, loop, "step", "zero_grad") is not None
    if call is None or is_training or not isinstance(call.func, cst.Attribute):
        return
    if set(carried_names(source, loop)) & set(variables):  # the graph would span all rounds
        return
    if source.line_of(node, loop.body) not in (source.anchor(node), node):
        return
    loss = source.code(call.func.value)

    def surround(updated: cst.CSTNode) -> Changed:
        start = cst.SimpleStatementLine(source.parse("total = 0.0"))
        end = cst.SimpleStatementLine(source.parse("total.backward()"))
        return cst.FlattenSentinel([start, updated, end])

    changes: Changes = {
        node: lambda _: source.parse(f"total = total + {loss}")[0],
        loop: surround,
    }
    title = "add the losses of the loop, one backward() call after it"
    yield from edit(ADD_ROUNDS, title, {source: changes})


def order_steps(failure: Failure) -> Iterator[Candidate]:
    """Move steps after the last backward call, or limit each call to its own parameters."""
    for source, actions in _blocks(failure):
        calls = _backward_calls(actions)
        last = calls[-1]
        early = [action for action in actions[: actions.index(last)] if action.kind == "step"]
        lines = [source.code(action.node).rstrip("; ") for action in early]
        moved: Changes = {source.anchor(action.node): removed for action in early}
        moved[source.anchor(last.node)] = source.between(last.node, [], lines)
        if early and len(calls) > 1:
            title = f"{'; '.join(lines)} behind {last.receiver}.backward()"
            yield from edit(STEP_LATER, title, {source: moved})
        limited: Changes = {}
        titles = []
        for action, optimizer in _optimizers_of_losses(source, actions):
            parameters = _parameters(source, optimizer)
            titles.append(f"{action.receiver}.backward(inputs={parameters})")
            retains = action is not last or keyword(action.call, "retain_graph") is not None
            limited[action.call] = _limit(parameters, retains)
        if not titles:
            continue
        title = "; ".join(titles)
        if early:
            yield from edit(OWN_INPUTS, f"{title}, steps as they are", {source: limited})
            limited = {**limited, **moved}
        yield from edit(OWN_INPUTS, title, {source: limited})


def _limit(parameters: str, retains: bool) -> Change:
    """Return the change that limits a backward call to some parameters."""

    def change(updated: cst.CSTNode) -> Changed:
        call = with_keyword("inputs", parameters)(updated)
        assert isinstance(call, cst.Call)
        return with_keyword("retain_graph", "True")(call) if retains else call

    return change


def _optimizers_of_losses(source: Source, actions: list[_Action]) -> list[tuple[_Action, str]]:
    """Return the backward calls with the optimizers that they are meant for, if these differ."""
    optimizers = {action.receiver for action in actions if action.kind == "step"}
    descriptions = {name: f"{name} {_parameters(source, name)}" for name in sorted(optimizers)}
    events = []
    for action in actions:
        is_backward = action.kind == "backward"
        receivers = frozenset() if is_backward else frozenset({action.receiver})
        events.append(
            TrainingAction(action.kind, receivers, action.receiver if is_backward else "")
        )
    targets = assign_losses(events, descriptions)
    pairs = [(actions[i], min(names)) for i, names in targets.items() if len(names) == 1]
    return pairs if len({name for _, name in pairs}) > 1 else []


def _parameters(source: Source, optimizer: str) -> str:
    """Return the optimizer's parameters, as the program wrote them where it made it."""
    for name, value in assignments(source):
        if name == optimizer and isinstance(value, cst.Call) and value.args:
            code = source.code(value.args[0].value)
            return code if isinstance(value.args[0].value, cst.List) else f"list({code})"
    return f'[p for group in {optimizer}.param_groups for p in group["params"]]'


def detach_shared(failure: Failure) -> Iterator[Candidate]:
    """Detach a shared tensor in one of two losses: ``D(fake.detach())``."""
    for source, actions in _blocks(failure):
        calls = _backward_calls(actions)
        if len(calls) < 2:
            continue
        statements = source.flat(source.suite_of(actions[0].node))
        assigns = [node for node in statements if isinstance(node, cst.Assign)]
        variables = {name for node in assigns for name in writes(source.code(node))}
        for action in calls:
            earlier = source.before(action.node)
            losses = statements_computing(source, earlier, reads(action.receiver))
            for loss in [*losses, action.node]:
                for name in source.all(cst.Name, loss):
                    parent = next(source.parents(name))
                    is_argument = isinstance(parent, cst.Arg) and parent.keyword is not name
                    if name.value in variables and is_argument:
                        target = ", ".join(sorted(writes(source.code(loss)))) or action.receiver
                        title = f"{name.value}.detach() in {target}"
                        changes: Changes = {name: method("detach")}
                        yield from edit(DETACH_SHARED, title, {source: changes})


def retain_graph(failure: Failure) -> Iterator[Candidate]:
    """Insert ``retain_graph=True``, which PyTorch's own message names."""
    for statement in failure.nearby:
        source = statement.source
        call = call_of(source, statement.node, "backward", "grad")
        if call is None or keyword(call, "create_graph") is not None:
            continue
        value = keyword(call, "retain_graph")
        if value is not None and source.code(value) == "True":
            continue
        title = f"retain_graph=True at line {statement.line.line}"
        changes: Changes = {call: with_keyword("retain_graph", "True")}
        yield from edit(RETAIN_GRAPH, title, {source: changes})


RULES: tuple[EditRule, ...] = (
    begin_sum_again,
    forward_again,
    add_losses,
    order_steps,
    detach_shared,
    retain_graph,
)
