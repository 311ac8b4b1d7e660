"""The identity of each person of a class, one row of a file that the teacher may edit.

``SUBMISSIONS/people.csv`` has for each person the name of the folder, which never changes, and what
identifies the person in class lists and on platforms: name, address, login, number, Canvas's
number, Moodle's numbers (a different one in each assignment) and GitHub account.

A person is recognised by an equal identifier of the same kind, or by a name that no other person
has, never by a part of an address or account.  The folder of somebody who is not recognised has a
row of its own with ``?`` in the column ``same as``, or a guess, ``1001?``, which the teacher
confirms by deleting the question mark.

The lists may come in any order, so the file has only data that does not depend on it: rows with the
same identifier become one row, and a name that two persons of one list have stays marked as shared.
Whether two rows with the same name are one person's is decided again each time.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import permutations
from pathlib import Path

from backward_twice.grading import GradingError, atomic
from backward_twice.grading.intake.submissions import shown
from backward_twice.grading.intake.unpacking import folder_name
from backward_twice.grading.platforms.downloads import CANVAS, FOLDER, GITHUB, HIDDEN
from backward_twice.grading.platforms.names import folded, squashed, words
from backward_twice.grading.platforms.roster import Person, Roster
from backward_twice.grading.platforms.spreadsheet import safe, unquoted

PEOPLE = "people.csv"
_NAME, _SHARED = "name", "shared name"
KINDS = ("email", "login", "number", "canvas", "moodle", "github")
_MARKS = (_NAME, _SHARED, *KINDS)
_COLUMNS = ("student", *_MARKS, "same as")
_BETWEEN = "; "


@dataclass
class Identity:
    """A row of the file of identities, for a person or for a folder."""

    student: str  # the name of the folder
    # By kind: identifiers, names, and names that are shared with somebody in the same class list.
    marks: dict[str, list[str]] = field(default_factory=dict)
    # "" for a person; else the ``student`` of the person whose row this is, with "?" for a guess.
    same_as: str = ""

    @property
    def identifiers(self) -> list[str]:
        """The kinds of identifiers that the person has."""
        return [kind for kind in KINDS if self.marks.get(kind)]

    @property
    def is_confirmed(self) -> bool:
        """Whether ``same_as`` is certain, and not a guess."""
        return bool(self.same_as) and not self.same_as.endswith("?")

    def has(self, kind: str, value: str) -> bool:
        """Whether the person's values of this kind include ``value``, in whatever case."""
        return bool(value) and folded(_cell(value)) in map(folded, self.marks.get(kind, ()))

    def names(self, kind: str) -> set[frozenset[str]]:
        """Return the words of each name of the person of one kind: ``name`` or ``shared name``."""
        return {words(name) for name in self.marks.get(kind, ())} - {frozenset()}

    def goes_by(self, name: str, kinds: Iterable[str] = (_NAME, _SHARED)) -> bool:
        """Whether this is a name of the person, in any order of words or as Canvas joins them."""
        own_names = set().union(*map(self.names, kinds))
        return words(name) in own_names or squashed(name) in set().union(*map(_joined, own_names))

    def add(self, marks: Mapping[str, str]) -> None:
        """Add names and identifiers of the person."""
        for kind, value in marks.items():
            if _cell(value) and not self.has(kind, value):
                self.marks.setdefault(kind, []).append(_cell(value))


@dataclass(frozen=True)
class Handle:
    """A platform's name and number for the owner of a submission."""

    platform: str
    name: str
    number: str = ""
    is_unique: bool = False  # whether no other submission in the download has this name


@cache
def _joined(parts: frozenset[str]) -> set[str]:
    """Join a name's parts in every order, as Canvas's is unknown; nothing for more than five."""
    return {"".join(joined) for joined in permutations(parts)} if len(parts) <= 5 else set()


