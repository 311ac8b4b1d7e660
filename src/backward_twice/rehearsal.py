"""Run an answer in the learner's notebook with only the code that the grader will take.

In a notebook a name stays defined after its cell was changed or deleted.  The grader runs only the
answer cell and the definitions and imports of other cells that it uses, in a fresh namespace.
"""

import contextlib
import io
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from backward_twice.cell_sources import defined_names, needed, read, used_names


def why_not_graded(name: str, answer: Any, test_cell: str, asks: Callable[[Any], str]) -> str:
    """Return why the grader would judge a passing answer differently; "" if no reason is found.

    Args:
        name: the name that the answer cell defines.
        test_cell: the id of the cell that checks the answer.
        asks: judges another answer, and returns what is wrong with it, or "".
    """
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    if shell is None:
        return ""
    cells = _cells(shell)
    definers = [i for i, cell in enumerate(cells) if name in defined_names(cell)]
    if not definers:
        return ""
    if shell.user_ns.get(name) is not answer and _wrong(asks, shell.user_ns.get(name)):
        return f"the grader uses {name}, but this cell checked another object"
    if definers[-1] == len(cells) - 1 and _current_cell(shell) in (test_cell, None):
        return (
            f"{name} is defined in the cell that checks it, which the grader replaces: write "
            f"{name} into the answer cell above"
        )
    cell = cells.pop(definers[-1])
    own_names = defined_names(cell)
    helpers = needed(used_names(cell) - own_names, cells, own_names)
    fresh = {"__name__": "__main__", "get_ipython": lambda: _NoShell()}
    with _as_it_was():
        try:
            exec("\n".join(helpers), fresh)
            exec(cell, fresh)
            wrong = _wrong(asks, fresh[name])
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
    return wrong and (
        "the grader runs the answer's cell with only the imports, functions, classes and "
        f"assignments that it uses from other cells, and then the result differs: {wrong}"
    )


def _wrong(asks: Callable[[Any], str], answer: Any) -> str:
    """Describe an answer's error or wrong result; "" if the answer is right."""
    try:
        return asks(answer)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


class _NoShell:
    """A stand-in for IPython whose magic commands do nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def _cells(shell: Any) -> list[str]:
    """Return the cells that were run, as Python, without a first line such as ``%%time``."""
    history = shell.history_manager
    if history is None:  # a shell that keeps none
        return []
    return [
        read(typed).text if python.startswith(_CELL_MAGIC) else python
        for python, typed in zip(history.input_hist_parsed, history.input_hist_raw, strict=False)
    ]


_CELL_MAGIC = "get_ipython().run_cell_magic("


def _current_cell(shell: Any) -> str | None:
    """Return the id of the running cell, if the front end reports it (JupyterLab does)."""
    try:
        return shell.get_parent()["metadata"].get("cellId")
    except (AttributeError, KeyError, TypeError):
        return None


@contextlib.contextmanager
def _as_it_was() -> Iterator[None]:
    """Suppress output; at the end restore random states, default dtype and gradient mode."""
    state, dtype, recording = random.getstate(), torch.get_default_dtype(), torch.is_grad_enabled()
    with (
        torch.random.fork_rng(devices=[]),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        try:
            yield
        finally:
            random.setstate(state)
            torch.set_default_dtype(dtype)
            torch.set_grad_enabled(recording)
