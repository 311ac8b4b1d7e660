"""The public interface of a trace: run a function line by line, and play the recording."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradtrace.player.page import framed, standalone, static_html, write
from gradtrace.tracing.steps import MAX_STEPS, TraceData
from gradtrace.tracing.tracer import record

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def trace(
    fn: Callable[..., Any],
    /,
    *args: Any,
    max_steps: int = MAX_STEPS,
    peaks: bool = False,
    **kwargs: Any,
) -> "Trace":
    """Run ``fn(*args, **kwargs)`` and record the autograd graph before and after each of its lines.

    Only the lines of ``fn`` itself are steps, not those of its calls.  An exception that ends
    ``fn`` becomes part of the trace and is not raised.

    Args:
        fn: a Python function, method, module (its ``forward`` is traced) or other object that can
            be called, with source code.
        max_steps: how many line events to record.  Later ones run at full speed, unrecorded.
        peaks: also count how many bytes of tensors each line had alive at once, ``Step.peak``.
            Only tensors that operations of ``fn`` return are counted, on all devices.

    Raises:
        TypeError: ``fn`` has no Python code, is a generator or coroutine, or takes other arguments.
        ValueError: the source of ``fn`` cannot be found, none of its lines ran, or it switched
            tracing off.
        RuntimeError: gradtrace itself failed while it read the program's state.
        KeyboardInterrupt, SystemExit: passed on; nothing is recorded.

    >>> import torch
    >>> def twice():
    ...     x = torch.ones(3, requires_grad=True)
    ...     y = x.exp().sum()
    ...     y.backward()
    ...     y.backward()
    >>> seen = trace(twice)
    >>> seen.error.type, seen.source[seen.error.line].strip()
    ('RuntimeError', 'y.backward()')
    >>> [seen.nodes[node].name for node in seen.freed]
    ['ExpBackward0']
    """
    return Trace.of(record(fn, args, kwargs, max_steps, peaks))


class Trace(TraceData):
    """The result of :func:`gradtrace.trace`: plain data that can be compared, stored and sent.

    ``steps`` are the states before, between and after the lines. They refer by index to ``nodes``
    and ``tensors``, all those that any step contains. ``source`` maps line numbers, as in the file
    or the notebook cell, to their text. ``statements`` maps the first line of each statement that
    spans several to its last (of a compound statement, to that of its head). ``skipped`` are the
    lines that did not run; after an error, only those of branches not taken. ``error`` is the
    exception that ended the function, if any. ``unrecorded`` counts the lines that ran after
    ``max_steps``. ``calls`` are the calls of modules that ran operations, outer before inner ones.
    """

    @classmethod
    def of(cls, data: TraceData) -> "Trace":
        """Return the same data as a trace that can be plotted and played."""
        return cls(**vars(data))

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the bytes of saved activations over the lines with matplotlib, and return the Axes.

        Each bar stands at the line that has just run.

        Raises:
            ModuleNotFoundError: matplotlib is not installed.
        """
        try:  # of the extra `plot`
            import matplotlib.pyplot as plt
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"Trace.plot needs {error.name}: pip install 'gradtrace[plot]'", name=error.name
            ) from error

        if ax is None:
            _, ax = plt.subplots(figsize=(6, 2.4), layout="constrained")
        ax.bar(range(len(self.steps)), self.retained_bytes, color="#4477aa")
        labels = ["start" if step.ran is None else str(step.ran) for step in self.steps]
        every = max(1, len(labels) // 20)
        ax.set_xticks(range(0, len(labels), every), labels[::every])
        ax.set(xlabel="line that has just run", ylabel="bytes", title="Bytes of saved tensors")
        if self.error is not None:
            ax.annotate(
                self.error.type,
                (len(self.steps) - 1, self.retained_bytes[-1]),
                xytext=(0, 6),
                textcoords="offset points",
                ha="right",
            )
        return ax

    def to_html(self, path: str | Path) -> None:
        """Write a page that plays the trace: one file that works without a server."""
        write(self._page(), path)

    def _page(self) -> str:
        return standalone([self], f"{self.function}, line by line")

    def _mime_(self) -> tuple[str, str]:
        """Return the player in a frame for marimo, which runs no scripts of an output."""
        return "text/html", framed(self._page())

    def _repr_html_(self) -> str:
        return static_html([self])
