"""Sentences about a trace: the effect of a line, references to a tensor, the end of the program."""

import ast
from collections import Counter
from collections.abc import Iterable, Sequence

from gradtrace.autograd.nodes import ALIVE, MODIFIED
from gradtrace.player.outcome import describe_outcome
from gradtrace.tracing.function_source import parsed
from gradtrace.tracing.steps import TraceData, freed_at


def ending(trace: TraceData) -> str:
    """Describe how the program ended, with only the beginning of a long message."""
    first, *rest = describe_outcome(trace)
    if trace.error is not None:
        short = trace.error.message.partition(" (")[0].partition(": [")[0].rstrip(".")
        first = f"Line {trace.error.line} raises {trace.error.type}: {short}.".replace(": .", ".")
    return joined(first, *rest)


def joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def names_of_nodes(trace: TraceData, nodes: Iterable[int]) -> str:
    """Name nodes: "ExpBackward0 and 2 × MulBackward0"; of more than three kinds, count them."""
    count = Counter(trace.nodes[node].label for node in nodes)
    if len(count) > 3:
        return f"{count.total()} nodes"
    return listed([name if n == 1 else f"{n} × {name}" for name, n in count.items()])


def listed(names: Sequence[str]) -> str:
    """Join names, as in "a, b and c"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def statement_lines(trace: TraceData) -> list[int]:
    """Return the lines that ran, and the first lines of the function's other statements, sorted."""
    nodes = ast.walk(parsed(trace.source))
    function = next((node for node in nodes if isinstance(node, ast.FunctionDef)), None)
    traced_lines = {step.ran for step in trace.steps if step.ran is not None}
    statements = {
        node.lineno
        for statement in (function.body if function is not None else ())
        for node in ast.walk(statement)
        if isinstance(node, ast.stmt) and not _runs_nothing(node)
    }
    return sorted(traced_lines | statements)


def _runs_nothing(node: ast.stmt) -> bool:
    """Whether a statement is a constant such as a docstring, ``pass``, or a definition."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, (ast.Pass, ast.FunctionDef, ast.ClassDef))


def what_it_did(trace: TraceData, line: int) -> str:
    """Describe the effect of a line that did not raise, or why it did not run."""
    visits = [index for index, step in enumerate(trace.steps) if step.ran == line]
    if not visits:
        if trace.error is not None and line > trace.error.line:
            return f"Line {line} is never reached: line {trace.error.line} raises before it."
        return f"Line {line} does not run with this setting."
    freed = [node for node, at in freed_at(trace).items() if at in visits]
    operations = [i for i, node in enumerate(trace.nodes) if node.line == line and not node.leaf]
    sentences = []
    if operations:
        sentences.append(f"It recorded {names_of_nodes(trace, operations)}.")
    if freed:
        sentences.append(f"It freed the saved tensors of {names_of_nodes(trace, freed)}.")
    written, changed = _written(trace, visits)
    if written and not freed:
        sentences.append(f"It wrote {few_or_count(written, 'gradients')} and freed nothing.")
    if changed:
        sentences.append(f"It changed {few_or_count(changed, 'tensors')} in place.")
    return joined(f"Line {line} ran.", *(sentences or ["It changed nothing in the graph."]))


def _written(trace: TraceData, visits: Iterable[int]) -> tuple[list[str], list[str]]:
    """Return the names of gradients written and of variables changed in place at these steps."""
    written: dict[str, None] = {}
    changed: dict[str, None] = {}
    for index in visits:
        variables = {v.name: v for v in trace.steps[index - 1].variables}
        for new in trace.steps[index].variables:
            old = variables.get(new.name)
            if old is None or old.shape != new.shape:
                continue
            if old.node != new.node and (old.tensor is None or old.tensor != new.tensor):
                continue  # another tensor; one that has a graph gets a node when it is changed
            if new.grad is not None and new.grad != old.grad:
                written[f"{new.name}.grad"] = None
            if None not in (old.version, new.version) and new.version != old.version:
                changed[new.name] = None
    return list(written), list(changed)


def few_or_count(names: Sequence[str], what: str) -> str:
    """Join at most two names by "and"; if there are more, return their number and ``what``."""
    return " and ".join(names) if len(names) <= 2 else f"{len(names)} {what}"


def holders_by_tensor(trace: TraceData, at: int) -> dict[int, tuple[list[str], list[str]]]:
    """Map each non-leaf tensor of a step to the variables that name it and nodes that saved it."""
    holders: dict[int, tuple[list[str], list[str]]] = {}
    for variable in trace.steps[at].variables:
        if variable.tensor is not None:
            holders.setdefault(variable.tensor, ([], []))[0].append(variable.name)
    for state in trace.states(at):
        node = trace.nodes[state.node]
        for slot, (slot_state, _) in zip(node.slots, state.slots, strict=True):
            if slot.tensor is not None and slot_state in (ALIVE, MODIFIED):
                holders.setdefault(slot.tensor, ([], []))[1].append(node.label)
    return {
        tensor: named_by
        for tensor, named_by in holders.items()
        if trace.tensors[tensor].role != "leaf"
    }


def holder_names(holders: tuple[list[str], list[str]]) -> str:
    """Return the names of a tensor, or, if it has none, the nodes that saved it."""
    names, nodes = holders
    return ", ".join(names) if names else f"saved by {' and '.join(dict.fromkeys(nodes))}"


def bytes_held(trace: TraceData, at: int) -> str:
    """State how many bytes of activations are saved at a step, and by which nodes."""
    holders, total = [], 0
    (activations, _, _) = trace.steps[at].held
    for state in trace.states(at):
        node = trace.nodes[state.node]
        saved = [
            slot
            for slot, (slot_state, _) in zip(node.slots, state.slots, strict=True)
            if slot_state in (ALIVE, MODIFIED) and slot.role == "activation" and slot.nbytes
        ]
        parts = [f"{slot.name} {slot.nbytes:,} B" for slot in saved]
        total += sum(slot.nbytes or 0 for slot in saved)
        if parts:
            holders.append(f"{node.label} ({', '.join(parts)})")
    if not holders:
        return f"No node keeps an activation alive: {activations:,} bytes."
    named = [holder if n == 1 else f"{n} × {holder}" for holder, n in Counter(holders).items()]
    shared = "" if total == activations else " A tensor that several nodes saved counts once."
    verb = "keeps" if len(holders) == 1 else "keep"
    return f"{' and '.join(named)} {verb} {activations:,} bytes alive.{shared}"
