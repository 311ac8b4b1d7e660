"""``%explain --fix``: the repair of a notebook's failing cell, where its state can be rebuilt.

The cells that ran, in the order in which they ran, are a script.  They rebuild the state if that
script fails as the notebook did; this is seen by running it.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from gradtrace.repair.command import MISSING, is_installed

_EXPORT = (
    "Export it and repair the script: jupyter nbconvert --to script notebook.ipynb, then "
    "gradtrace fix notebook.py."
)
# What a notebook asks of IPython, and no state follows from.
_WITHOUT_STATE = re.compile(r"\s*%(load_ext|reload_ext|explain|matplotlib|config)\b.*")
_MAGIC = re.compile(r"^\s*[%!]|get_ipython\(\)", re.MULTILINE)


def script_of(cells: list[str]) -> str:
    """The cells as one script, each under its number.

    Raises:
        ValueError: one of them is more than Python.

    >>> print(script_of(["x = 1", "%load_ext gradtrace", "x += 1"]))
    # Cell In[1]
    x = 1
    <BLANKLINE>
    # Cell In[3]
    x += 1
    <BLANKLINE>
    """
    parts = []
    for number, cell in enumerate(cells, 1):
        lines = [line for line in cell.splitlines() if not _WITHOUT_STATE.fullmatch(line)]
        text = "\n".join(lines).strip("\n")
        if _MAGIC.search(text):
            raise ValueError(f"cell In[{number}] asks something of IPython")
        if text.strip():
            parts.append(f"# Cell In[{number}]\n{text}\n")
    return "\n".join(parts)


def fix(ipython: Any) -> str:
    """What is to be said about the last error of this notebook."""
    from gradtrace.repair import report
    from gradtrace.repair.proof import prove
    from gradtrace.repair.run.observations import Limits
    from gradtrace.repair.run.worker import Worker

    if not is_installed():
        return MISSING
    error = getattr(sys, "last_value", None)
    if error is None:
        return "there is no error to repair: run %explain --fix after one was raised"
    cells = list(ipython.history_manager.input_hist_raw)[1:-1]  # without the one that asks
    try:
        text = script_of(cells)
    except ValueError as reason:
        return f"This notebook's state cannot be rebuilt: {reason}. {_EXPORT}"
    print("The cells that ran are run again, several times, as one script: what they write is")
    print("written, and what they send is sent, each time.")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "cells.py"
        script.write_text(text, encoding="utf-8")
        with Worker([str(script)], folder=str(Path.cwd())) as worker:
            proof = prove(worker, Limits())
            again = (proof.original.error or "no error").partition("\n")[0]
            if again != f"{type(error).__name__}: {error}".partition("\n")[0]:
                return (
                    "This notebook's state cannot be rebuilt: its cells, run again in the order "
                    f"in which they ran, end with {again}. {_EXPORT}"
                )
            return report.text(proof)
