"""Repairs of programs with several losses or steps: their backward calls, graphs and order."""

import ast
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from gradtrace.autograd.syntax import (
    DRAWS,
    Loop,
    accumulated,
    carried_names,
    changes_in_place,
    is_true,
    keyword,
    pairs_of,
    reads,
    statements_computing,
    writes,
)
from gradtrace.repair import kinds
from gradtrace.repair.edits import Edit, Source, call_of, method_called
from gradtrace.repair.intent import TrainingAction, assign_losses
from gradtrace.repair.rule import Candidate, Failure, Statement, edit

_MAX_OPERANDS = 8  # of one statement that are detached
_OLD_VALUES = (  # silent causes that a new forward pass repairs
    "autocast_stale", "checkpoint_recomputes_anew", "data_edit_silent",
    "optimizer_step_between_backwards_silent", "step_inside_backward",
)  # fmt: skip
_NUMBERS = ("zeros", "tensor", "float")  # the first values of sums
_RUNS = ("backward", "grad", "step", "zero_grad", "manual_backward")


def forward_again(failure: Failure) -> Iterator[Candidate]:
    """Compute the loss again from the present weights, before the statement that failed.

    Each candidate repeats more of the statements that compute the loss, with the in-place changes
    among them, but none that draws random numbers or the next batch, or adds to a sum.
    """
    is_of_old_values = failure.family != "silent" or failure.cause in _OLD_VALUES
    for statement in failure.running if is_of_old_values else ():
        source, needed = statement.source, reads(statement.node)
        block, earlier = source.parent(statement.node), source.before(statement.node)
        earlier = [*(source.before(block) if isinstance(block, ast.If) else ()), *earlier]
        repeated: list[ast.stmt] = []
        sums: set[str] = set()
        for previous in reversed(earlier):
            if call_of(source, previous, *_RUNS):
                if sums & reads(previous):
                    break  # an earlier sum: its terms would count twice
                continue
            sums |= (accumulated(previous) | writes(previous) & reads(previous)) & needed
            is_change = bool(changes_in_place(previous) & needed)
            computes = isinstance(previous, ast.Assign) and bool(writes(previous) & needed)
            if not is_change and (not computes or DRAWS.search(source.code(previous))):
                continue
            needed |= reads(previous)
            repeated = [previous, *repeated]
            starts = {name for node in repeated for name in writes(node) - reads(node)}
            if is_change or sums - starts:
                continue  # a change computes nothing; a sum would not begin at zero
            yield from _computed_later(statement, earlier, repeated)


def _computed_later(
    statement: Statement, earlier: list[ast.stmt], computing: list[ast.stmt]
) -> Iterator[Candidate]:
    """Move statements to before a later one or, if others read their results, repeat them there."""
    source, node = statement.source, statement.node
    lines = [source.code(previous) for previous in computing]
    between = [s for s in earlier[earlier.index(computing[0]) :] if s not in computing]
    results = writes(*computing).union(*map(changes_in_place, computing))
    is_movable = computing[0] in source.before(node) and not reads(*between) & results
    is_movable &= all(map(source.has_own_lines, computing))
    edits = source.insert(node, before=lines)
    moved = [*edits, *source.remove(*computing)] if is_movable else edits
    when = "later" if is_movable else "again"
    title = f"{when}, before line {node.lineno}: {'; '.join(lines)}"
    yield from edit(kinds.FORWARD_AGAIN, title, moved)


def start_sum_again(failure: Failure) -> Iterator[Candidate]:
    """Assign a sum its first number again, ``loss = 0``, after an earlier backward call on it."""
    for source, node, _ in failure.running if failure.cause == "loss_accumulated" else ():
        earlier = source.before(node)
        called = [i for i, s in enumerate(earlier) if call_of(source, s, "backward")]
        for start in earlier[: called[-1]] if called else ():
            for name, value in pairs_of(start) if isinstance(start, ast.Assign) else ():
                later = earlier[called[-1] + 1 :]
                adding = [s for s in later if name in accumulated(s) | writes(s) & reads(s)]
                is_number = isinstance(value, ast.Constant) or method_called(value) in _NUMBERS
                if is_number and adding and name in reads(node):
                    line = f"{name} = {source.code(value)}"
                    title = f"{line} before line {adding[0].lineno}"
                    yield from edit(kinds.NEW_SUM, title, source.insert(adding[0], before=[line]))


