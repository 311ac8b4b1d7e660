"""The teacher's tables, ``grades.csv`` and ``class.csv``, and the command's summary.

``grades.csv`` has a row for each submission, and for each exercise that a listed person did not
hand in.  ``class.csv`` has one for each student and a column for each exercise, in the form of the
class list, so that the platform of the list can import it.  Canvas wants ``Student``, ``ID`` and
``Section`` in front and may have a row of points possible (lib/gradebook_importer.rb in
github.com/instructure/canvas-lms); Moodle takes any columns and asks which is which
(docs.moodle.org, "Grade import").
"""

import csv
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backward_twice.grading import atomic
from backward_twice.grading.intake.submissions import shown
from backward_twice.grading.judging.grader import Json
from backward_twice.grading.judging.journal import Score
from backward_twice.grading.platforms.roster import Person, Roster
from backward_twice.grading.platforms.spreadsheet import safe


@dataclass(frozen=True)
class Row:
    """A line of ``grades.csv``."""

    student: str
    assignment: str
    points: float
    max_points: float
    state: str
    detail: str
    name: str = ""
    identifier: str = ""
    earlier_points: str = ""
    person: Person | None = None  # of the class list; not a cell of the line


NOTHING = "nothing handed in"
"""The state of a person in the class list without a submission."""

IN_A_GROUP = "in a group"
"""The state of a person whose group has handed in; the group's submission has its own row."""


def row(
    result: Json,
    remarks: Sequence[str],
    person: Person | None = None,
    earlier: Sequence[Score] = (),
) -> Row:
    """Return the row of a result, with remarks and the scores of ``earlier`` gradings."""
    detail = "; ".join([*remarks, *([result["detail"]] if result["detail"] else [])])
    return Row(
        *(result[name] for name in ("student", "assignment", "points", "max_points", "state")),
        detail,
        *((person.name, person.identifier) if person else ("", "")),
        "; ".join(f"{_points(score.points)} ({score.graded[:10]})" for score in earlier),
        person,
    )


def without(person: Person, assignment: str, max_points: float) -> Row:
    """Return the row of a person who handed in nothing."""
    identity = person.name, person.identifier, "", person
    return Row(person.identifier, assignment, 0.0, max_points, NOTHING, "", *identity)


def with_group(person: Person, of_group: Row) -> Row:
    """Return the row of a person whose group handed in a submission."""
    return replace(
        of_group,
        student=person.identifier,
        state=IN_A_GROUP,
        detail=f"{of_group.student}: {of_group.state}",
        name=person.name,
        identifier=person.identifier,
        person=person,
    )


def write_table(path: Path, rows: Iterable[Row]) -> None:
    """Write ``grades.csv``."""
    with _table(path) as writer:
        *columns, _ = Row.__dataclass_fields__
        writer.writerow(columns)
        for line in rows:
            values = [getattr(line, column) for column in columns]
            writer.writerow([safe(v) if isinstance(v, str) else _points(v) for v in values])


def write_class(
    path: Path, rows: Iterable[Row], roster: Roster | None, max_points: Mapping[str, float]
) -> list[str]:
    """Write ``class.csv``: each student's points in each of the exercises ``max_points``.

    A cell is empty if nothing was handed in, or two submissions are the same person's.  ``rows``
    are those of ``grades.csv`` except groups'.  Return warnings for the teacher.
    """
    points: dict[Person | str, dict[str, list[Row]]] = {}
    for result_row in rows:
        if result_row.state != NOTHING and result_row.assignment in max_points:
            of = points.setdefault(result_row.person or result_row.student, {})
            of.setdefault(result_row.assignment, []).append(result_row)
    warnings = []
    exercises = sorted(max_points)
    columns = roster.columns if roster else ("student",)
    gap = [""] * (len(columns) - 1)
    with _table(path) as writer:

        def line(who: Sequence[str], of: Mapping[str, list[Row]]) -> None:
            handed = [of.get(exercise, []) for exercise in exercises]
            writer.writerow([*who, *(_points(h[0].points) if len(h) == 1 else "" for h in handed)])
            warnings.extend(_twice(h) for h in handed if len(h) > 1)

        writer.writerow([*columns, *(map(roster.column_of, exercises) if roster else exercises)])
        if roster and roster.is_canvas:
            possible = [_points(max_points[exercise]) for exercise in exercises]
            writer.writerow(["    Points Possible", *gap, *possible])
        for person in roster.people if roster else ():
            line([safe(cell) for cell in person.cells], points.get(person, {}))
        strangers = [student for student in points if isinstance(student, str)]
        for student in strangers:
            line([safe(student), *gap], points[student])
    if roster is not None and strangers:
        listed = ", ".join(map(shown, strangers[:10])) + (", …" if len(strangers) > 10 else "")
        warnings.append(
            f"{len(strangers)} not found in the class list, or ambiguous there: {listed}; "
            "they are the last rows of class.csv"
        )
    return warnings


def _twice(rows: Sequence[Row]) -> str:
    folders = " and ".join(shown(line.student) for line in rows)
    return (
        f"{folders} are the same person in the class list ({rows[0].name}), and each handed in "
        f"{rows[0].assignment}: class.csv has no points for it"
    )


def _points(number: float) -> str:
    return f"{number:.10g}"


@contextmanager
def _table(path: Path) -> Iterator[Any]:
    """Yield a writer of a CSV file that replaces the old file once it is complete."""
    with atomic.replacing(path) as half, half.open("w", encoding="utf-8", newline="") as file:
        yield csv.writer(file, lineterminator="\n")


def summary(rows: Iterable[Row], places: Sequence[str | os.PathLike[str]]) -> str:
    """Describe how many submissions have each state, and where the results are."""
    states = Counter(line.state.partition(":")[0] for line in rows)
    lines = [f"{number:6} {state}" for state, number in sorted(states.items())]
    absent = states[NOTHING] + states[IN_A_GROUP]
    lines.append(f"{states.total() - absent:6} submissions")
    return "\n".join([*lines, *(f"  {place}" for place in places)])
