"""The class list, as a platform exports it: who belongs to the class, and how each is called there.

It is the teacher's own CSV file with a header: Canvas's export of its gradebook, Moodle's list of
participants, export of grades or grading worksheet, GitHub Classroom's roster, or one made by hand.
Its columns are known by their names.  Those that say who somebody is are kept as they are, in
their order, because by them the platform finds its students again when it imports points.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from backward_twice.grading import GradingError

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
_DROPPED = re.compile(r"[&<>\"`|'’‘ʼ:\\/]")
"""What Moodle leaves out of a name that becomes a file's (``PARAM_FILE`` in
``lib/classes/param.php`` of github.com/moodle/moodle), and other ways to write an apostrophe."""
_NUMBERED = re.compile(r"(?P<name>.*\D) (?P<number>\d+)")


@dataclass(frozen=True)
class Person:
    """A row of the class list: its cells, and what else is to be known of who it is."""

    cells: tuple[str, ...]
    name: str
    identifier: str
    first: str = ""
    last: str = ""
    email: str = ""
    identifiers: frozenset[str] = field(default_factory=frozenset)
    names: frozenset[str] = field(default_factory=frozenset)

    @property
    def participant(self) -> str:
        """Moodle's number of the person in one assignment, where its grading worksheet says it."""
        found = map(re.compile(r"Participant (\d+)").fullmatch, self.cells)
        return next((number[1] for number in found if number), "")

    def goes_by(self, name: str) -> bool:
        """Whether this is the person's name, in whatever order or as Canvas writes it."""
        return any(
            _words(name) == _words(each) or _squashed(name) == _squashed(each)
            for each in self.names
        )


@dataclass(frozen=True)
class Roster:
    """The class: the columns that say who somebody is, the others, and everybody."""

    columns: tuple[str, ...]
    others: tuple[str, ...]
    people: tuple[Person, ...]

    @property
    def is_canvas(self) -> bool:
        """Whether it is Canvas's, by which a row of the points possible is understood."""
        return self.columns[0] == "Student" and "Section" in self.columns

    def find(self, student: str) -> Person | None:
        """The one that a folder of this name belongs to, if it is one and no more.

        Known by an identifier; by the name; or by a name with one's number behind it, as
        :mod:`.platforms.collect` calls those who share a name.
        """
        found = self._known.get(_folded(student)) or self._called.get(_words(student))
        if not found and (numbered := _NUMBERED.fullmatch(student)):
            name = _squashed(numbered["name"])
            found = [
                person
                for person in self._known.get(numbered["number"], ())
                if name in map(_squashed, person.names)
            ]
        return found[0] if found and len(found) == 1 else None

    def known_as(self, name: str, number: str, heard: Mapping[str, int]) -> Person | None:
        """Who it is that a platform calls so, also behind a group's name.

        On a platform, which gives a number, people choose their names.  So nobody is known without
        that number by a name that two have, or that is no name in the list but somebody's login or
        address.  A person's own name may have a dash: what is behind one counts only with the
        number, or where all names of a download have one.

        Args:
            heard: how many in the download go by a name, as :func:`heard` counts them.
        """
        for each in _behind_groups(name):
            if person := self.find(f"{each} {number}".rstrip()):
                return person
            person = self.find(each) if heard[each.casefold()] == 1 else None
            if person and (not number or person.goes_by(each)):
                return person
        return None

    def members(self, name: str) -> Sequence[Person]:
        """Who is in the group of this name, as Moodle writes it into the names of files."""
        return self._groups.get(_words(name), ())

    def column_of(self, exercise: str) -> str:
        """The file's own column for an exercise's points, by its name; else the bare name.

        Canvas writes ``two_losses (4711)``, Moodle ``Assignment: two_losses (Real)``.
        """
        wanted = _words(exercise)
        for column in self.others:
            bare = re.sub(r"\s*\((?:\d+|real|points)\)$", "", column.strip(), flags=re.I)
            if _words(re.sub(r"^assignment:", "", bare, flags=re.I)) == wanted:
                return column
        return exercise

    @cached_property
    def _groups(self) -> Mapping[frozenset[str], list[Person]]:
        places = [i for i, name in enumerate(self.columns) if name.strip().casefold() in _GROUPS]
        return _index(
            (_words(name), person)
            for person in self.people
            for i in places
            for name in {person.cells[i], *person.cells[i].split(",")}
            if name.strip()
        )

    @cached_property
    def _known(self) -> Mapping[str, list[Person]]:
        return _index((each, person) for person in self.people for each in person.identifiers)

    @cached_property
    def _called(self) -> Mapping[frozenset[str], list[Person]]:
        return _index((_words(each), person) for person in self.people for each in person.names)


def _index(pairs: Iterable[tuple[Any, Person]]) -> dict[Any, list[Person]]:
    found: dict[Any, list[Person]] = defaultdict(list)
    for key, person in pairs:
        if person not in found[key]:
            found[key].append(person)
    return dict(found)


