"""The page of HTML with a student's feedback, one for each submission.

All data from students is text here: Jinja escapes every value, and the Content-Security-Policy of
``base.html`` forbids scripts in case one gets through.
"""

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from backward_twice.checks.asking import LOOKS_LIKE, MOST_LISTED, SMALLEST_CASE
from backward_twice.grading import atomic
from backward_twice.grading.intake.submissions import shown
from backward_twice.grading.judging.grader import CRASHED, FAILED, MEMORY, PASSED, TIMEOUT, Json
from backward_twice.grading.judging.master import Master

_OUTCOMES = {
    PASSED: "right",
    FAILED: "not right",
    TIMEOUT: "not judged: it took too long",
    MEMORY: "not judged: it took too much memory",
    CRASHED: "not judged: the program was ended",
}
TEMPLATES = Environment(
    loader=PackageLoader("backward_twice.grading.feedback", "."),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)


def page(result: Json, master: Master, remarks: Sequence[str]) -> str:
    """Return the feedback on a result as HTML."""
    cells_by_id = {question_cell.id: question_cell for question_cell in master.questions}
    unused_cells = list(result["cells"])
    questions = []
    for question in result["questions"]:
        answer = cells_by_id[question["id"]].answer
        # Two questions may be about one answer; it is shown with the first.
        cells = [cell for cell in unused_cells if cell["answer"] == answer]
        unused_cells = [cell for cell in unused_cells if cell["answer"] != answer]
        questions.append(
            {"beliefs": [], "case": ""}
            | question
            | {
                **_listed(question["findings"]),
                "title": cells_by_id[question["id"]].title,
                "outcome": _OUTCOMES[question["outcome"]],
                "points": f"{question['points']:g}",
                "max_points": f"{question['max_points']:g}",
                "cells": cells,
            }
        )
    if not questions:
        remarks = [result["state"], *remarks]
    return TEMPLATES.get_template("student_page.html").render(
        student=shown(result["student"]),
        assignment=result["assignment"],
        points=f"{result['points']:g}",
        max_points=f"{result['max_points']:g}",
        said=[*remarks, *([result["detail"]] if result["detail"] else [])],
        questions=questions,
        looks_like=LOOKS_LIKE,
        smallest_case=SMALLEST_CASE.removesuffix(":"),
    )


def _listed(findings: list[Json]) -> Json:
    """Return the findings to list (of many only the wrong ones) and how many are left out."""
    if len(findings) <= MOST_LISTED:
        return {"findings": findings, "more_right": 0}
    wrong = [finding for finding in findings if not finding["passed"]]
    return {"findings": wrong, "more_right": len(findings) - len(wrong)}


def write_page(folder: Path, result: Json, master: Master, said: Sequence[str]) -> None:
    """Write ``<student>/<assignment>/<assignment>.html``; raise ValueError for an unusable name."""
    student, assignment = result["student"], result["assignment"]
    if student in ("", ".", "..") or "/" in student or "\0" in student:
        raise ValueError(f"{student!r} is no name of a folder")
    path = folder / student / assignment / f"{assignment}.html"
    atomic.write(path, page(result, master, said).encode("utf-8", "replace"))
