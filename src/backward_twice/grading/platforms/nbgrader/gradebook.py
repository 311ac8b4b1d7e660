"""Write results into nbgrader's gradebook, so that its tools show the same points.

The teacher's entries stay: manual scores, extra credit, comments and due dates are never
overwritten, an extension only by a given one (:meth:`Grades.record`).  nbgrader's
``add_submission`` commits each row, and its relations load a whole class for one student; here all
submissions are committed together.
"""

import logging
import math
import os
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from subprocess import SubprocessError
from typing import Any
from unittest.mock import patch

from nbgrader import api
from sqlalchemy import select, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from backward_twice.grading import GradingError
from backward_twice.grading.intake.submissions import MAX_NAME
from backward_twice.grading.judging.grader import Json
from backward_twice.grading.judging.journal import Key
from backward_twice.grading.judging.master import Master
from backward_twice.grading.platforms.nbgrader.collected import MARKUP
from backward_twice.grading.platforms.roster import Person

COURSE = "backward_twice"
"""The course of assignments that the gradebook does not have yet; as in nbgrader_config.py."""


@dataclass(frozen=True)
class Late:
    """The penalty for late work: a share of the points for each day begun after a grace period."""

    percent: float
    grace: float = 0.0
    """Seconds that are not counted as late."""

    def penalty(self, points: float, seconds: float) -> float:
        """Return the points that are subtracted for a delay in seconds.

        >>> Late(10).penalty(5, 3600), Late(10).penalty(5, 90_000), Late(10, 7200).penalty(5, 3600)
        (0.5, 1.0, 0.0)
        """
        days = math.ceil(max(0.0, seconds - self.grace) / 86_400)
        return min(points, points * self.percent / 100 * days)


@dataclass(frozen=True)
class _Cells:
    """The ids that an assignment's rows have in the gradebook."""

    assignment: str
    notebook: str
    grades: Mapping[str, str]
    solutions: Sequence[str]


class Grades:
    """The gradebook of a grading; open it with :func:`open_gradebook`."""

    def __init__(self, gradebook: api.Gradebook, masters: Mapping[str, Master]) -> None:
        self._db = gradebook.db
        self._cells = {name: _prepared(gradebook, master) for name, master in masters.items()}
        # A gradebook that can only be read is to be noticed now, not after hours of grading.
        self._db.execute(text("UPDATE course SET id = id"))
        self._db.commit()

    def enroll(self, people: Mapping[str, Person]) -> None:
        """Add students by id; fill in missing names and addresses from the class list."""
        for id, person in people.items():
            student = self._row(api.Student, id=id)
            student.first_name = student.first_name or _name(person.first)
            student.last_name = student.last_name or _name(person.last)
            student.email = student.email or person.email[:MAX_NAME] or None
        self._db.commit()

    def record(
        self,
        results: Iterable[Json],
        cost: Late | None = None,
        extensions: Mapping[Key, timedelta] | None = None,
    ) -> Iterator[float]:
        """Upsert results, each with its time in UTC; yield the lateness of each in seconds.

        A result of an unknown assignment is skipped, with lateness 0.  The penalty is stored beside
        the points; without ``cost``, stored penalties stay as they are.  So do stored extensions,
        except those of the students and assignments in ``extensions``.
        """
        for result in results:
            extension = (extensions or {}).get((result["student"], result["assignment"]))
            is_known = result["assignment"] in self._cells
            yield self._record(result, cost, extension) if is_known else 0.0
        self._db.commit()

    def _record(self, result: Json, cost: Late | None, extension: timedelta | None) -> float:
        student, cells = result["student"], self._cells[result["assignment"]]
        self._row(api.Student, id=student)
        submission = self._row(
            api.SubmittedAssignment, assignment_id=cells.assignment, student_id=student
        )
        timestamp = result.get("timestamp")
        submission.timestamp = timestamp and datetime.fromisoformat(timestamp)
        submission.extension = submission.extension if extension is None else extension
        notebook = self._row(
            api.SubmittedNotebook, assignment_id=submission.id, notebook_id=cells.notebook
        )
        points = {question["id"]: question["points"] for question in result["questions"]}
        for question, cell in cells.grades.items():
            grade = self._row(api.Grade, notebook_id=notebook.id, cell_id=cell)
            if grade.auto_score != points.get(question, 0.0):
                grade.auto_score = points.get(question, 0.0)
                # As nbgrader does: who gave points is to see that the automatic ones changed.
                grade.needs_manual_grade = grade.manual_score is not None
        for cell in cells.solutions:  # where Formgrader puts the teacher's comment
            self._row(api.Comment, notebook_id=notebook.id, cell_id=cell)
        # With an extension, but without a due date, nbgrader would add to None.
        late = 0.0 if submission.assignment.duedate is None else submission.total_seconds_late
        if cost is not None:
            notebook.late_submission_penalty = cost.penalty(result["points"], late)
        return late

    def _row(self, table: type, **key: str) -> Any:
        """Return the row of a table that has this key, added if it is missing."""
        row = self._db.scalars(select(table).filter_by(**key)).one_or_none()
        if row is None:
            row = table(**key)
            self._db.add(row)
            self._db.flush()  # it gets its id
        return row


def _name(name: str) -> str | None:
    """Return ``name`` without markup, which Formgrader would not escape, and shortened, or None."""
    return "".join(c for c in name if c not in MARKUP)[:MAX_NAME] or None


def _prepared(gradebook: api.Gradebook, master: Master) -> _Cells:
    """Return the ids of an assignment's rows; add missing ones, and raise if there are others."""
    name = master.name
    try:
        assignment = gradebook.find_assignment(name)
    except api.MissingEntry:
        assignment = gradebook.add_assignment(name)
    notebook = gradebook.update_or_create_notebook(name, name)
    points = {cell.id: cell.points for cell in master.questions}
    foreign = {cell.name for cell in (*notebook.grade_cells, *notebook.task_cells)} - points.keys()
    if foreign:
        listed = ", ".join(sorted(foreign))
        raise GradingError(
            f"the gradebook's {name} has cells that its master lacks: {listed}; "
            f"take another gradebook, or remove it there: nbgrader db assignment remove {name}"
        )
    grades = {
        cell: gradebook.update_or_create_grade_cell(
            cell, name, name, max_score=max_score, cell_type="code"
        ).id
        for cell, max_score in points.items()
    }
    solutions = [
        gradebook.update_or_create_solution_cell(answer.id, name, name).id
        for answer in master.answers
    ]
    return _Cells(assignment.id, notebook.id, grades, solutions)


@contextmanager
def open_gradebook(path: Path, masters: Mapping[str, Master]) -> Iterator[Grades]:
    """Open a gradebook with the masters' assignments; raise GradingError if it cannot take them."""
    api.app_log.setLevel(logging.CRITICAL)  # messages replace its tracebacks, below
    gradebook = None
    folders = [sysconfig.get_path("scripts"), os.environ.get("PATH", "")]
    try:
        # Where nbgrader looks for the program alembic.
        with patch.dict(os.environ, PATH=os.pathsep.join(folders)):
            url = URL.create("sqlite", database=str(path.resolve()))
            gradebook = api.Gradebook(url, COURSE)
        yield Grades(gradebook, masters)
    except (SQLAlchemyError, SubprocessError, api.InvalidEntry) as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise GradingError(f"the gradebook {path} cannot be written: {reason}") from error
    finally:
        if gradebook is not None:
            gradebook.close()
            gradebook.engine.dispose()
