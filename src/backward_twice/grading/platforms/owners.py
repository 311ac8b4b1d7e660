"""Whose a submission is: its folder, as it was collected, found in the class list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from backward_twice.grading.platforms.downloads import FOLDER, MOODLE
from backward_twice.grading.platforms.roster import Person, Roster, heard
from backward_twice.grading.platforms.upload import Collected
from backward_twice.grading.run.journal import Key


@dataclass(frozen=True)
class Owners:
    """The class list, and of each exercise where its submissions came from."""

    roster: Roster
    collected: Mapping[str, Collected]

    def person(self, key: Key) -> Person | None:
        """The one whose submission it is, if it is one and no more.

        A folder that is called as the platform calls its owner was collected without the class
        list.  The owner chose that name, so it is not looked for among logins and addresses.
        """
        folder, exercise = key
        collected = self.collected.get(exercise)
        whose = collected and collected.named_by_platform(folder)
        if not whose:
            return self.roster.find(folder)
        return self.roster.known_as(*whose, self._heard[exercise])

    def members(self, key: Key) -> Sequence[Person]:
        """Whose submission it is besides, where a group has handed it in.

        A platform takes an exercise from groups or from persons.  So where one of the class handed
        it in, a group's name is only what somebody calls himself.
        """
        folder, exercise = key
        collected = self.collected.get(exercise, Collected(FOLDER))
        name, _ = collected.students.get(folder, (folder, ""))
        if self.person(key) or exercise in self._of_persons:
            return ()
        several = exercise in self._heard and self._heard[exercise][name.casefold()] > 1
        return () if several else self.roster.members(name)

    @cached_property
    def _heard(self) -> dict[str, Counter[str]]:
        return {
            exercise: heard(collected.students.values(), in_groups=collected.platform == MOODLE)
            for exercise, collected in self.collected.items()
        }

    @cached_property
    def _of_persons(self) -> set[str]:
        """Exercises that a platform took from persons."""
        return {
            exercise
            for exercise, collected in self.collected.items()
            if collected.platform != FOLDER
            and any(self.person((folder, exercise)) for folder in collected.students)
        }
