"""``python -m backward_twice.grading.collect DOWNLOAD EXERCISE --into SUBMISSIONS``.

A platform's download of one exercise (an archive, or the folder that it was unpacked to) is sorted
into ``SUBMISSIONS/<student>/<exercise>/``, where the grader looks.  How the platform calls each
submission is kept in ``SUBMISSIONS/.collected/<exercise>.json``: by that the feedback finds its way
back (:mod:`.platforms.upload`).

Files are copied, not looked into.  Only zips are opened: the download itself, and a small one that
a student handed in; a process with limits does it (:mod:`.unpacking`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from backward_twice.grading import GradingError
from backward_twice.grading.intake.limited import Limited
from backward_twice.grading.intake.submissions import Rejected, in_words, shown
from backward_twice.grading.intake.unpacking import copied, folder_name, listed
from backward_twice.grading.platforms.downloads import (
    CANVAS,
    HIDDEN,
    MOODLE,
    File,
    recognised,
)
from backward_twice.grading.platforms.roster import Roster, heard, read_roster
from backward_twice.grading.platforms.upload import Collected, read_collected
from backward_twice.grading.run.master import read_masters


def collect(
    download: Path, exercise: str, submissions: Path, roster: Roster | None = None
) -> tuple[str, int, list[str]]:
    """Sort a download into the folder of submissions.  Who was collected before is replaced.

    A student keeps the folder of the first time, unless the class list gives it another name.

    Returns:
        the platform, the number of submissions, and what there is to say of them.

    Raises:
        GradingError: it is no download, or nobody's work is in it.
        OSError: the folder of submissions cannot be written.
    """
    with Limited() as limited:
        paths = _paths(limited, download)
        root = download.stem if download.is_file() else download.name
        found = recognised(paths, root, exercise)
        if not found.files:
            raise GradingError(
                f"no submission found in {download}: give what the platform offers for download, "
                f"or a folder of <student>/{exercise}.ipynb"
            )
        known = read_collected(submissions, exercise)
        if known.platform != found.platform:  # its keys are nothing to the other platform
            known = Collected(found.platform)
        folders, said = _folders(found.platform, found.files, roster, known.folders)
        by_folder: dict[str, list[File]] = defaultdict(list)
        renamed, groups = [], []
        for file in found.files:
            by_folder[folders[file.student, file.number]].append(file)
        for student, files in sorted(by_folder.items()):
            problems = _copied(limited, download, files, submissions / student, exercise)
            said += [f"{shown(student)}: {problem}" for problem in problems]
            # Canvas gives feedback back under the file's own name, so it goes to a notebook.
            keys = [f.key for f in files if found.platform != CANVAS or f.name.endswith(".ipynb")]
            if found.platform == MOODLE and roster and roster.members(files[0].student):
                groups.append(student)
                keys = []  # Moodle would take the group's number for a participant's
            known.keys[student] = keys[0] if keys else ""
            late = {student} if any(file.late for file in files) else set()
            whose = files[0].student, files[0].number
            if (before := known.folders.get(whose, student)) != student:
                _forget(submissions / before, exercise)
                del known.keys[before], known.students[before]
                renamed.append(f"{shown(before)} is {shown(student)}")
            known.students[student] = whose
            known.late = sorted({*known.late} - {student, before} | late)
    if renamed:
        few = ", ".join(renamed[:5]) + (", …" if len(renamed) > 5 else "")
        said.append(
            f"{len(renamed)} have other names now ({few}); if they were graded under the old ones, "
            "grade with --drop-missing"
        )
    if groups:
        few = ", ".join(map(shown, groups[:5])) + (", …" if len(groups) > 5 else "")
        said.append(
            f"{len(groups)} are groups ({few}): graded with this class list, their members get the "
            "points, and with the grading worksheet the feedback too"
        )
    if found.strays:
        few = ", ".join(map(shown, found.strays[:5]))
        said.append(f"{len(found.strays)} files are nobody's by their names: {few}")
    known.write(submissions, exercise)
    return found.platform, len(by_folder), said


def _folders(
    platform: str,
    files: tuple[File, ...],
    roster: Roster | None,
    before: Mapping[tuple[str, str], str],
) -> tuple[dict[tuple[str, str], str], list[str]]:
    """How each student's folder is called: by the class list, or else by the platform's name.

    Args:
        before: how they were called, by name and number, when they were collected before.
    """
    students = sorted({(file.student, file.number) for file in files})
    alike = Counter(name.casefold() for name, _ in students)
    folders, said, unknown = {}, [], []
    how_many = heard(students, in_groups=platform == MOODLE)
    for name, number in students:
        numbered = folder_name(f"{name} {number}")
        alone = alike[name.casefold()] == 1
        person = roster and roster.known_as(name, number, how_many)
        if roster and person is None and not roster.members(name):
            unknown.append(numbered)
        # Canvas's number is the person's, Moodle's is another one in each assignment.
        hidden = name.rpartition("-")[2] == HIDDEN
        clear = platform != CANVAS and alone and not hidden
        named = before.get((name, number), folder_name(name) if clear else numbered)
        if number and roster and person is None and roster.find(named):
            named = numbered  # under that name the work would be another's
        wanted = folder_name(person.identifier) if person else named
        others = (folder for who, folder in before.items() if who != (name, number))
        # Some file systems do not tell "Ada" from "ada".
        taken = {folder.casefold() for folder in (*folders.values(), *others)}
        free = (wanted, numbered, *(f"{numbered} ({n})" for n in range(2, len(students) + 2)))
        folders[name, number] = next(each for each in free if each.casefold() not in taken)
    if unknown:
        said.append(
            f"{len(unknown)} not found in the class list, or not one person there: "
            f"{', '.join(map(shown, unknown[:10]))}"
        )
    twins = sorted(name for name, number in alike.items() if number > 1)
    if platform == MOODLE and twins and (roster is None or unknown):
        said.append(
            f"several students are called {', '.join(map(shown, twins))}: kept apart by Moodle's "
            "number, which is another one in each assignment; with the assignment's grading "
            "worksheet as --roster they keep one name"
        )
    return folders, said


def _forget(student: Path, exercise: str) -> None:
    """Remove what was collected of an exercise under a name that is not the student's any more."""
    shutil.rmtree(student / exercise, ignore_errors=True)
    with suppress(OSError):  # other exercises are in it
        student.rmdir()


