"""The smallest case that is wrong, played: what each of its lines does to the autograd graph.

It is gradtrace's trace as a table, for a page without scripts, which is read aloud and printed as
it stands.  The program is the question's own, drawn for one answer; nothing of a student's is run.
"""

from __future__ import annotations

import contextlib
import io
import linecache
from collections.abc import Iterator
from textwrap import shorten
from typing import Any

import torch

from gradtrace import Trace, trace
from gradtrace.autograd.nodes import FREED, MODIFIED

MOST_LINES = 40
"""The most lines that are played; a loop's count each time."""
_MESSAGE = 120  # characters
_MOST_NAMED = 4

_FREES, _CHANGES = "frees what was saved by", "changes in place what was saved by"
_FILE = "<the smallest case>"
_NAME = "case"


def played(program: str) -> list[dict[str, Any]]:
    """Run a program of ours line by line.

    Returns:
        for each line that ran, in order, ``{"line": its source, "did": what it did in words,
        "held": the bytes of activations that saved tensors hold after it}``; nothing of a program
        that is empty, or is more than :data:`MOST_LINES` lines to run.
    """
    if not program:
        return []
    function = _function(program)
    with contextlib.redirect_stdout(io.StringIO()), torch.enable_grad():
        seen = trace(function, max_steps=MOST_LINES + 1)
    if seen.unrecorded:
        return []
    return [*_lines(seen)]


def _function(program: str) -> Any:
    text = f"def {_NAME}():\n" + "".join(f"    {line}\n" for line in program.splitlines())
    # gradtrace shows the source, and asks where Python's own tracebacks do.
    linecache.cache[_FILE] = (len(text), None, text.splitlines(keepends=True), _FILE)
    names: dict[str, Any] = {"torch": torch}
    exec(compile(text, _FILE, "exec"), names)
    return names[_NAME]


def _lines(seen: Trace) -> Iterator[dict[str, Any]]:
    known: set[int] = set()
    gradients: dict[str, str | None] = {}
    for step in seen.steps:
        made = [state.node for state in step.changed if state.node not in known]
        known.update(made)
        said = _named("makes", made, seen)
        for what, state in ((_FREES, FREED), (_CHANGES, MODIFIED)):
            said += _named(what, [s.node for s in step.changed if s.state == state], seen)
        now = {variable.name: variable.grad for variable in step.variables}
        said += [
            f"{name}.grad is {'None' if grad is None else grad}"
            for name, grad in now.items()
            if grad != gradients.get(name)
        ]
        gradients = now
        if step.raised:
            stopped = "" if step.raised.node is None else f" in {_name(step.raised.node, seen)}"
            message = shorten(step.raised.message, _MESSAGE, placeholder=" …")
            said.append(f"raises {step.raised.type}{stopped}: {message}")
        if step.ran is not None:
            line = seen.source[step.ran].removeprefix("    ")
            yield {"line": line, "did": "; ".join(said), "held": step.held[0]}


def _named(what: str, nodes: list[int], seen: Trace) -> list[str]:
    """``what`` of these nodes, by their names; of many the first."""
    if not nodes:
        return []
    names = [_name(node, seen) for node in nodes[:_MOST_NAMED]]
    more = f" and {len(nodes) - len(names)} more" if len(nodes) > len(names) else ""
    return [f"{what} {', '.join(names)}{more}"]


def _name(node: int, seen: Trace) -> str:
    found = seen.nodes[node]
    return f"leaf {found.label}" if found.leaf else found.name
