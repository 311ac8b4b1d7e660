"""Play a trace in a live notebook: an anywidget around :mod:`gradtrace.player.page`.

A page that :func:`gradtrace.player.page.static_html` made needs no kernel. While one runs, page and
player change together without a view, because front ends create a model of each widget.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import anywidget
import traitlets

from gradtrace.player.page import module, payload
from gradtrace.tracing.steps import TraceData


class Player(anywidget.AnyWidget):
    """An ipywidget that plays one trace at a time.

    ``trace`` is a :func:`gradtrace.player.page.payload`; ``step`` is the step shown, from 0. A new
    trace keeps the step, or begins at its last step if it has fewer. ``question`` is asked first,
    unless it is None, and ``answer`` lists the reader's choices. ``setting`` holds, for each
    control, the index of its option, None for another value. ``controls`` are as
    :func:`gradtrace.player.page.static_html` takes them; they may have more options.

    The players with this ``key`` are synchronized with this widget, none if it is empty; if several
    widgets have the same key, with the newest one.
    """

    _esm = module()
    trace = traitlets.Dict().tag(sync=True)
    step = traitlets.Int().tag(sync=True)
    question = traitlets.Dict(None, allow_none=True).tag(sync=True)
    answer: Any = traitlets.List().tag(sync=True)
    setting: Any = traitlets.List().tag(sync=True)
    controls: Any = traitlets.List().tag(sync=True)
    key = traitlets.Unicode().tag(sync=True)
    born = traitlets.Float().tag(sync=True)

    def __init__(self, trace: TraceData, **kwargs: Any):
        super().__init__(
            trace=payload(trace),
            born=time.time(),  # also later than one of a kernel that was restarted
            **kwargs,
        )
        # Runs a program that a reader wrote; it may raise ValueError.
        self.run_source: Callable[[str], None] | None = None
        self.on_msg(self._received)

    def show(self, trace: TraceData, setting: Sequence[int | None] = ()) -> None:
        """Play another trace from the current step, or from its last step if it has fewer."""
        with self.hold_sync():
            self.setting = list(setting)
            self.trace = payload(trace)

    def _received(self, _: Any, content: Any, buffers: Any) -> None:
        """Answer a page that looks for its kernel; run a program that the reader wrote."""
        if content == "there?":
            self.send("here")
        elif isinstance(content, dict) and "source" in content and self.run_source is not None:
            try:
                self.run_source(content["source"])
            except (TypeError, ValueError) as error:
                self.send({"refused": str(error)})

    @traitlets.observe("trace")
    def _another_trace(self, change: dict[str, Any]) -> None:
        self.step = min(self.step, self.trace["last"])

    @traitlets.validate("step")
    def _within_the_trace(self, proposal: dict[str, Any]) -> int:
        return max(0, min(proposal["value"], self.trace["last"]))
