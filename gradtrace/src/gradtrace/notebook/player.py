"""Play a trace in a live notebook: an anywidget around the front end of :mod:`gradtrace.page`.

That front end is the module of :class:`Player`, an ordinary ipywidget whose ``trace``, ``step`` and
``answer`` can be observed and linked.
"""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from gradtrace.page import module, payload
from gradtrace.steps import Trace


class Player(anywidget.AnyWidget):
    """An ipywidget that plays one trace at a time.

    ``trace`` is a :func:`gradtrace.page.payload`; ``step`` is the step shown, from 0; both can be
    set, observed and linked.  The step survives a change of trace as far as it goes.  ``question``
    is what is asked first, None for nothing, and ``answer`` lists what the reader chose.

    >>> from gradtrace import trace
    >>> def fine():
    ...     return 1
    >>> player = Player(trace(fine))
    >>> player.step
    0
    """

    _esm = module()
    trace = traitlets.Dict().tag(sync=True)
    step = traitlets.Int().tag(sync=True)
    question = traitlets.Dict(None, allow_none=True).tag(sync=True)
    answer: Any = traitlets.List().tag(sync=True)

    def __init__(self, trace: Trace, **kwargs: Any):
        super().__init__(trace=payload(trace), **kwargs)

    def show(self, trace: Trace) -> None:
        """Play another trace, at the step that is shown as far as it goes."""
        self.trace = payload(trace)

    @traitlets.observe("trace")
    def _another_trace(self, change: dict[str, Any]) -> None:
        self.step = min(self.step, len(self.trace["steps"]) - 1)

    @traitlets.validate("step")
    def _within_the_trace(self, proposal: dict[str, Any]) -> int:
        return max(0, min(proposal["value"], len(self.trace["steps"]) - 1))
