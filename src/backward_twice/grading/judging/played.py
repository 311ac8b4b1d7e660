"""The player of the smallest wrong case: the effect of each of its lines on the autograd graph.

It is gradtrace's trace as a table, for a page without scripts, which is read aloud and printed as
it stands.  The program is the question's own, drawn for one answer; no code of a student is run.
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

_FREES, _CHANGES = "frees the tensors saved by", "changes in place the tensors saved by"
_FILE = "<the smallest case>"
_NAME = "case"


def play_program(program: str) -> list[dict[str, Any]]:
    """Run one of the course's own programs line by line.

    Returns:
        for each line that ran, in order, ``{"line": its source, "did": a sentence about its effect,
        "held": the bytes of activations that saved tensors hold after it}``; none if the program is
        empty, or runs more than :data:`MOST_LINES` lines.
    """
    if not program:
        return []
    function = _function(program)
    with contextlib.redirect_stdout(io.StringIO()), torch.enable_grad():
        play = trace(function, max_steps=MOST_LINES + 1)
    if play.unrecorded:
        return []
    return [*_lines(play)]


def _function(program: str) -> Any:
    text = f"def {_NAME}():\n" + "".join(f"    {line}\n" for line in program.splitlines())
    # gradtrace shows the source, and asks where Python's own tracebacks do.
    linecache.cache[_FILE] = (len(text), None, text.splitlines(keepends=True), _FILE)
    names: dict[str, Any] = {"torch": torch}
    exec(compile(text, _FILE, "exec"), names)
    return names[_NAME]


def _lines(play: Trace) -> Iterator[dict[str, Any]]:
    shown_nodes: set[int] = set()
    gradients: dict[str, str | None] = {}
    for step in play.steps:
        new_nodes = [state.node for state in step.changed if state.node not in shown_nodes]
        shown_nodes.update(new_nodes)
        events = _named("makes", new_nodes, play)
        for effect, state in ((_FREES, FREED), (_CHANGES, MODIFIED)):
            events += _named(effect, [s.node for s in step.changed if s.state == state], play)
        current = {variable.name: variable.grad for variable in step.variables}
        events += [
            f"{name}.grad is {'None' if grad is None else grad}"
            for name, grad in current.items()
            if grad != gradients.get(name)
        ]
        gradients = current
        if step.raised:
            stopped = "" if step.raised.node is None else f" in {_name(step.raised.node, play)}"
            message = shorten(step.raised.message, _MESSAGE, placeholder=" …")
            events.append(f"raises {step.raised.type}{stopped}: {message}")
        if step.ran is not None:
            line = play.source[step.ran].removeprefix("    ")
            yield {"line": line, "did": "; ".join(events), "held": step.held[0]}


def _named(effect: str, nodes: list[int], play: Trace) -> list[str]:
    """Name the nodes of an effect, or only the first ones if there are many."""
    if not nodes:
        return []
    names = [_name(node, play) for node in nodes[:_MOST_NAMED]]
    remainder = f" and {len(nodes) - len(names)} more" if len(nodes) > len(names) else ""
    return [f"{effect} {', '.join(names)}{remainder}"]


def _name(node: int, play: Trace) -> str:
    recorded = play.nodes[node]
    return f"leaf {recorded.label}" if recorded.leaf else recorded.name
