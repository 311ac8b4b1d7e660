"""What the teacher sees: ``grades.csv``, a row for each submission, and the command's last words.

Everything of a student's is text here: no cell, and no part of one behind what some spreadsheet
takes for the end of a cell, begins with a sign that makes it a formula.
"""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from backward_twice.grading.judge import Json
from backward_twice.grading.submissions import shown

# What begins a cell, for a program that separates cells by comma, semicolon, tab or bar, with what
# does not show or is stripped before it, and then makes the cell a formula.
_FORMULA = re.compile(r"""(^|[,;|\t])([\s"'\u200c\u200d]*)(?=[=+\-@＝＋－＠])""")


@dataclass(frozen=True)
class Row:
    """A line of ``grades.csv``."""

    student: str
    assignment: str
    points: float
    max_points: float
    state: str
    detail: str


def row(result: Json, said: Sequence[str]) -> Row:
    """The row of a result; ``said`` are remarks about the submission."""
    detail = "; ".join([*said, *([result["detail"]] if result["detail"] else [])])
    return Row(
        *(result[name] for name in ("student", "assignment", "points", "max_points", "state")),
        detail,
    )


def safe(cell: str) -> str:
    """``cell`` as text that no spreadsheet runs, on one line, however it separates cells.

    >>> safe("=HYPERLINK(1)"), safe("a\\tb"), safe("Zoë"), safe("x;=1+1")
    ("'=HYPERLINK(1)", 'a\\\\tb', 'Zoë', "x;'=1+1")
    """
    return _FORMULA.sub(r"\1'\2", shown(cell))


def write_table(path: Path, rows: Iterable[Row]) -> None:
    """Write ``grades.csv``, at once as a whole: nobody ever reads half of it.

    Raises:
        OSError: it cannot be written; the one before is still there.
    """
    half = path.with_name(f".{path.name}.new")
    try:
        with half.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(Row.__dataclass_fields__)
            for each in rows:
                student, assignment, points, max_points, state, detail = astuple(each)
                numbers = (f"{number:.10g}" for number in (points, max_points))
                writer.writerow(
                    [safe(student), safe(assignment), *numbers, safe(state), safe(detail)]
                )
        half.replace(path)
    except OSError:
        half.unlink(missing_ok=True)
        raise


def summary(rows: Iterable[Row], places: Sequence[str | os.PathLike[str]]) -> str:
    """How many submissions there are of each state, and where the results are."""
    states = Counter(each.state.partition(":")[0] for each in rows)
    lines = [f"{number:6} {state}" for state, number in sorted(states.items())]
    lines.append(f"{sum(states.values()):6} submissions")
    return "\n".join([*lines, *(f"  {place}" for place in places)])