class People:
    """The rows of the file of identities, by the names of the folders."""

    def __init__(self, rows: Iterable[Identity] = ()) -> None:
        self.rows = {row.student: row for row in rows}

    @property
    def persons(self) -> Iterator[Identity]:
        """The rows that stand for a person, not for another folder of a person."""
        return (row for row in self.rows.values() if not row.same_as)

    def add_list(self, roster: Roster) -> tuple[dict[Person, Identity], list[str]]:
        """Add a class list; return each person's identity, unless it is shared, and warnings."""
        names = Counter(words(person.name) for person in roster.people)
        values = Counter(mark for person in roster.people for mark in _folded_marks(person))
        earlier_rows = {*self.rows}
        rows: dict[Person, Identity] = {}
        for person in roster.people:
            unique = [kind for kind, value in _folded_marks(person) if values[kind, value] == 1]
            marks = {kind: person.marks[kind] for kind in unique}
            name = _SHARED if names[words(person.name)] > 1 else _NAME
            if marks or words(person.name):
                row = self._row(person, marks, name)
                row.add({name: person.name} | marks)
                rows |= {person: row} if marks else {}
        self.__dict__.pop("_together", None)
        matches = {}
        for person in roster.people:
            row = rows.get(person)  # another of the list may have joined it to a row since
            named = [self.rows.get(row.same_as, row)] if row else self._called(person.name)
            matches[person] = self._one(named)
        times = Counter(row.student for row in matches.values() if row)
        identities = {p: row for p, row in matches.items() if row and times[row.student] == 1}
        lost = dict.fromkeys(shown(p.name) for p in roster.people if p not in identities)
        doubtful = [
            f"{shown(row.student)} ({shown(namesake.student)}?)"
            for person, row in rows.items()
            if row.student not in earlier_rows and not row.same_as
            for namesake in self._called(person.name)
            if namesake not in self._together[row.student]
        ]
        problems = []
        if lost:
            problems.append(
                f"{len(lost)} names in the class list are not one person's each: "
                f"{', '.join(lost)}; give a list that has their addresses or numbers"
            )
        if doubtful:
            problems.append(
                f"{len(doubtful)} in the class list have a name that is in {PEOPLE} with other "
                f"numbers: {', '.join(doubtful)}; for those who are one person, write the name in "
                "brackets into the column 'same as'"
            )
        return identities, problems

    def _row(self, person: Person, marks: Mapping[str, str], name: str) -> Identity:
        """Find or add the row of a listed person; join all rows with the person's identifiers."""
        rows = [row for row in self.persons if any(row.has(*mark) for mark in marks.items())]
        for duplicate in rows[1:]:
            self._join(duplicate, rows[0])
        if not rows and (name == _NAME or not marks):
            candidates = (row for row in self.persons if not (marks and row.identifiers))
            rows = [row for row in candidates if words(person.name) in row.names(name)]
        if not rows:
            rows = [Identity(self.free_name(person.identifier))]
            self.rows[rows[0].student] = rows[0]
        return rows[0]

    def _join(self, duplicate: Identity, row: Identity) -> None:
        for kind, values in duplicate.marks.items():
            for value in values:
                row.add({kind: value})
        duplicate.same_as = row.student
        for alias in self.rows.values():
            if alias.same_as.removesuffix("?") == duplicate.student:
                alias.same_as = alias.same_as.replace(duplicate.student, row.student)

    @cached_property
    def _together(self) -> dict[str, list[Identity]]:
        """For each row, the rows of the same person.

        Rows with identifiers are one person's if they have the same name, which no list marks as
        shared, and no two have the same kind of identifier, except Moodle's numbers.
        """
        shared = {name for row in self.persons for name in row.names(_SHARED)}
        together = {row.student: [row] for row in self.persons}
        first: dict[frozenset[str], Identity] = {}
        for row in sorted(self.persons, key=_in_order):
            for name in row.names(_NAME) - shared if row.identifiers else ():
                group = together[first.setdefault(name, row).student]
                if row not in group:
                    group += together[row.student]
                    together |= dict.fromkeys((member.student for member in group), group)
        for student, group in together.items():
            kinds = [kind for row in group for kind in row.identifiers if kind != "moodle"]
            alone = len(kinds) > len({*kinds})
            together[student] = [self.rows[student]] if alone else sorted(group, key=_in_order)
        return together

    def _called(self, name: str) -> list[Identity]:
        """Return the rows with a name, if possible with identifiers; none if the name is shared."""
        rows = [row for row in self.persons if row.goes_by(name)]
        if any(row.goes_by(name, [_SHARED]) for row in rows):
            return []
        return [row for row in rows if row.identifiers] or rows

    def _one(self, rows: Iterable[Identity]) -> Identity | None:
        """Return the first row of the one person to whom all of these rows belong, else None."""
        persons = {self._together[row.student][0].student for row in rows}
        return self.rows[persons.pop()] if len(persons) == 1 else None

    def free_name(self, wanted: str) -> str:
        """Return a name for a folder that no row has, ignoring differences of case."""
        taken = {folded(student) for student in self.rows}
        name, number = folder_name(wanted), 1
        while folded(name) in taken:
            number += 1
            name = folder_name(f"{wanted} ({number})")
        return name

    def add_folder(self, folder: str, handle: Handle) -> None:
        """Add a row with a guess for a folder that has none, unless its name is unprintable."""
        if folder not in self.rows and shown(folder) == folder:
            row = Identity(folder, same_as=f"{self._guess(handle)}?")
            row.add({} if handle.platform == GITHUB else {_NAME: handle.name})
            self.rows[folder] = row

    def drop_guess(self, folder: str) -> None:
        """Drop a folder's row, now that its person is known, if the row is only a guess."""
        if folder in self.rows and self.rows[folder].same_as.endswith("?"):
            del self.rows[folder]

    def person(self, folder: str, handle: Handle) -> Identity | None:
        """Return the one person to whom the folder or its owner's handle belongs, if any."""
        row = self.rows.get(folder)
        if row and row.is_confirmed and not row.identifiers:
            return self._one([self.rows[row.same_as]])
        rows = self._exact(handle)
        if not rows and handle.is_unique and handle.platform != GITHUB:
            rows = self._called(handle.name)
            merged = (same for row in rows for same in self._together[row.student])
            if handle.platform == CANVAS and any(row.marks.get("canvas") for row in merged):
                return None  # Canvas's own number says that it is another
        return self._one(rows)

    def _exact(self, handle: Handle) -> list[Identity]:
        """Return the persons with the handle's identifier, or its number and any shown name."""
        persons = list(self.persons)
        if handle.platform == GITHUB:
            return [row for row in persons if row.has("github", handle.name)]
        if handle.platform == FOLDER:
            name, _, number = handle.name.rpartition(" ")
            return [
                row
                for row in persons
                if any(row.has(kind, handle.name) for kind in KINDS)
                or (row.goes_by(name) and row.has("canvas", number))
                or ((row.goes_by(name) or is_hidden(name)) and row.has("moodle", number))
            ]
        kind = "canvas" if handle.platform == CANVAS else "moodle"
        numbered = [row for row in persons if row.has(kind, handle.number)]
        if is_hidden(handle.name):
            return numbered
        return [row for row in numbered if row.goes_by(handle.name)]

    def _guess(self, handle: Handle) -> str:
        """Return the folder of the one person with a mark like the handle's name; "" if none."""
        name = squashed(handle.name)
        row = self._one(row for row in self.persons if name and name in _parts(row))
        return row.student if row else ""