def _paths(limited: Limited, download: Path) -> list[str]:
    try:
        return limited.call(partial(listed, download))
    except Rejected as why:
        raise GradingError(f"{download}: {why}") from why


def _copied(
    limited: Limited, download: Path, files: list[File], student: Path, exercise: str
) -> list[str]:
    """Copy a student's files; a zip that cannot be looked into within the limits, as it is."""
    named = [(file.path, file.name) for file in files]
    said: list[str] = []
    for look_inside in (True, False):
        try:
            copy = partial(copied, download, named, student, exercise, look_inside)
            return [*limited.call(copy), *said]
        except Rejected as why:
            said = [f"a zip in it was not looked into: {why}"]
    return [f"{said[0]}, nor copied; what was collected before stays"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m backward_twice.grading.collect",
        description="Sort what Moodle, Canvas or GitHub Classroom offer for download, or a folder, "
        "into SUBMISSIONS/<student>/<exercise>/.",
    )
    add = parser.add_argument
    add("download", type=Path, metavar="DOWNLOAD", help="the zip, or the folder it was unpacked to")
    add("exercise", metavar="EXERCISE", help="whose notebooks these are, such as two_losses")
    add("--into", type=Path, default=Path("submitted"), metavar="SUBMISSIONS")
    add("--roster", type=Path, metavar="CSV", help="the class list that your platform exports")
    add("--solutions", type=Path, metavar="DIR", default=Path("solutions"), help="the masters")
    options = parser.parse_args(arguments)
    try:
        exercises = read_masters(options.solutions)
        if options.exercise not in exercises:
            raise GradingError(
                f"there is no exercise {options.exercise!r}; there is {', '.join(exercises)}"
            )
        options.into.mkdir(parents=True, exist_ok=True)
        roster = read_roster(options.roster) if options.roster else None
        platform, number, said = collect(options.download, options.exercise, options.into, roster)
    except GradingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {in_words(error, options.into)}", file=sys.stderr)
        return 2
    print(f"{number} submissions of {options.exercise}, from {platform}")
    print(f"  {options.into}")
    for line in said:
        print(f"warning: {line}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
