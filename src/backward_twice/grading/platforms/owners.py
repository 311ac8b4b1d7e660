"""Find the owner of each submission in the class by the submission's folder."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from backward_twice.grading.judging.journal import Key
from backward_twice.grading.platforms.downloads import FOLDER
from backward_twice.grading.platforms.names import unique_names
from backward_twice.grading.platforms.people import Handle, Identity, People, read_people
from backward_twice.grading.platforms.roster import Person, Roster
from backward_twice.grading.platforms.upload import Collected


def handles(platform: str, students: Iterable[Sequence[str]]) -> dict[tuple[str, str], Handle]:
    """Return the handles of a platform's students, by name and number."""
    keys = {(name, number) for name, number in students}
    unique = unique_names([name for name, _ in keys])
    return {
        (name, number): Handle(platform, name, number, is_unique=name in unique)
        for name, number in keys
    }


@dataclass(frozen=True)
class Owners:
    """The class list, its identities, the origin of each exercise's submissions, and warnings."""

    roster: Roster
    people: People
    listed: Mapping[Person, Identity]  # of the persons in the class list
    collected: Mapping[str, Collected]
    problems: Sequence[str] = ()  # warnings for the teacher

    def person(self, key: Key) -> Person | None:
        """Return the person in the class list whose submission this is, if there is exactly one."""
        identity = self.identity(key)
        return identity and self._by_student.get(identity.student)

    def identity(self, key: Key) -> Identity | None:
        """Return the identity whose submission this is, if there is exactly one."""
        return self.people.person(key[0], self.handle(key))

    def handle(self, key: Key) -> Handle:
        """Return the platform's handle of a folder's owner, or one made from the folder's name."""
        folder, exercise = key
        called = exercise in self.collected and self.collected[exercise].students.get(folder)
        if not called:
            return Handle(FOLDER, folder, is_unique=True)
        return self._handles[exercise][tuple(called)]

    def find(self, name: str) -> Person | None:
        """Return the one person of the class with this name, number, address or account, if any."""
        identity = self.people.person(name, Handle(FOLDER, name, is_unique=True))
        return identity and self._by_student.get(identity.student)

    def members(self, key: Key) -> Sequence[Person]:
        """Return the members of the group that has the name of the submission's owner, if any.

        A platform collects an exercise from groups or from persons.  So there are none if the
        submission, or any that a platform collected, is a person's, or the name is not unique.
        """
        if self.person(key) or key[1] in self._of_persons:
            return ()
        handle = self.handle(key)
        return self.roster.members(handle.name) if handle.is_unique else ()

    @cached_property
    def _handles(self) -> dict[str, dict[tuple[str, str], Handle]]:
        return {
            exercise: handles(collected.platform, collected.students.values())
            for exercise, collected in self.collected.items()
        }

    @cached_property
    def _by_student(self) -> dict[str, Person]:
        return {identity.student: person for person, identity in self.listed.items()}

    @cached_property
    def _of_persons(self) -> set[str]:
        """The exercises that a platform collected from individuals, not from groups."""
        return {
            exercise
            for exercise, collected in self.collected.items()
            if collected.platform != FOLDER
            and any(self.person((folder, exercise)) for folder in collected.students)
        }


def read_owners(submissions: Path, roster: Roster, collected: Mapping[str, Collected]) -> Owners:
    """Read the identities, and add the class list to them."""
    people = read_people(submissions)
    listed, problems = people.add_list(roster)
    return Owners(roster, people, listed, collected, problems)