def _folded_marks(person: Person) -> list[tuple[str, str]]:
    return [(kind, folded(_cell(value))) for kind, value in person.marks.items()]


def _cell(value: str) -> str:
    """Return a value as the file stores it: stripped, with commas for the separating semicolons."""
    return value.replace(";", ",").strip()


def _in_order(row: Identity) -> str:
    return folded(row.student)


def _parts(row: Identity) -> set[str]:
    values = {value for of_kind in row.marks.values() for value in of_kind}
    values |= {value.partition("@")[0] for value in values}
    return {squashed(value) for value in values}


def read_people(submissions: Path) -> People:
    """Read the identities, if any; raise GradingError if the file is damaged or contradictory."""
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
            kind: [value for value in row.get(kind, "").split(_BETWEEN) if value] for kind in _MARKS
        }
        people.rows[student] = Identity(student, marks, row.get("same as", ""))
    for identity in people.rows.values():
        target = people.rows.get(identity.same_as)
        if identity.is_confirmed and (target is None or target.same_as):
            raise GradingError(
                f"{path}: {identity.student!r} is the same as {identity.same_as!r}, "
                "which is no person's row there"
            )
        for kind in KINDS if identity.is_confirmed else ():
            for value in identity.marks.get(kind, ()):
                target.add({kind: value})
    return people


def write_people(submissions: Path, people: People) -> None:
    """Write the identities to the folder of submissions, unless there are none."""
    if not people.rows:
        return
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for row in sorted(people.rows.values(), key=_in_order):
        marks = (_BETWEEN.join(row.marks.get(kind, ())) for kind in _MARKS)
        writer.writerow([safe(cell) for cell in (row.student, *marks, row.same_as)])
    atomic.write(submissions / PEOPLE, text.getvalue().encode("utf-8", "replace"))


def is_hidden(name: str) -> bool:
    """Whether a name is Moodle's placeholder ``Participant``, alone or after a group's name."""
    return name.rpartition("-")[2] == HIDDEN