class _Action(NamedTuple):
    """A backward call, a step or a ``zero_grad`` in a block."""

    kind: str
    node: ast.stmt  # of the block: the call, or an ``if`` around it
    receiver: str  # the loss or the optimizer, as the program writes it
    call: ast.Call


def _blocks(failure: Failure) -> Iterator[tuple[Source, list[_Action]]]:
    """Yield each block that calls backward: its file, its backward, step and zero_grad calls."""
    suites: dict[ast.stmt, tuple[Source, list[ast.stmt]]] = {}
    for source, node, _ in failure.involved:
        parent = source.parent(node)
        for member in (node, *([parent] if isinstance(parent, ast.If) else [])):
            suite = source.suite_of(member)
            suites.setdefault(suite[0], (source, suite))
    for source, suite in suites.values():
        actions = [*_actions(source, suite)]
        if any(action.kind == "backward" for action in actions):
            yield source, actions


def _actions(source: Source, suite: list[ast.stmt]) -> Iterator[_Action]:
    for node in suite:
        for member in node.body if isinstance(node, ast.If) and not node.orelse else [node]:
            match member:
                case ast.Expr(ast.Call(func=ast.Attribute(value=receiver, attr=kind)) as call):
                    if kind in ("backward", "step", "zero_grad"):
                        yield _Action(kind, node, source.code(receiver), call)


def add_losses(failure: Failure) -> Iterator[Candidate]:
    """Call backward once: on the sum of two losses or of a loop's, or on one that contains both."""
    if failure.family != "freed":
        return
    for source, actions in _blocks(failure):
        relevant = [action for action in actions if action.kind != "zero_grad"]
        for first, second in itertools.pairwise(relevant):
            is_guarded = isinstance(first.node, ast.If) or isinstance(second.node, ast.If)
            if {first.kind, second.kind} != {"backward"} or is_guarded:
                continue
            earlier = source.before(second.node)
            between = earlier[earlier.index(first.node) :]
            if writes(*between) & reads(first.call.func):
                continue  # the name has been assigned another loss
            removal = source.remove(first.node)
            total = f"({first.receiver} + {second.receiver}).backward()"
            edits = [*removal, *source.replace(second.call, total)]
            yield from edit(kinds.ADD_LOSSES, total, edits)
            operands = reads(*statements_computing(earlier, {second.receiver}))
            if first.receiver in operands:
                title = f"{second.receiver}.backward() alone"
                yield from edit(kinds.TOTAL_ALONE, title, removal)
    for statement, loop in itertools.islice(failure.loops, 1):
        yield from _added_in_loop(failure, statement, loop)


def _added_in_loop(failure: Failure, statement: Statement, loop: Loop) -> Iterator[Candidate]:
    """Add the losses of the iterations, and call backward after the loop."""
    source, node = statement.source, statement.node
    call = call_of(source, node, "backward")
    is_training = call_of(source, loop, "step", "zero_grad") is not None
    if call is None or is_training or not isinstance(call.func, ast.Attribute):
        return
    # If a round used what an earlier one made, the graph would span all rounds.
    if failure.variables(statement).keys() & carried_names(loop) or node not in loop.body:
        return
    edits = [
        *source.replace(node, f"total = total + {source.code(call.func.value)}"),
        *source.insert(loop, before=["total = 0.0"], after=["total.backward()"]),
    ]
    title = "add the losses of the loop, one backward() call after it"
    yield from edit(kinds.ADD_ROUNDS, title, edits)


