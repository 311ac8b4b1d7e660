"""The identity of each person of a class, one row of a file that the teacher may edit.

``SUBMISSIONS/people.csv`` has for each person the name of the folder, which never changes, and what
class lists and platforms know the person by: name, address, login, number, Canvas's number,
Moodle's numbers (another one in each assignment) and GitHub account.  A list that comes later adds
to it and takes nothing away.

Somebody is known by one of these as a whole, of the same kind, or by a name that no other person
has; never by a part of an address or account.  What was handed in by somebody who is not known so
has a row of its own, whose column ``same as`` says ``?``, or ``1001?`` for a guess: the teacher
confirms it by deleting the question mark.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from backward_twice.grading import GradingError, atomic
from backward_twice.grading.intake.submissions import shown
from backward_twice.grading.intake.unpacking import folder_name
from backward_twice.grading.platforms.downloads import CANVAS, FOLDER, GITHUB, HIDDEN
from backward_twice.grading.platforms.names import folded, squashed, words
from backward_twice.grading.platforms.roster import Person, Roster
from backward_twice.grading.platforms.spreadsheet import safe, unquoted

PEOPLE = "people.csv"
_NAME = "name"
KINDS = ("email", "login", "number", "canvas", "moodle", "github")
_COLUMNS = ("student", _NAME, *KINDS, "same as")
_BETWEEN = "; "


@dataclass
class Identity:
    """A row of the file.

    Attributes:
        student: the name of the folder.
        marks: what the person is known by: the values of each kind, and the names.
        same_as: "" for a person; for a folder the ``student`` of the person whose it is, with a
            question mark until the teacher has confirmed that.
    """

    student: str
    marks: dict[str, list[str]] = field(default_factory=dict)
    same_as: str = ""

    def has(self, kind: str, value: str) -> bool:
        """Whether the person is known by this."""
        return bool(value) and folded(value) in map(folded, self.marks.get(kind, ()))

    def goes_by(self, name: str) -> bool:
        """Whether this is a name of the person, in whatever order or as Canvas writes it."""
        return bool(words(name)) and any(
            words(name) == words(own_name) or squashed(name) in _turned(own_name)
            for own_name in self.marks.get(_NAME, ())
        )

    def add(self, marks: Mapping[str, str]) -> None:
        """Add what the person is known by, too."""
        for kind, value in marks.items():
            value = value.replace(";", ",").strip()  # a semicolon is between two values
            if value and not self.has(kind, value):
                self.marks.setdefault(kind, []).append(value)


@dataclass(frozen=True)
class Handle:
    """The platform's name and number of somebody who handed in.

    ``is_unique`` says that no other submission in the download has this name.
    """

    platform: str
    name: str
    number: str = ""
    is_unique: bool = False


def _turned(name: str) -> set[str]:
    """A name as Canvas may write it, the last name before the first."""
    parts = name.split()
    return {squashed("".join(parts[n:] + parts[:n])) for n in range(len(parts))}


class People:
    """The rows of the file, by the names of the folders."""

    def __init__(self, rows: Iterable[Identity] = ()) -> None:
        self.rows = {row.student: row for row in rows}

    @property
    def persons(self) -> Iterator[Identity]:
        """The rows that are persons, and not folders of a person's."""
        return (row for row in self.rows.values() if not row.same_as)

    def add_list(self, roster: Roster) -> tuple[dict[Person, Identity], list[str]]:
        """Add a class list.

        Returns:
            the row of each person in the list, and what the teacher has to know.
        """
        names = Counter(words(person.name) for person in roster.people)
        values = Counter(mark for person in roster.people for mark in _folded_marks(person))
        identities: dict[Person, Identity] = {}
        problems, doubtful = [], []
        for person in roster.people:
            marks = {
                kind: value
                for kind, value in person.marks.items()
                if values[kind, folded(value)] == 1
            }
            rows = [row for row in self.persons if any(row.has(*mark) for mark in marks.items())]
            is_unique = names[words(person.name)] == 1
            if not rows and is_unique:
                rows = [row for row in self.persons if _is_named_so(row, person.name, marks)]
                rows = rows if len(rows) == 1 else []
            if len(rows) > 1:
                listed = " and ".join(shown(row.student) for row in rows)
                problems.append(
                    f"{shown(person.name)} in the class list is {listed} in {PEOPLE}: if they are "
                    f"one person, write {shown(rows[0].student)} into the column 'same as' of the "
                    "others"
                )
                continue
            if not rows and not marks and not is_unique:
                problems.append(f"two in the class list are called {shown(person.name)}")
                continue
            same = [row for row in self.persons if is_unique and row.goes_by(person.name)]
            row = rows[0] if rows else self._new(person.identifier)
            doubtful += [(row, other) for other in same if not rows]
            row.add({_NAME: person.name} | marks)
            identities[person] = row
        if doubtful:
            listed = ", ".join(f"{shown(row.student)} ({shown(o.student)}?)" for row, o in doubtful)
            problems.append(
                f"{len(doubtful)} in the class list have a name that is in {PEOPLE} with other "
                f"numbers: {listed}; for those who are one person, write the name in brackets "
                "into the column 'same as'"
            )
        return identities, problems

    def _new(self, wanted: str) -> Identity:
        row = Identity(self.free_name(wanted))
        self.rows[row.student] = row
        return row

    def free_name(self, wanted: str) -> str:
        """A folder's name that no row has, on file systems either that do not tell cases."""
        taken = {folded(student) for student in self.rows}
        name, number = folder_name(wanted), 1
        while folded(name) in taken:
            number += 1
            name = folder_name(f"{wanted} ({number})")
        return name

    def add_folder(self, folder: str, handle: Handle) -> None:
        """Add a row for a folder of somebody who is not known, with a guess who it may be."""
        if folder not in self.rows and shown(folder) == folder:
            row = Identity(folder, same_as=f"{self._guess(handle)}?")
            row.add({} if handle.platform == GITHUB else {_NAME: handle.name})
            self.rows[folder] = row

    def drop_guess(self, folder: str) -> None:
        """Drop the row of a folder whose person is known by now, unless the teacher wrote it."""
        if folder in self.rows and self.rows[folder].same_as.endswith("?"):
            del self.rows[folder]

    def person(self, folder: str, handle: Handle) -> Identity | None:
        """The person whose folder it is, if exactly one is.

        Args:
            handle: what the platform calls its owner; the folder's name where none gave it.
        """
        row = self.rows.get(folder)
        if row and row.same_as and not row.same_as.endswith("?"):
            return self.rows[row.same_as]
        if handle.platform == FOLDER and row and not row.same_as:
            return row
        candidates = self._exact(handle)
        if not candidates and handle.platform != GITHUB:
            candidates = self._by_name(handle)
        return candidates[0] if len(candidates) == 1 else None

    def _exact(self, handle: Handle) -> list[Identity]:
        """The persons who have exactly this account, number or address."""
        persons = list(self.persons)
        if handle.platform == GITHUB:
            return [row for row in persons if row.has("github", handle.name)]
        if handle.platform == FOLDER:
            name, _, number = handle.name.rpartition(" ")
            return [
                row
                for row in persons
                if any(row.has(kind, handle.name) for kind in KINDS)
                or (row.goes_by(name) and (row.has("canvas", number) or row.has("moodle", number)))
            ]
        kind = "canvas" if handle.platform == CANVAS else "moodle"
        numbered = [row for row in persons if row.has(kind, handle.number)]
        if is_hidden(handle.name):
            return numbered
        return [row for row in numbered if row.goes_by(handle.name)]

    def _by_name(self, handle: Handle) -> list[Identity]:
        """The persons of this name, of whom the platform's own number says nothing else."""
        rows = [row for row in self.persons if handle.is_unique and row.goes_by(handle.name)]
        numbered = any(row.marks.get("canvas") for row in rows)
        return [] if handle.platform == CANVAS and numbered else rows

    def _guess(self, handle: Handle) -> str:
        """The one person of whose name, address or account this is a part; "" if it is not one."""
        name = squashed(handle.name)
        rows = [row for row in self.persons if name and name in _parts(row)]
        return rows[0].student if len(rows) == 1 else ""


