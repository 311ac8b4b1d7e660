"""``%explain --fix``: the repair of a notebook's failing cell.

The cells that ran, in the order in which they ran, make a script. It stands for the notebook if it
ends in the same error, which only a run can show.
"""

import difflib
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gradtrace.repair import proof_text
from gradtrace.repair.proof import prove
from gradtrace.repair.rule import Candidate
from gradtrace.repair.run.observations import RunLimits
from gradtrace.repair.run.processes import Launcher

_CELL = re.compile(r"^# Cell In\[(\d+)\]\n", re.MULTILINE)
# Lines for IPython or the shell, and cells in another language; what they did is not repeated.
_MAGIC_LINE = re.compile(r"^([ \t]*)(?:%time[ \t]+(.*)|[%!].*)$", re.MULTILINE)
_FOREIGN_CELL = re.compile(r"%%(?!time\b|capture\b)")


def script_of(cells: Mapping[int, str]) -> str:
    """Return the Python cells as one script, each below its number, without their magics.

    >>> script_of({1: "%%time\\nx = 1", 2: "!ls", 3: "%%bash\\nls", 4: "\\n%time x += 1"})
    '# Cell In[1]\\n\\nx = 1\\n\\n# Cell In[2]\\n\\n\\n# Cell In[4]\\n\\nx += 1\\n'
    """
    return "\n".join(
        # An empty line takes the place of a magic, so that the other lines keep their numbers.
        f"# Cell In[{number}]\n" + _MAGIC_LINE.sub(r"\1\2", cell) + "\n"
        for number, cell in cells.items()
        if not _FOREIGN_CELL.match(cell)
    )


def name_lines(text: str, script: str) -> str:
    """Replace the script's line numbers in a text by lines of the cells.

    >>> name_lines("at line 5", "# Cell In[1]\\nx = 1\\n\\n# Cell In[3]\\nx += 1\\n")
    'at line 1 of In[3]'
    """

    def cell_line(mark: re.Match[str]) -> str:
        above = script.split("\n")[: int(mark[1])]
        for offset, header in enumerate(reversed(above)):
            if cell := _CELL.fullmatch(f"{header}\n"):
                return f"line {offset} of In[{cell[1]}]"
        return mark[0]

    return re.sub(r"\bline (\d+)\b", cell_line, text)


def diff_cells(script: str, edited: str) -> str:
    """Return a unified diff of each cell that an edit of the script changes."""
    _, *old_cells = _CELL.split(script)
    _, *new_cells = _CELL.split(edited)
    parts: list[str] = []
    for number, old, new in zip(old_cells[::2], old_cells[1::2], new_cells[1::2], strict=True):
        old_lines, new_lines = (f"{text.rstrip()}\n".splitlines(True) for text in (old, new))
        parts += difflib.unified_diff(old_lines, new_lines, f"In[{number}]", f"In[{number}]")
    return "".join(parts)


def fix_cells(cells: Mapping[int, str], error: BaseException) -> str:
    """Return the repair of the error that ended the last of these cells, or why there is none."""
    # Modules of the notebook are found in its folder; the line stands above the first cell.
    text = f"import sys; sys.path[0] = {str(Path.cwd())!r}\n{script_of(cells)}"
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "cells.py"
        script.write_text(text, encoding="utf-8")
        with Launcher([str(script)]) as launcher:
            proof = prove(launcher, RunLimits())

        def diff(candidate: Candidate) -> str:
            if candidate.edits.keys() != {str(script)}:
                return proof_text.diff(candidate)  # it edits a module of the reader
            return diff_cells(text, candidate.edits[str(script)])

        last_line = (proof.original.error or "no error").partition("\n")[0]
        if last_line != f"{type(error).__name__}: {error}".partition("\n")[0]:
            return (
                f"The cells, run again as one script, end with {last_line}, so their state "
                "cannot be rebuilt. Restart the kernel, run all cells and try again, or export the "
                "notebook (jupyter nbconvert --to script) and run gradtrace fix on the script."
            )
        return proof_text.text(proof, diff, lambda line: name_lines(line, text))
