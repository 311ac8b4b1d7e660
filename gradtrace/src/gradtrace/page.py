"""Traces as a self-contained piece of HTML that plays them without a kernel and without a network.

``player.js`` draws everything.  :func:`static_html` writes it into the page, together with the
traces of every setting of the controls, and it asks for nothing else.  The live widget
(:mod:`gradtrace.notebook.player`) is the same front end, and shows the same :func:`payload`.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradtrace.graph import FREED, MODIFIED
from gradtrace.layout import layout, title
from gradtrace.steps import Raised, Trace

if TYPE_CHECKING:
    from gradtrace.questions import Question

MODULE = Path(__file__).with_name("player.js")


def outcome(trace: Trace) -> list[str]:
    """How the program ended, in sentences.

    >>> from gradtrace import trace
    >>> def fine():
    ...     return 1
    >>> outcome(trace(fine))
    ['Ends without an error.']
    """
    sentences = []
    if trace.error is None:
        sentences.append("Ends without an error.")
    else:
        what = f"{trace.error.type}: {trace.error.message}".removesuffix(": ")
        sentences.append(f"Line {trace.error.line} raises {what}")
        sentences += _cause(trace, trace.error)
    if trace.unrecorded:
        sentences.append(
            f"{trace.unrecorded} further line events ran unrecorded before the last step."
        )
    return sentences


def _cause(trace: Trace, error: Raised) -> list[str]:
    """What an earlier step did to the node in which backward stopped."""
    if error.node is None:
        return []
    for step in trace.steps:
        if step.raised == error:
            break
        state = next((state.state for state in step.nodes if state.node == error.node), None)
        if state in (FREED, MODIFIED) and step.ran is not None:
            saved = "saved tensors were freed" if state == FREED else "saved tensor was changed"
            again = ", when it ran before" if step.ran == error.line else ""
            in_place = " in place" if state == MODIFIED else ""
            return [
                f"Backward stopped in {trace.nodes[error.node].name}, whose {saved}{in_place} by "
                f"line {step.ran}{again}."
            ]
    return []


def payload(trace: Trace) -> dict[str, Any]:
    """What the front end needs to play ``trace``: JSON-ready data."""
    drawn = asdict(layout(trace))
    for box in drawn["boxes"]:
        box["title"] = title(trace, box["nodes"])
    return trace.to_dict() | {"layout": drawn, "outcome": outcome(trace)}


def static_html(
    traces: Sequence[Trace],
    controls: Sequence[dict[str, Any]] = (),
    initial: Sequence[int] = (),
    *,
    step: int | Mapping[str, int] | None = None,
    question: Question | None = None,
) -> str:
    """A self-contained piece of HTML that plays the traces without a kernel and without a network.

    Args:
        traces: one for each setting of the controls, the last control changing fastest.
        controls: for each, ``{"name", "kind", "options"}`` as ``gradtrace.explore`` makes them.
        initial: for each control, the index of the option to begin with.
        step: where the player opens: the index of a step, or ``{"line": n}`` for the first step at
            which line n is next, ``{"after": n}`` for the first after it ran.  None: the first.
        question: what is asked before anything is shown.

    Where scripts do not run, the outcome of each setting is there to read as text; below a question
    it is folded.

    >>> from gradtrace import trace
    >>> "Ends without an error." in static_html([trace(lambda: 1)])
    True
    """
    data = {
        "controls": list(controls),
        "initial": list(initial),
        "step": step if step is None or isinstance(step, int) else dict(step),
        "question": question and asdict(question),
        "traces": [payload(trace) for trace in traces],
    }
    # In a script element only "<" can do harm: "</script>" would end it.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    module = MODULE.read_text(encoding="utf-8")
    return (
        '<div class="gradtrace">'
        f"<div>{_as_text(traces, controls, question)}</div>"
        f'<script type="application/json">{text}</script>'
        f'<script type="module">{module}\nmountAll();</script>'
        "</div>"
    )


def _as_text(
    traces: Sequence[Trace], controls: Sequence[dict[str, Any]], question: Question | None
) -> str:
    """The question, and each setting and its outcome as a table."""
    rows = []
    for number, trace in enumerate(traces):
        setting = []
        for control in reversed(controls):
            number, choice = divmod(number, len(control["options"]))
            setting.append(f"{control['name']} = {control['options'][choice]}")
        when = html.escape(", ".join(reversed(setting))) or html.escape(trace.function)
        rows.append(f"<tr><td>{when}</td><td>{html.escape(' '.join(outcome(trace)))}</td></tr>")
    table = (
        "<table><thead><tr><th>setting</th><th>outcome</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
    if question is None:
        return table
    prompt, told = html.escape(question.prompt), html.escape(question.told)
    return f"<p>{prompt}</p><details><summary>The answer</summary><p>{told}</p>{table}</details>"
