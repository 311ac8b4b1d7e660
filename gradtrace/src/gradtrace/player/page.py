"""Traces as self-contained HTML, into which the JavaScript modules of ``player/`` are written."""

import functools
import html
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gradtrace.draw.layout import drawings_of
from gradtrace.player.outcome import describe_outcome
from gradtrace.player.prompt import Question
from gradtrace.player.trace_scene import scene_of
from gradtrace.tracing.packing import packed
from gradtrace.tracing.steps import TraceData

_PLAYER = Path(__file__).parent
_MODULES = (
    "dom", "python", "trace", "timeline", "inside", "words", "references", "narrow", "panel",
    "graph", "source", "variables", "memory", "controls", "edits", "answers", "question",
    "bar", "player", "live", "mount", "widget",
)  # fmt: skip


@functools.cache
def module() -> str:
    """Return the front end as one ES module: the style sheet, then the modules of ``player/``.

    They share one scope, so the imports between them are left out, as are indentation and comments.
    The default export is the object that anywidget renders with; ``mountAll()`` builds all players.
    """
    style = (_PLAYER / "player.css").read_text(encoding="utf-8")
    style = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)).strip()
    style = re.sub(r'("[^"]*")| ?([{};,>]) ?|(:) ', r"\1\2\3", style).replace(";}", "}")
    parts = [f"const STYLE = {json.dumps(style)};"]
    for name in _MODULES:
        text = (_PLAYER / f"{name}.js").read_text(encoding="utf-8")
        text = re.sub(r"^\s*(//[^\n]*|/\*\*.*?\*/)\n", "", text, flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r" +// .*$", "", text, flags=re.MULTILINE)
        text = re.sub(r"^import [^;]*;\n", "", text, flags=re.MULTILINE)
        text = re.sub(r"^export (?!default)", "", text, flags=re.MULTILINE)
        lines = (line.strip() for line in text.splitlines() if line.strip())
        text = "\n".join(lines)
        # Notebooks store each line apart.
        text = re.sub(r"(?<=[{}()\[,;>=?+&])\n(?!export)|\n(?=[.?:&|}\])])", "", text)
        parts.append(re.sub(r"[,;]+(?=})|,(?=[\])])", "", text))
    return "\n".join(parts)


def payload(trace: TraceData) -> dict[str, Any]:
    """Return the data that the front end needs to play ``trace``, ready for JSON."""
    return {
        "function": trace.function,
        "error": trace.error and asdict(trace.error),
        "last": len(trace.steps) - 1,
        "records": packed(_played(trace)),
    }


def _played(trace: TraceData) -> dict[str, Any]:
    """Return a trace with its drawings and its outcome."""
    views = drawings_of(scene_of(trace))
    return vars(trace) | {"views": views, "outcome": describe_outcome(trace)}


def static_html(
    traces: Sequence[TraceData],
    controls: Sequence[dict[str, Any]] = (),
    initial: Sequence[int] = (),
    *,
    question: Question | None = None,
    key: str = "",
    carrier: str = "",
    above: str = "",
) -> str:
    """Return self-contained HTML that plays the traces without a kernel and without a network.

    Args:
        traces: one for each setting of the controls, the last control changing fastest.
        controls: for each, ``{"name", "kind", "options"}`` as ``gradtrace.explore`` makes them.
        initial: for each control, the index of the option to begin with.
        question: the question that is asked before anything is shown.
        key: identifies the live :class:`~gradtrace.Player` that the page joins, if there is one.
        carrier: the function whose player on the same page contains the front end, if this one
            leaves it out; else empty.
        above: the first part of a page without scripts; by default instructions for a notebook.

    Without scripts the page shows the outcome of each setting as text, folded below a question.
    """
    where_the_script_is = (
        f" The notebook stores the player's script once, with the first player ({carrier}). "
        "Scroll to that player, or run this cell with a kernel."
    )
    above = above or _hint(
        f"In Jupyter, run the cell or trust the notebook.{where_the_script_is if carrier else ''}"
    )
    played = [_played(trace) for trace in traces]
    data = {
        "controls": list(controls),
        "initial": list(initial),
        "step": None,  # where it opens, which a page that shows stored players may set
        "question": question and asdict(question),
        "function": traces[0].function,
        "source": traces[0].source,
        "records": packed(played),
    }
    # In a script element only "<" can do harm: "</script>" would end it.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    asks = "" if question is None else f' data-question="{html.escape(question.prompt)}"'
    joins = key and f' data-key="{html.escape(key)}"'
    name, high = html.escape(traces[0].function), _height(played, data)
    return (
        f'<div class="gradtrace" data-function="{name}"{asks}{joins} style="--high: {high}px">'
        f"<style>{_UNBUILT}</style>"
        f"<div><div>{above}{_as_text(traces, controls, question)}</div></div>"
        f'<script type="application/json">{text}</script>'
        f"{_JOIN if carrier else _FRONT_END.format(module())}"
        "</div>"
    )


