"""``%explain --fix``: the repair of a notebook's failing cell, where its state can be rebuilt.

The cells that ran, in the order in which they ran, are a script.  They rebuild the state if that
script fails as the notebook did; this is seen by running it.
"""

from __future__ import annotations

import difflib
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from gradtrace.repair.fix_command import MISSING, is_installed

_EXPORT = (
    "Export it and repair the script: jupyter nbconvert --to script notebook.ipynb, then "
    "gradtrace fix notebook.py."
)
# Magics that do not change the state of a notebook.
_WITHOUT_STATE = re.compile(r"\s*%(load_ext|reload_ext|explain|matplotlib|config)\b.*")
_MAGIC = re.compile(r"^\s*[%!]|get_ipython\(\)", re.MULTILINE)
_CELL = re.compile(r"^# Cell In\[(\d+)\]\n", re.MULTILINE)


def script_of(cells: list[str]) -> str:
    """Return the cells as one script, each under its number.

    Raises:
        ValueError: a cell contains something other than Python.

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
        # An empty line takes the place of the magic, so that the lines keep their numbers.
        lines = ["" if _WITHOUT_STATE.fullmatch(line) else line for line in cell.splitlines()]
        text = "\n".join(lines).rstrip("\n")
        if _MAGIC.search(text):
            raise ValueError(f"cell In[{number}] asks something of IPython")
        if text.strip():
            parts.append(f"# Cell In[{number}]\n{text}\n")
    return "\n".join(parts)


def cells_of(script: str) -> dict[str, str]:
    """Return the cells of a script from :func:`script_of`, by their names.

    >>> cells_of("# Cell In[1]\\nx = 1\\n\\n# Cell In[3]\\nx += 1\\n")
    {'In[1]': 'x = 1\\n', 'In[3]': 'x += 1\\n'}
    """
    _, *parts = _CELL.split(script)
    texts = zip(parts[::2], parts[1::2], strict=True)
    return {f"In[{number}]": f"{text.rstrip()}\n" for number, text in texts}


def name_lines(text: str, script: str) -> str:
    """Rewrite lines of the script into lines of its cells.

    >>> name_lines("at line 5", "# Cell In[1]\\nx = 1\\n\\n# Cell In[3]\\nx += 1\\n")
    'at line 1 of In[3]'
    """

    def cell_line(mark: re.Match[str]) -> str:
        line = int(mark[1])
        above = script.split("\n")[:line]
        for offset, header in enumerate(reversed(above)):
            if cell := _CELL.fullmatch(f"{header}\n"):
                return f"line {offset} of In[{cell[1]}]"
        return mark[0]

    return re.sub(r"\bline (\d+)\b", cell_line, text)


def diff_cells(script: str, edited: str) -> str:
    """Return a unified diff of each cell that an edit of the script changes."""
    old_cells, new_cells = cells_of(script), cells_of(edited)
    parts: list[str] = []
    for name, text in old_cells.items():
        lines = text.splitlines(keepends=True), new_cells[name].splitlines(keepends=True)
        parts += difflib.unified_diff(*lines, name, name)
    return "".join(parts)


def fix(ipython: Any) -> str:
    """Return the repair of the notebook's last error as text, or why there is none."""
    if not is_installed():
        return MISSING
    from gradtrace.repair import proof_text
    from gradtrace.repair.proof import prove
    from gradtrace.repair.run.observations import RunLimits
    from gradtrace.repair.run.processes import Launcher

    error = getattr(sys, "last_value", None)
    if error is None:
        return "there is no error to repair: run %explain --fix after one was raised"
    cells = list(ipython.history_manager.input_hist_raw)[1:-1]  # without the cell that runs this
    try:
        text = script_of(cells)
    except ValueError as reason:
        return f"This notebook's state cannot be rebuilt: {reason}. {_EXPORT}"
    print("gradtrace runs the executed cells again, several times, as one script. Each run really")
    print("writes their files and sends their requests.")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "cells.py"
        script.write_text(text, encoding="utf-8")
        with Launcher([str(script)], folder=str(Path.cwd())) as launcher:
            proof = prove(launcher, RunLimits())
            error_of_script = (proof.original.error or "no error").partition("\n")[0]
            if error_of_script != f"{type(error).__name__}: {error}".partition("\n")[0]:
                return (
                    "This notebook's state cannot be rebuilt: its cells, run again in the order "
                    f"in which they ran, end with {error_of_script}. {_EXPORT}"
                )
    if any(candidate.edits.keys() != {str(script)} for candidate in proof.listed):
        return proof_text.text(proof)  # a module of the reader's is edited, too
    return proof_text.text(
        proof,
        diff=lambda candidate: diff_cells(text, candidate.edits[str(script)]),
        rename=lambda line: name_lines(line, text),
    )
