"""The folders that ``make collect`` and ``nbgrader collect`` write.

Every visible folder, link, notebook and archive becomes a :class:`.SubmissionFolder`; one that
cannot be graded has a reason, so that no student is silently left out.
"""

import os
from collections.abc import Collection
from pathlib import Path

from backward_twice.grading.intake.submissions import (
    MAX_NAME,
    Rejected,
    SubmissionFolder,
    entries,
    hidden,
    is_archive,
    shown,
)
from backward_twice.grading.platforms.people import PEOPLE

MARKUP = '<>"'
"""Characters that no name may contain, because Formgrader does not escape names in its pages."""


def find(submissions: Path, assignments: Collection[str]) -> list[SubmissionFolder]:
    """Return the submissions in the folder, sorted; what cannot be graded has a ``problem``."""
    places: list[SubmissionFolder] = []
    with os.scandir(submissions) as students:
        for entry in students:
            if not hidden(entry.name) and entry.name != PEOPLE:
                places += _of_student(entry, assignments)
    return sorted(places, key=lambda place: (place.student, place.assignment))


def _of_student(entry: os.DirEntry[str], assignments: Collection[str]) -> list[SubmissionFolder]:
    student = entry.name
    if not entry.is_dir(follow_symlinks=False):
        return [SubmissionFolder(student, "", _not_a_folder(entry, "a student's folder"))]
    if problem := _name_problem(student):
        return [SubmissionFolder(student, "", problem)]
    try:
        inner_entries = entries(entry.path)
    except Rejected as why:
        return [SubmissionFolder(student, "", str(why))]
    except OSError as error:
        return [SubmissionFolder(student, "", f"the folder cannot be read: {error.strerror}")]
    places = []
    for inner in inner_entries:
        name = inner.name
        if not inner.is_dir(follow_symlinks=False):
            telling = name.endswith(".ipynb") or is_archive(name)
            if telling or not inner.is_file(follow_symlinks=False):
                places.append(
                    SubmissionFolder(student, name, _not_a_folder(inner, "an assignment's folder"))
                )
        else:
            valid_names = ", ".join(sorted(assignments))
            problem = f"there is no assignment '{shown(name)}'; there is {valid_names}"
            places.append(SubmissionFolder(student, name, None if name in assignments else problem))
    return places or [SubmissionFolder(student, "", "nothing was handed in: the folder is empty")]


def _name_problem(name: str) -> str | None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return "the folder's name is not UTF-8; rename it"
    if len(name) > MAX_NAME:
        return f"the folder's name is longer than {MAX_NAME} characters; rename it"
    if any(character in MARKUP for character in name):
        return f"the folder's name has one of {' '.join(MARKUP)} in it; rename it"
    return None


def _not_a_folder(entry: os.DirEntry[str], expected: str) -> str:
    if entry.is_symlink():
        return f"a link, where {expected} should be; links are not followed"
    if not entry.is_file(follow_symlinks=False):
        return f"neither file nor folder, where {expected} should be"
    if is_archive(entry.name):
        way_out = "'make collect' sorts a platform's download into folders"
        return f"an archive, where {expected} should be; {way_out}"
    if entry.name.endswith(".ipynb"):
        return f"a notebook, where {expected} should be: <student>/<assignment>/<assignment>.ipynb"
    return f"a file, where {expected} should be"