def framed(page: str) -> str:
    """Return the page in an ``<iframe>``, for hosts such as marimo that do not run its scripts."""
    return (
        '<iframe title="player" width="100%" height="720" frameborder="0" '
        f'srcdoc="{html.escape(page)}"></iframe>'
    )


def standalone(
    traces: Sequence[TraceData],
    title: str,
    controls: Sequence[dict[str, Any]] = (),
    initial: Sequence[int] = (),
    *,
    question: Question | None = None,
) -> str:
    """Return a whole page around :func:`static_html`, which works as a file and from a server.

    Without scripts the page shows the program's source, too.
    """
    name = html.escape(title)
    above = _hint("Save this file, and open it in a browser.") + _program(traces[0])
    player = static_html(traces, controls, initial, question=question, above=above)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{_ASKS_FOR_NOTHING}'
        f"<title>{name}</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<style>{_PAGE}</style></head>"
        f"<body><main><h1>{name}</h1>{player}</main></body></html>"
    )


def write(page: str, path: str | Path) -> None:
    """Write a page to a file; text of the program that is not valid Unicode is replaced."""
    Path(path).write_text(page, encoding="utf-8", errors="backslashreplace")


_FRONT_END = '<script type="module">{}\nmountAll();</script>'
# A player without the front end: where that is there already, it has to look again.
_JOIN = "<script>document.gradtracePlayers?.()</script>"

# Whatever a traced program prints or is called, the page cannot ask for anything outside of it.
_ASKS_FOR_NOTHING = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
    "script-src 'unsafe-inline'; style-src 'unsafe-inline'\">"
)
_PAGE = (
    "body{margin:1rem;font:1rem/1.5 system-ui,sans-serif}h1{font-size:1.3rem}pre{overflow-x:auto}"
)


# Where scripts run, the player's place is kept until it is built. But a mail program's or a forge's
# policy may stop them, so the text appears after some seconds, unless a player has replaced it.
_UNBUILT = (
    ".gradtrace {margin: 1rem 0}"
    "@media screen and (scripting: enabled) {"
    ".gradtrace[data-function] {min-height: var(--high)}"
    ".gradtrace[data-function] > div:not([data-built]) > *"
    " {max-height: 0; overflow: hidden; visibility: hidden; animation: gradtrace-read 0s 4s both}"
    ".gradtrace[data-mounted] > div:not([data-built]) > * {animation: none}"
    "}"
    "@keyframes gradtrace-read {to {max-height: none; overflow: visible; visibility: visible}}"
)


def _height(played: Sequence[dict[str, Any]], data: dict[str, Any]) -> int:
    """Estimate how high the player of these traces will be, in CSS pixels."""
    drawing = min(max(150, *(trace["views"][0].height + 32 for trace in played)), 560)
    rows = min(max(len(step.variables) for trace in played for step in trace["steps"]), 8)
    controls = any(len(control["options"]) > 1 for control in data["controls"])
    return round(460 + drawing + 28 * rows + 47 * controls + 125 * bool(data["question"]))


def _hint(what_to_do: str) -> str:
    return f"<p>The player is missing because scripts do not run here. {what_to_do}</p>"


def _program(trace: TraceData) -> str:
    """Return the source with line numbers, as HTML."""
    wide = len(str(max(trace.source, default=0)))
    lines = [f"{number:>{wide}}  {line}" for number, line in sorted(trace.source.items())]
    return f"<pre>{html.escape(chr(10).join(lines))}</pre>"


def _as_text(
    traces: Sequence[TraceData], controls: Sequence[dict[str, Any]], question: Question | None
) -> str:
    """Return the question, and each setting with its outcome, as an HTML table."""
    rows = []
    for number, trace in enumerate(traces):
        setting = []
        for control in reversed(controls):
            number, choice = divmod(number, len(control["options"]))
            setting.append(f"{control['name']} = {control['options'][choice]}")
        settings = html.escape(", ".join(reversed(setting))) or html.escape(trace.function)
        outcome = html.escape(" ".join(describe_outcome(trace)))
        rows.append(f"<tr><td>{settings}</td><td>{outcome}</td></tr>")
    table = (
        "<table><thead><tr><th>setting</th><th>outcome</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
    if question is None:
        return table
    prompt, explanation = html.escape(question.prompt), html.escape(question.explanation)
    answer = f"<summary>The answer</summary><p>{explanation}</p>{table}"
    return f"<p>{prompt}</p><details>{answer}</details>"
