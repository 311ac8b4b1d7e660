"""A page on a graded class: ``python -m backward_twice.grading.class_report OUT``.

It reads the journal, the masters and the names in ``grades.csv``, runs no student's code, and
writes ``OUT/report.html``.  For programs that compare sources, it also writes
``OUT/answers/<exercise>/<student>.py``, and ``OUT/answers/given/<exercise>.py`` with the code of
the master, the solution included.
"""

import argparse
import csv
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import nbformat

from backward_twice.grading import GradingError, atomic
from backward_twice.grading.feedback.student_page import TEMPLATES
from backward_twice.grading.intake.submissions import in_words, shown
from backward_twice.grading.intake.unpacking import folder_name
from backward_twice.grading.judging.grader import FAILED, PASSED, Json
from backward_twice.grading.judging.journal import Journal, Key, open_journal
from backward_twice.grading.judging.master import Master, QuestionCell, read_masters

_MOST = 8


@dataclass(frozen=True)
class Student:
    """A student in the report: the name, and the address of the feedback page."""

    name: str
    href: str


Counted = list[tuple[str, list[Student], float]]
"""For each value, the students who have it, and their number divided by a total."""


def report(journal: Journal, masters: Mapping[str, Master], names: Mapping[Key, str]) -> str:
    """Return the report as HTML; ``names`` are those of the class list."""
    results: dict[str, list[Json]] = defaultdict(list)
    for key in sorted(journal.keys()):
        if key[1] in masters:
            page = quote(f"feedback/{key[0]}/{key[1]}/{key[1]}.html")
            student = Student(shown(names.get(key) or key[0]), page)
            results[key[1]].append(journal[key] | {"shown": student})
    exercises = [_exercise(masters[name], of_exercise) for name, of_exercise in results.items()]
    return TEMPLATES.get_template("class_report.html").render(exercises=exercises)


def _exercise(master: Master, results: list[Json]) -> Json:
    points = _counted(((f"{r['points']:g}", r["shown"]) for r in results), len(results))
    return {
        "name": master.name,
        "submissions": len(results),
        "states": _most((r["state"].partition(":")[0], r["shown"]) for r in results),
        "max_points": master.max_points,
        "mean": statistics.fmean(result["points"] for result in results),
        "points": sorted(points, key=lambda row: float(row[0])),
        "questions": [_question(cell, results) for cell in master.questions],
    }


def _question(cell: QuestionCell, results: list[Json]) -> Json:
    judged = [
        (question, result["shown"])
        for result in results
        for question in result["questions"]
        if question["id"] == cell.id
    ]
    present = {student for _, student in judged}
    outcomes = [(_outcome(question), student) for question, student in judged]
    outcomes += [("not there", r["shown"]) for r in results if r["shown"] not in present]
    failed = [(question, student) for question, student in judged if question["outcome"] == FAILED]
    order = ("right", "not right", "not written", "not judged", "not there")
    return {
        "id": cell.id,
        "title": cell.title,
        "points": cell.points,
        "outcomes": sorted(_counted(outcomes, len(results)), key=lambda row: order.index(row[0])),
        "properties": _most(
            (name, student) for question, student in failed for name in _properties(question)
        ),
        "beliefs": _most(
            (belief, student)
            for question, student in failed
            for belief in question.get("beliefs", ())
        ),
        "errors": _most(
            (question["error"].strip().splitlines()[-1].partition(":")[0][:80], student)
            for question, student in failed
            if question["error"] and not _is_untouched(question)
        ),
    }


def _outcome(question: Json) -> str:
    if question["outcome"] == FAILED:
        return "not written" if _is_untouched(question) else "not right"
    return "right" if question["outcome"] == PASSED else "not judged"


def _is_untouched(question: Json) -> bool:
    return bool(question["error"]) and question["error"].endswith("is not written yet")


def _properties(question: Json) -> set[str]:
    """Return the wrong properties' names, with ``#`` for the numbers drawn for each student."""
    wrong = (finding["what"] for finding in question["findings"] if not finding["passed"])
    return {re.sub(r"\d+", "#", name) for name in wrong}


def _counted(values: Iterable[tuple[str, Student]], total: int) -> Counted:
    students: dict[str, list[Student]] = defaultdict(list)
    for value, student in values:
        students[value].append(student)
    return [(value, of_value, len(of_value) / total) for value, of_value in students.items()]


def _most(values: Iterable[tuple[str, Student]]) -> Counted:
    return sorted(_counted(values, 1), key=lambda row: -len(row[1]))[:_MOST]


def write_answers(folder: Path, journal: Journal, masters: Mapping[str, Path]) -> None:
    """Write a Python file of each student's answers, and one of all code in each master."""
    for student, exercise in sorted(journal.keys()):
        cells = journal[student, exercise]["cells"] if exercise in masters else []
        if source := "\n\n".join(cell["source"] for cell in cells):
            path = folder / exercise / f"{folder_name(student)}.py"
            atomic.write(path, source.encode("utf-8", "replace"))
    for exercise, path in masters.items():
        cells = nbformat.read(path, as_version=4).cells
        source = "\n\n".join(cell.source for cell in cells if cell.cell_type == "code")
        atomic.write(folder / "given" / f"{exercise}.py", source.encode())


def _names(grades: Path) -> dict[Key, str]:
    if not grades.is_file():
        return {}
    with grades.open(encoding="utf-8", newline="") as file:
        return {(row["student"], row["assignment"]): row["name"] for row in csv.DictReader(file)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m backward_twice.grading.class_report",
        description="Write OUT/report.html, a page on the class that was graded into OUT.",
    )
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--solutions", type=Path, metavar="DIR", default=Path("solutions"))
    options = parser.parse_args(arguments)
    path, page = options.out / "results.jsonl", options.out / "report.html"
    try:
        if not path.is_file():
            raise GradingError(f"nothing was graded into {options.out}: there is no {path}")
        masters = read_masters(options.solutions)
        paths = {name: options.solutions / name / f"{name}.ipynb" for name in masters}
        with open_journal(path) as journal:
            text = report(journal, masters, _names(options.out / "grades.csv"))
            write_answers(options.out / "answers", journal, paths)
        atomic.write(page, text.encode("utf-8", "replace"))
    except (GradingError, OSError) as error:
        reason = in_words(error, options.out) if isinstance(error, OSError) else error
        print(f"error: {reason}", file=sys.stderr)
        return 2
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