def clear_gradients(failure: Failure) -> Iterator[Candidate]:
    """Insert ``opt.zero_grad()`` before a backward call after which ``opt`` steps, or after a step.

    Between two steps, the gradients of several backward calls may add up.
    """
    causes = "gradient_leaks", "gradients_not_cleared"
    for source, actions in _blocks(failure) if failure.cause in causes else ():
        for first, second in itertools.pairwise(a for a in actions if a.kind != "zero_grad"):
            if (first.kind, second.kind) == ("backward", "step"):
                line = f"{second.receiver}.zero_grad()"
                edits = source.insert(first.node, before=[line])
                title = f"{line} before line {first.node.lineno}"
                yield from edit(kinds.CLEAR_GRADIENTS, title, edits)
    for source, node, place in failure.at("raised_at", causes[1]):
        for call in source.calls("step", under=node):
            if isinstance(call.func, ast.Attribute):
                optimizer = [*call.args, call.func.value][0]  # of scaler.step(opt), opt
                line = f"{source.code(optimizer)}.zero_grad()"
                edits = source.insert(node, after=[line])
                yield from edit(kinds.CLEAR_GRADIENTS, f"{line} after line {place.line}", edits)


def order_steps(failure: Failure) -> Iterator[Candidate]:
    """Move steps after the last backward call, or limit each call to its own parameters."""
    is_involved = failure.family != "silent" or failure.cause in ("gradient_leaks", *_OLD_VALUES)
    for source, actions in _blocks(failure) if is_involved else ():
        calls = [action for action in actions if action.kind == "backward"]
        last = calls[-1]
        steps = (action for action in actions[: actions.index(last)] if action.kind == "step")
        early = [*{action.node: action for action in steps}.values()]
        lines = [source.code(action.node) for action in early]
        # A second step of the same optimizer would use the same gradients again.
        late = {a.receiver for a in actions[actions.index(last) :] if a.kind == "step"}
        moving = [line for a, line in zip(early, lines, strict=True) if a.receiver not in late]
        removed = source.remove(*(action.node for action in early))
        moved = [*removed, *source.insert(last.node, after=moving)]
        if early and len(calls) > 1:
            title = f"{'; '.join(lines)} behind {last.receiver}.backward()"
            yield from edit(kinds.STEP_LATER, title, moved)
        titles: list[str] = []
        edits: list[Edit] = []
        began = {statement.node for statement in failure.at("began_at")}
        for action, optimizer in _optimizers_of_losses(source, actions):
            parameters = _parameters(source, optimizer, action.node)
            title = f"{source.code(action.call.func)}(inputs={parameters})"
            # A loss that leaks shares no graph with the others.
            is_shared = action is not last and failure.cause != "gradient_leaks"
            retains = is_shared or keyword(action.call, "retain_graph") is not None
            keywords = {"inputs": parameters} | ({"retain_graph": "True"} if retains else {})
            limited = source.set_keywords(action.call, **keywords)
            if failure.cause == "gradient_leaks" and action.node in began:
                yield from edit(kinds.OWN_INPUTS, title, limited)
            titles, edits = [*titles, title], [*edits, *limited]
        title = "; ".join(titles)
        if early:
            yield from edit(kinds.OWN_INPUTS, f"{title}, steps as they are", edits)
        if titles:
            yield from edit(kinds.OWN_INPUTS, title, [*edits, *(moved if early else [])])


def _optimizers_of_losses(source: Source, actions: list[_Action]) -> list[tuple[_Action, str]]:
    """Return the backward calls whose loss is meant for exactly one optimizer, with it."""
    optimizers = frozenset(action.receiver for action in actions if action.kind == "step")
    descriptions = {name: f"{name} {_parameters(source, name)}" for name in sorted(optimizers)}
    events = [TrainingAction(a.kind, optimizers & {a.receiver}, a.receiver) for a in actions]
    targets = assign_losses(events, descriptions)
    pairs = [(actions[i], min(names)) for i, names in targets.items() if len(names) == 1]
    return pairs if len({name for _, name in pairs}) > 1 else []