def _folded_marks(person: Person) -> list[tuple[str, str]]:
    return [(kind, folded(value)) for kind, value in person.marks.items()]


def _is_named_so(row: Identity, name: str, marks: Mapping[str, str]) -> bool:
    """Whether a row has this name, and no other mark of a kind of which there is one here."""
    return row.goes_by(name) and not any(row.marks.get(kind) for kind in marks if kind != "moodle")


def _parts(row: Identity) -> set[str]:
    values = {value for of_kind in row.marks.values() for value in of_kind}
    values |= {value.partition("@")[0] for value in values}
    return {squashed(value) for value in values}


def read_people(submissions: Path) -> People:
    """The file in the folder of submissions; no people where there is none.

    Raises:
        GradingError: it cannot be read, or says what cannot be.
    """
    path = submissions / PEOPLE
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except FileNotFoundError:
        return People()
    except (ValueError, csv.Error) as error:
        raise GradingError(f"{path} is not a CSV file in UTF-8: {error}") from error
    if not rows or not {"student", "same as"} <= {*rows[0]}:
        raise GradingError(f"{path} has no header with 'student' and 'same as'")
    people = People()
    for number, cells in enumerate(rows[1:], 2):
        row = {name: unquoted(cell).strip() for name, cell in zip(rows[0], cells, strict=False)}
        if not any(row.values()):
            continue
        student = row.get("student", "")
        if not student or student in people.rows:
            raise GradingError(f"{path}, line {number}: {student or 'no name'!r} is there before")
        marks = {
            kind: [value for value in row.get(kind, "").split(_BETWEEN) if value]
            for kind in (_NAME, *KINDS)
        }
        people.rows[student] = Identity(student, marks, row.get("same as", ""))
    for identity in people.rows.values():
        target = people.rows.get(identity.same_as)
        is_confirmed = identity.same_as and not identity.same_as.endswith("?")
        if is_confirmed and (target is None or target.same_as):
            raise GradingError(
                f"{path}: {identity.student!r} is the same as {identity.same_as!r}, "
                "which is no person's row there"
            )
        for kind in KINDS if is_confirmed else ():
            for value in identity.marks.get(kind, ()):
                target.add({kind: value})
    return people


def write_people(submissions: Path, people: People) -> None:
    """Write the file, if there is somebody to write down."""
    if not people.rows:
        return
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for row in sorted(people.rows.values(), key=lambda row: folded(row.student)):
        marks = (_BETWEEN.join(row.marks.get(kind, ())) for kind in (_NAME, *KINDS))
        writer.writerow([safe(cell) for cell in (row.student, *marks, row.same_as)])
    atomic.write(submissions / PEOPLE, text.getvalue().encode("utf-8", "replace"))


def is_hidden(name: str) -> bool:
    """Whether this is how Moodle calls everybody whose name is hidden."""
    return name.rpartition("-")[2] == HIDDEN
