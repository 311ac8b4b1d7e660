"""Read the class list that a platform exports: its persons, with names and numbers.

It is a CSV file with a header: Canvas's export of its gradebook, Moodle's list of participants,
export of grades or grading worksheet, GitHub Classroom's roster, or a file written by hand.  The
columns that identify persons keep their content and order, because the platform needs them when it
imports points.
"""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from backward_twice.grading import GradingError
from backward_twice.grading.platforms.names import words

_MAX_BYTES = 20_000_000

_IDENTIFIERS = (
    *("sis login id", "sis user id", "username", "id number", "email address", "email", "id"),
    *("student id", "identifier", "github username", "integration id"),
)
"""Columns that tell one person from all others; the first that is there names the student."""
_NAMES = ("student", "name", "full name", "first name", "firstname", "last name", "lastname")
_NAMES = (*_NAMES, "surname")
_GROUPS = ("groups", "group")
_WHERE = ("section", "root account", "department", "institution", *_GROUPS)
_KEPT = {*_IDENTIFIERS, *_NAMES, *_WHERE}
_KINDS = {
    **dict.fromkeys(("sis login id", "username"), "login"),
    **dict.fromkeys(("sis user id", "id number", "student id", "id", "integration id"), "number"),
    **dict.fromkeys(("email address", "email"), "email"),
    "github username": "github",
}
"""The kind of identifier in a column; only identifiers of the same kind are compared."""
_PARTICIPANT = re.compile(r"Participant (\d+)")
"""Moodle's number of a person in one assignment, as its grading worksheet writes it."""


@dataclass(frozen=True)
class Person:
    """A person in the class list: the cells in ``Roster.columns``, and names and identifiers."""

    cells: tuple[str, ...]
    name: str
    identifier: str
    first: str = ""
    last: str = ""
    email: str = ""
    marks: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The person's identifiers by kind, as in :data:`.people.KINDS`."""


@dataclass(frozen=True)
class Roster:
    """The class: the columns that identify a person, the other columns, and the persons."""

    columns: tuple[str, ...]
    other_columns: tuple[str, ...]
    people: tuple[Person, ...]

    @property
    def is_canvas(self) -> bool:
        """Whether the columns are those of Canvas, which allows a row of possible points."""
        return self.columns[0] == "Student" and "Section" in self.columns

    def members(self, name: str) -> Sequence[Person]:
        """Return the members of the group of this name, as Moodle writes it into file names."""
        return self._groups.get(words(name), ())

    def column_of(self, exercise: str) -> str:
        """Return the heading of the column with an exercise's points, else the exercise's name.

        Canvas writes ``two_losses (4711)``, Moodle ``Assignment: two_losses (Real)``.
        """
        exercise_words = words(exercise)
        for column in self.other_columns:
            bare = re.sub(r"\s*\((?:\d+|real|points)\)$", "", column.strip(), flags=re.I)
            if words(re.sub(r"^assignment:", "", bare, flags=re.I)) == exercise_words:
                return column
        return exercise

    @cached_property
    def _groups(self) -> Mapping[frozenset[str], list[Person]]:
        places = [i for i, name in enumerate(self.columns) if name.strip().casefold() in _GROUPS]
        groups: dict[frozenset[str], list[Person]] = defaultdict(list)
        for person in dict.fromkeys(self.people):
            cells = [person.cells[i] for i in places]
            names = [name for cell in cells for name in (cell, *cell.split(",")) if name.strip()]
            for group in set(map(words, names)):
                groups[group].append(person)
        return groups


def read_roster(path: Path) -> Roster:
    """Read a class list; raise GradingError if that fails, or no column identifies persons."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise GradingError(f"{path} is not a class list: it has more than 20 MB")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise GradingError(f"the class list {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise GradingError(
            f"the class list {path} is not UTF-8 text; save it as 'CSV UTF-8'"
        ) from error
    try:
        rows = _rows(text)
    except csv.Error as error:
        raise GradingError(f"the class list {path} is not a CSV file: {error}") from error
    if not rows:
        raise GradingError(f"the class list {path} is empty")
    headings = [re.sub(r"[\s_]+", " ", name).strip().casefold() for name in rows[0]]
    identity_columns = [i for i, name in enumerate(headings) if name in _KEPT]
    if not any(headings[i] in {*_IDENTIFIERS, *_NAMES} for i in identity_columns):
        raise GradingError(
            f"the class list {path} has no column that identifies the students; it needs a header "
            f"with one of {', '.join((*_IDENTIFIERS, *_NAMES))}"
        )
    people = [
        _person([*row, *[""] * len(headings)], headings, identity_columns)
        for row in rows[1:]
        if "points possible" not in row[0].casefold() and not _is_remark(row)
        # Canvas lists the student as whom a teacher looks at the course.
        if row[0] != "Student, Test"
    ]
    other_columns = tuple(name for i, name in enumerate(rows[0]) if i not in identity_columns)
    people = [person for person in people if person.identifier]
    return Roster(tuple(rows[0][i] for i in identity_columns), other_columns, tuple(people))


def _rows(text: str) -> list[list[str]]:
    """Return the non-empty rows of a table with commas, semicolons or tabs between its cells."""
    # Excel's own word in front on what separates cells.
    text = re.sub(r"\Asep=.\r?\n", "", text)
    header = re.split(r"[\r\n]", text, maxsplit=1)[0]
    separator = max(",;\t", key=header.count)
    lines = csv.reader(io.StringIO(text, newline=None), delimiter=separator)
    return [row for row in lines if any(row)]


def _is_remark(row: list[str]) -> bool:
    """Whether every cell is empty, ``Muted`` or ``Manual Posting``: a remark in Canvas's export."""
    return all(re.fullmatch(r"\s*(Muted|Manual Posting.*)?\s*", cell) for cell in row)


def _person(row: list[str], headings: list[str], columns: list[int]) -> Person:
    values = {headings[i]: row[i].strip() for i in reversed(columns)}
    first = values.get("first name") or values.get("firstname") or ""
    last = values.get("last name") or values.get("lastname") or values.get("surname") or ""
    full_name = values.get("student") or values.get("full name") or values.get("name") or ""
    if not first and full_name.count(",") == 1:
        last, first = (part.strip() for part in full_name.split(","))
    name = f"{first} {last}".strip() if first else full_name or last
    identifier = next((values[column] for column in _IDENTIFIERS if values.get(column)), name)
    email = values.get("email address") or values.get("email") or ""
    marks = {}
    for column in _IDENTIFIERS:
        value = values.get(column, "")
        if number := _PARTICIPANT.fullmatch(value):
            marks.setdefault("moodle", number[1])
        elif value and (kind := _kind(column, value, headings)):
            marks.setdefault(kind, value)
    return Person(
        tuple(row[i] for i in columns), name, identifier, first, last or name, email, marks
    )


def _kind(column: str, value: str, headings: list[str]) -> str:
    """Return the kind of a column's value; "" if it does not distinguish persons."""
    if "@" in value and column != "github username":
        return "email"
    if column == "id" and "section" in headings:  # Canvas's
        return "canvas"
    return "number" if column == "identifier" else _KINDS.get(column, "")
