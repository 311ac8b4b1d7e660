"""What a trace says in words: what a line did, who holds a tensor, how the program ended."""

from __future__ import annotations

import ast
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence

from gradtrace.autograd.nodes import ALIVE, FREED, MODIFIED
from gradtrace.player.outcome import outcome
from gradtrace.tracing.steps import TraceData


def ending(seen: TraceData) -> str:
    """How the program ended, of a long message only the beginning."""
    first, *rest = outcome(seen)
    if seen.error is not None:
        short = seen.error.message.partition(" (")[0].partition(": [")[0].rstrip(".")
        first = f"Line {seen.error.line} raises {seen.error.type}: {short}.".replace(": .", ".")
    return joined(first, *rest)


def joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def label_of_node(seen: TraceData, node: int) -> str:
    return seen.nodes[node].label


def names_of_nodes(seen: TraceData, nodes: Iterable[int]) -> str:
    """Each name once, with how often: "ExpBackward0 and 2 × MulBackward0"; many as a number."""
    count = Counter(label_of_node(seen, node) for node in nodes)
    if len(count) > 3:
        return f"{count.total()} nodes"
    return listed([name if n == 1 else f"{n} × {name}" for name, n in count.items()])


def listed(names: Sequence[str]) -> str:
    """In words: "a, b and c"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def statement_lines(seen: TraceData) -> list[int]:
    """The first line of each statement of the function; where it cannot be parsed, what ran."""
    first = min(seen.source, default=0)
    text = textwrap.dedent("\n".join(seen.source[n] for n in sorted(seen.source)))
    ran = {step.ran for step in seen.steps if step.ran is not None}
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return sorted(ran)
    function = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)), None)
    if function is None:
        return sorted(ran)
    return sorted(
        ran
        | {
            first + node.lineno - 1
            for statement in function.body
            for node in ast.walk(statement)
            if isinstance(node, ast.stmt) and not _runs_nothing(node)
        }
    )


def _runs_nothing(node: ast.stmt) -> bool:
    """A docstring, ``pass``, or a definition."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, (ast.Pass, ast.FunctionDef, ast.ClassDef))


def what_it_did(seen: TraceData, line: int) -> str:
    """What a line did that is not the one that raised."""
    visits = [index for index, step in enumerate(seen.steps) if step.ran == line]
    if not visits:
        if seen.error is not None and line > seen.error.line:
            return f"Line {line} is never reached: line {seen.error.line} raises before it."
        return f"Line {line} does not run in this setting."
    freed = [node for node, at in freed_at(seen).items() if at in visits]
    made = [i for i, node in enumerate(seen.nodes) if node.line == line and not node.leaf]
    did = []
    if made:
        did.append(f"It recorded {names_of_nodes(seen, made)}.")
    if freed:
        did.append(f"It freed what {names_of_nodes(seen, freed)} had saved.")
    written, changed = _written(seen, visits)
    if written and not freed:
        did.append(f"It wrote {few_or_count(written, 'gradients')} and freed nothing.")
    if changed:
        did.append(f"It changed {few_or_count(changed, 'tensors')} in place.")
    return joined(f"Line {line} ran.", *(did or ["It changed nothing in the graph."]))


def _written(seen: TraceData, visits: Iterable[int]) -> tuple[list[str], list[str]]:
    """The gradients that were written at these steps, and the variables that were changed."""
    written: dict[str, None] = {}
    changed: dict[str, None] = {}
    for index in visits:
        before = {v.name: v for v in seen.steps[index - 1].variables}
        for now in seen.steps[index].variables:
            was = before.get(now.name)
            if was is None or was.shape != now.shape:
                continue
            if was.node != now.node and (was.tensor is None or was.tensor != now.tensor):
                continue  # another tensor; one that has a graph gets a node when it is changed
            if now.grad is not None and now.grad != was.grad:
                written[f"{now.name}.grad"] = None
            if None not in (was.version, now.version) and now.version != was.version:
                changed[now.name] = None
    return list(written), list(changed)


def few_or_count(names: Sequence[str], what: str) -> str:
    """Few by name, many by number."""
    return " and ".join(names) if len(names) <= 2 else f"{len(names)} {what}"


def freed_at(seen: TraceData) -> dict[int, int]:
    """For each node that was freed, the index of the first step at which it was."""
    found: dict[int, int] = {}
    for index, step in enumerate(seen.steps):
        for state in step.changed:
            if state.state == FREED:
                found.setdefault(state.node, index)
    return found


def holders_by_tensor(seen: TraceData, at: int) -> dict[int, tuple[list[str], list[str]]]:
    """For each tensor that is no leaf, the variables that name it and the nodes that saved it."""
    held: dict[int, tuple[list[str], list[str]]] = {}
    for variable in seen.steps[at].variables:
        if variable.tensor is not None:
            held.setdefault(variable.tensor, ([], []))[0].append(variable.name)
    for state in seen.states(at):
        node = seen.nodes[state.node]
        for slot, (slot_state, _) in zip(node.slots, state.slots, strict=True):
            if slot.tensor is not None and slot_state in (ALIVE, MODIFIED):
                held.setdefault(slot.tensor, ([], []))[1].append(node.label)
    return {tensor: by for tensor, by in held.items() if seen.tensors[tensor].role != "leaf"}


def holder_names(held: tuple[list[str], list[str]]) -> str:
    """The names of a tensor; of one without a name, the nodes that saved it."""
    names, nodes = held
    return ", ".join(names) if names else f"saved by {' and '.join(dict.fromkeys(nodes))}"


def bytes_held(seen: TraceData, at: int) -> str:
    """What is held at a step, and by which nodes."""
    holders, total = [], 0
    (activations, _, _) = seen.steps[at].held
    for state in seen.states(at):
        node = seen.nodes[state.node]
        saved = [
            slot
            for slot, (slot_state, _) in zip(node.slots, state.slots, strict=True)
            if slot_state in (ALIVE, MODIFIED) and slot.role == "activation" and slot.nbytes
        ]
        kept = [f"{slot.name} {slot.nbytes:,} B" for slot in saved]
        total += sum(slot.nbytes or 0 for slot in saved)
        if kept:
            holders.append(f"{node.label} ({', '.join(kept)})")
    if not holders:
        return f"{activations:,} bytes are held: no node keeps an activation."
    named = [who if n == 1 else f"{n} × {who}" for who, n in Counter(holders).items()]
    shared = "" if total == activations else " A tensor that several saved is held once."
    return f"{activations:,} bytes are held, by {' and '.join(named)}.{shared}"