def heard(students: Collection[tuple[str, str]], in_groups: bool) -> Counter[str]:
    """How many students go by each name, in lower case, behind groups' names too.

    Args:
        students: name and number of each.
        in_groups: whether the platform writes groups' names before those of persons.
    """
    names = {name.casefold() for name, _ in students}
    dashed = in_groups and len(names) > 1 and all("-" in name for name in names)
    return Counter(
        each.casefold()
        for name, _ in students
        for each in (_behind_groups(name) if dashed else [name])
    )


def _behind_groups(name: str) -> Iterator[str]:
    """What a person may be called: ``Group A-Ada Lovelace`` is perhaps Ada Lovelace."""
    yield name
    while "-" in name:
        name = name.partition("-")[2]
        yield name


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().strip()


def _words(name: str) -> frozenset[str]:
    """A name's words in whatever order: ``Lovelace, Ada`` is ``Ada Lovelace``."""
    return frozenset(re.findall(r"[^\W_]+", _DROPPED.sub("", _folded(name))))


def _squashed(name: str) -> str:
    """A name as Canvas writes it into the names of files: ``lovelaceada``."""
    return re.sub(r"[\W_]+", "", _folded(name))


def read_roster(path: Path) -> Roster:
    """The class list at ``path``.

    Raises:
        GradingError: it cannot be read, or no column says who is who.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise GradingError(f"{path} is no class list: it has more than 20 MB")
        text = _decoded(path.read_bytes())
    except OSError as error:
        raise GradingError(f"the class list {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise GradingError(
            f"the class list {path} is not UTF-8 text; save it as 'CSV UTF-8'"
        ) from error
    try:
        rows = _rows(text)
    except csv.Error as error:
        raise GradingError(f"the class list {path} is no CSV file: {error}") from error
    if not rows:
        raise GradingError(f"the class list {path} is empty")
    known = [re.sub(r"[\s_]+", " ", name).strip().casefold() for name in rows[0]]
    kept = [i for i, name in enumerate(known) if name in _KEPT]
    if not any(known[i] in {*_IDENTIFIERS, *_NAMES} for i in kept):
        raise GradingError(
            f"the class list {path} has no column that says who is who; it needs a header with one "
            f"of {', '.join((*_IDENTIFIERS, *_NAMES))}"
        )
    people = [
        _person([*row, *[""] * len(known)], known, kept)
        for row in rows[1:]
        if "points possible" not in row[0].casefold() and not _is_remark(row)
        # Canvas lists the student as whom a teacher looks at the course.
        if row[0] != "Student, Test"
    ]
    others = tuple(name for i, name in enumerate(rows[0]) if i not in kept)
    people = [person for person in people if person.identifier]
    return Roster(tuple(rows[0][i] for i in kept), others, tuple(people))


def _decoded(content: bytes) -> str:
    """Text as UTF-8, or as UTF-16, as which Excel saves *Unicode Text*.

    Raises:
        UnicodeDecodeError: it is neither.
    """
    utf_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if utf_16 else "utf-8-sig")


def _rows(text: str) -> list[list[str]]:
    """The lines of a table that are not empty, whatever separates its cells and ends its lines.

    Raises:
        csv.Error: it is none.
    """
    # Excel's own word in front on what separates cells.
    text = re.sub(r"\Asep=.\r?\n", "", text)
    header = re.split(r"[\r\n]", text, maxsplit=1)[0]
    separator = max(",;\t", key=header.count)
    lines = csv.reader(io.StringIO(text, newline=None), delimiter=separator)
    return [row for row in lines if any(row)]


def _is_remark(row: list[str]) -> bool:
    """Canvas's row under the header that says which assignments are posted by hand."""
    return all(re.fullmatch(r"\s*(Muted|Manual Posting.*)?\s*", cell) for cell in row)


def _person(row: list[str], known: list[str], kept: list[int]) -> Person:
    of = {known[i]: row[i].strip() for i in reversed(kept)}
    first = of.get("first name") or of.get("firstname") or ""
    last = of.get("last name") or of.get("lastname") or of.get("surname") or ""
    whole = of.get("student") or of.get("full name") or of.get("name") or ""
    if not first and whole.count(",") == 1:
        last, first = (part.strip() for part in whole.split(","))
    name = f"{first} {last}".strip() if first else whole or last
    identifier = next((of[column] for column in _IDENTIFIERS if of.get(column)), name)
    email = of.get("email address") or of.get("email") or ""
    identifiers = {of[column] for column in _IDENTIFIERS if of.get(column)}
    # Moodle's worksheet says "Participant 4711", its download 4711; a login is often the address's
    # first half.
    identifiers |= {
        number["number"] for text in identifiers if (number := _NUMBERED.fullmatch(text))
    }
    identifiers |= {email.partition("@")[0]} - {""}
    return Person(
        tuple(row[i] for i in kept),
        name,
        identifier,
        first,
        last or name,
        email,
        frozenset(map(_folded, identifiers)),
        frozenset({name, whole} - {""}),
    )