def _parameters(source: Source, optimizer: str, place: ast.stmt | None = None) -> str:
    """Return the optimizer's parameters as the program wrote them when it created the optimizer.

    With a place, the code must have a meaning there: it may not read variables of another function.
    """
    for name, value in source.assignments():
        if name == optimizer and isinstance(value, ast.Call) and value.args:
            scope, code = source.scope_of(value), source.code(value.args[0])
            own = {argument.arg for argument in source.all(ast.arg, scope)} - {"self"}
            own |= {name for name in writes(scope) if "." not in name}
            is_elsewhere = place and scope not in (source.tree, source.scope_of(place))
            if not (is_elsewhere and reads(value.args[0]) & own):
                return code if isinstance(value.args[0], ast.List) else f"list({code})"
    return f'[p for group in {optimizer}.param_groups for p in group["params"]]'


def detach_at_consumer(failure: Failure) -> Iterator[Candidate]:
    """Detach a tensor that a loss takes from another part of the graph: ``D(fake.detach())``."""
    groups: dict[tuple[int, Source, ast.AST, str], list[tuple[ast.stmt, ast.expr]]] = {}
    for call, statement in failure.consumers:
        source, node = statement.source, statement.node
        for tensor in _operands(failure, statement)[:_MAX_OPERANDS]:
            key = call, source, source.scope_of(node), source.code(tensor)
            groups.setdefault(key, []).append((node, tensor))
    kind = kinds.DETACH_STATE if failure.cause == "hidden_state_carried" else kinds.DETACH_SHARED
    for (_, source, _, code), uses in sorted(groups.items(), key=lambda g: len(g[0][-1])):
        edits = [part for _, tensor in uses for part in source.call_method(tensor, "detach")]
        lines = " and ".join(dict.fromkeys(str(tensor.lineno) for _, tensor in uses))
        yield from edit(kind, f"detach {code} at line {lines}", edits)


def _operands(failure: Failure, statement: Statement) -> list[ast.expr]:
    """Return the parts of a statement that may be tensors with a graph, the shortest first."""
    source, operands = statement.source, []
    known = failure.roots_of_graphs(statement)
    for part in source.all(ast.expr, statement.node):
        parent = source.parent(part)
        is_name = isinstance(part, ast.Name | ast.Attribute | ast.Subscript)
        is_inner = is_name and isinstance(parent, ast.Attribute | ast.Subscript)
        if is_inner or isinstance(getattr(part, "ctx", None), ast.Store):
            continue
        is_tensor = is_name or isinstance(part, ast.Call | ast.BinOp)
        is_tensor &= known is None or bool({name.id for name in source.all(ast.Name, part)} & known)
        is_function = getattr(parent, "func", None) is part
        if is_tensor and not is_function and not isinstance(parent, ast.Expr):
            operands.append(part)
    return sorted(operands, key=lambda part: len(source.code(part)))


def average(failure: Failure) -> Iterator[Candidate]:
    """Average the elements of a loss, as PyTorch's losses do."""
    for source, call in failure.calls("backward") if failure.cause == "not_scalar" else ():
        if isinstance(call.func, ast.Attribute):
            loss, edits = call.func.value, source.call_method(call.func.value, "mean")
            title = f"{source.code_with(loss, edits)} at line {call.lineno}"
            question = f"is the loss the mean of {source.code(loss)}, not the sum?"
            yield from edit(kinds.AVERAGE, title, edits, question)


def retain_graph(failure: Failure) -> Iterator[Candidate]:
    """Insert ``retain_graph=True``, which PyTorch's own message names."""
    for source, call in failure.calls("backward", "grad") if failure.family != "silent" else ():
        if not is_true(call, "create_graph"):
            title = f"retain_graph=True at line {call.lineno}"
            edits = source.set_keywords(call, retain_graph="True")
            yield from edit(kinds.RETAIN_GRAPH, title, edits)
