"""What a grading leaves for people: a table of all submissions, and a page for each.

Everything of a student's is text here.  In ``grades.csv`` no cell begins with a sign that makes a
spreadsheet take it for a formula.  On the page (``feedback.html``) Jinja escapes every value, and a
Content-Security-Policy forbids scripts should one get through all the same.  Neither holds a hidden
input: of the questions there are findings in words, of the student's there are the answer and what
it printed when it was defined.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from backward_twice.grading.judge import CRASHED, FAILED, MEMORY, PASSED, TIMEOUT, Json
from backward_twice.grading.master import Master
from backward_twice.grading.submissions import shown

_FORMULA = tuple("=+-@＝＋－＠")
_OUTCOMES = {
    PASSED: "right",
    FAILED: "not right",
    TIMEOUT: "not judged: it took too long",
    MEMORY: "not judged: it took too much memory",
    CRASHED: "not judged: the program was ended",
}
_PAGES = Environment(
    loader=PackageLoader("backward_twice.grading", "."),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)


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
    """``cell`` as text that no spreadsheet runs, on one line.

    >>> safe("=HYPERLINK(1)"), safe("a\\tb"), safe("Zoë")
    ("'=HYPERLINK(1)", 'a\\\\tb', 'Zoë')
    """
    cell = shown(cell)
    return f"'{cell}" if cell.lstrip().startswith(_FORMULA) else cell


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


def page(result: Json, master: Master, said: Sequence[str]) -> str:
    """The feedback on a result as HTML."""
    asked = {each.id: each for each in master.questions}
    left = list(result["cells"])
    questions = []
    for found in result["questions"]:
        answer = asked[found["id"]].answer
        # Two questions may be about one answer; it is shown with the first.
        cells = [cell for cell in left if cell["answer"] == answer]
        left = [cell for cell in left if cell["answer"] != answer]
        questions.append(
            found
            | {
                "title": asked[found["id"]].title,
                "outcome": _OUTCOMES[found["outcome"]],
                "points": f"{found['points']:g}",
                "max_points": f"{found['max_points']:g}",
                "cells": cells,
            }
        )
    if not questions:
        said = [result["state"], *said]
    return _PAGES.get_template("feedback.html").render(
        student=shown(result["student"]),
        assignment=result["assignment"],
        points=f"{result['points']:g}",
        max_points=f"{result['max_points']:g}",
        said=[*said, *([result["detail"]] if result["detail"] else [])],
        questions=questions,
    )


def write_page(folder: Path, result: Json, master: Master, said: Sequence[str]) -> None:
    """Write a result's feedback to ``folder/<student>/<assignment>/<assignment>.html``.

    Raises:
        OSError: it cannot be written.
        ValueError: the student's name is none of a folder.
    """
    student, assignment = result["student"], result["assignment"]
    if student in ("", ".", "..") or "/" in student or "\0" in student:
        raise ValueError(f"{student!r} is no name of a folder")
    path = folder / student / assignment / f"{assignment}.html"
    text = page(result, master, said).encode("utf-8", "replace")
    if path.is_file() and path.read_bytes() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.new")
    half.write_bytes(text)
    half.replace(path)


def summary(rows: Iterable[Row], places: Sequence[str | os.PathLike[str]]) -> str:
    """How many submissions there are of each state, and where the results are."""
    states = Counter(each.state.partition(":")[0] for each in rows)
    lines = [f"{number:6} {state}" for state, number in sorted(states.items())]
    lines.append(f"{sum(states.values()):6} submissions")
    return "\n".join([*lines, *(f"  {place}" for place in places)])
