"""``python -m backward_twice.grading.collect DOWNLOAD EXERCISE --into SUBMISSIONS``.

A platform's download of one exercise (an archive, or the folder that it was unpacked to) is sorted
into ``SUBMISSIONS/<student>/<exercise>/``, where the grader looks.  The platform's key of each
submission is stored in ``SUBMISSIONS/.collected/<exercise>.json``, so that the feedback can be
uploaded (:mod:`.platforms.upload`).  Files are copied unread; only zips are opened, in a process
with limits (:mod:`.unpacking`).
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from backward_twice.grading import GradingError, atomic
from backward_twice.grading.intake.submissions import TIMESTAMP, Rejected, in_words, shown
from backward_twice.grading.intake.unpacking import copied, folder_name, listed
from backward_twice.grading.judging.master import read_masters
from backward_twice.grading.limited import Limited
from backward_twice.grading.platforms.clones import commit_time
from backward_twice.grading.platforms.downloads import (
    CANVAS,
    FOLDER,
    GITHUB,
    MOODLE,
    Download,
    File,
    recognised,
)
from backward_twice.grading.platforms.owners import handles
from backward_twice.grading.platforms.people import (
    PEOPLE,
    People,
    is_hidden,
    read_people,
    write_people,
)
from backward_twice.grading.platforms.roster import Roster, read_roster
from backward_twice.grading.platforms.upload import Collected, read_collected


def collect_download(
    download: Path, exercise: str, submissions: Path, roster: Roster | None = None
) -> tuple[str, int, list[str]]:
    """Sort a download into the folder of submissions; replace students' earlier submissions.

    A student keeps the folder of the first collection.  Returns the platform, the number of
    submissions, and warnings; raises GradingError if there is no submission in the download.
    """
    with Limited() as limited:
        try:
            paths = limited.call(partial(listed, download))
        except Rejected as why:
            raise GradingError(f"{download}: {why}") from why
        root = download.stem if download.is_file() else download.name
        source = recognised(paths, root, exercise)
        if not source.files:
            raise GradingError(
                f"no submission found in {download}: give what the platform offers for download, "
                f"or a folder of <student>/{exercise}.ipynb"
            )
        collected = read_collected(submissions)
        record = collected.get(exercise, Collected(source.platform))
        if record.platform != source.platform:  # its keys are nothing to the other platform
            record = Collected(source.platform)
        people = read_people(submissions)
        _, warnings = people.add_list(roster) if roster else (None, [])
        folders, remarks = _folders(source, people, record, collected, roster)
        warnings += remarks
        by_folder: dict[str, list[File]] = defaultdict(list)
        for file in source.files:
            by_folder[folders[file.student, file.number]].append(file)
        groups = []
        for student, files in sorted(by_folder.items()):
            problems = _copied(limited, download, files, submissions / student, exercise)
            if source.platform == GITHUB and download.is_dir():
                clone = download / files[0].path.removesuffix(files[0].name)
                if committed := commit_time(clone):
                    atomic.write(submissions / student / exercise / TIMESTAMP, committed.encode())
            warnings += [f"{shown(student)}: {problem}" for problem in problems]
            # Canvas returns feedback under the file's own name, so feedback belongs to a notebook.
            keys = [f.key for f in files if source.platform != CANVAS or f.name.endswith(".ipynb")]
            if source.platform == MOODLE and roster and roster.members(files[0].student):
                groups.append(student)
                keys = []  # Moodle would take the group's number for a participant's
            record.keys[student] = keys[0] if keys else ""
            late = {student} if any(file.late for file in files) else set()
            record.students[student] = files[0].student, files[0].number
            record.late = sorted({*record.late} - {student} | late)
    if groups:
        names = ", ".join(map(shown, groups[:5])) + (", …" if len(groups) > 5 else "")
        warnings.append(
            f"{len(groups)} are groups ({names}): with this class list their members get the "
            "points, and with the grading worksheet also the feedback"
        )
    if source.strays:
        names = ", ".join(map(shown, source.strays[:5]))
        files = "1 file has" if len(source.strays) == 1 else f"{len(source.strays)} files have"
        warnings.append(f"{files} the name of no student: {names}")
    record.write(submissions, exercise)
    write_people(submissions, people)
    return source.platform, len(by_folder), warnings


def _folders(
    download: Download,
    people: People,
    before: Collected,
    collected: Mapping[str, Collected],
    roster: Roster | None,
) -> tuple[dict[tuple[str, str], str], list[str]]:
    """Return each student's folder, by name and number, and warnings.

    It is the folder of an earlier collection, else that of the same person, else a new one.
    ``before`` is the record of an earlier collection of this exercise; ``collected`` has all.
    """
    students = sorted({(file.student, file.number) for file in download.files})
    called = handles(download.platform, [*students, *before.students.values()])
    counts = Counter(name.casefold() for name, _ in students)
    recorded = before.folders
    earlier = _folders_of_persons(people, collected)
    folders: dict[tuple[str, str], str] = {}
    unknown = []
    for name, number in students:
        handle = called[name, number]
        folder = recorded.get((name, number), "")
        person = people.person(folder, handle)
        numbered = folder_name(f"{name} {number}")
        # Canvas's number is the person's, Moodle's is another one in each assignment.
        clear = download.platform != CANVAS and counts[name.casefold()] == 1 and not is_hidden(name)
        named = folder_name(name) if clear else numbered
        row = people.rows.get(named)
        is_persons = row and (row.identifiers or not row.same_as)
        if person is None and download.platform != FOLDER and is_persons:
            # Under that name the work would be another's.
            named = numbered = people.free_name(numbered)
        first_choice = earlier.get(person.student, person.student) if person else named
        in_use = (path for whose, path in recorded.items() if whose != (name, number))
        # Some file systems do not tell "Ada" from "ada".
        taken = {path.casefold() for path in (*folders.values(), *in_use)}
        free = (first_choice, numbered, *(f"{numbered} ({n})" for n in range(2, len(taken) + 3)))
        folder = folder or next(
            free_folder for free_folder in free if free_folder.casefold() not in taken
        )
        folders[name, number] = folder
        in_a_group = roster is not None and bool(roster.members(name))
        if person or in_a_group or is_hidden(name):
            people.drop_guess(folder)
        else:
            unknown += [folder] if any(people.persons) else []
            people.add_folder(folder, handle)
    return folders, _of_unknown(unknown, counts, download.platform, people)


def _folders_of_persons(people: People, collected: Mapping[str, Collected]) -> dict[str, str]:
    """Return the folder that each person already has in any exercise."""
    earlier: dict[str, str] = {}
    for _, of_exercise in sorted(collected.items()):
        called = handles(of_exercise.platform, of_exercise.students.values())
        for folder, whose in of_exercise.students.items():
            if person := people.person(folder, called[tuple(whose)]):
                earlier.setdefault(person.student, folder)
    return earlier


def _of_unknown(
    unknown: list[str], alike: Counter[str], platform: str, people: People
) -> list[str]:
    warnings = []
    if unknown:
        warnings.append(
            f"{len(unknown)} not found in the class list, or ambiguous there: "
            f"{', '.join(map(shown, unknown[:10]))}; say who they are in {PEOPLE}, in the column "
            "'same as' (a name with a question mark is a guess: delete the mark if it is right)"
        )
    twins = sorted(name for name, number in alike.items() if number > 1)
    if platform == MOODLE and twins and (unknown or not any(people.persons)):
        warnings.append(
            f"several students are called {', '.join(map(shown, twins))}: Moodle's number "
            "distinguishes them, but differs in each assignment; give the assignment's grading "
            "worksheet as --roster to recognise them in all assignments"
        )
    return warnings


def _copied(
    limited: Limited, download: Path, files: list[File], student: Path, exercise: str
) -> list[str]:
    """Copy a student's files, zips unopened if opening them exceeds the limits; return warnings."""
    # A student's own file of that name would be read as nbgrader's time of collection.
    named = [(file.path, file.name) for file in files if Path(file.name).name != TIMESTAMP]
    problems: list[str] = []
    for look_inside in (True, False):
        try:
            copy = partial(copied, download, named, student, exercise, look_inside)
            return [*limited.call(copy), *problems]
        except Rejected as why:
            problems = [f"a zip in the submission was not opened: {why}"]
    return [f"{problems[0]}; it was not copied, either; the earlier collection stays unchanged"]


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
        platform, number, warnings = collect_download(
            options.download, options.exercise, options.into, roster
        )
    except (GradingError, OSError) as error:
        reason = in_words(error, options.into) if isinstance(error, OSError) else error
        print(f"error: {reason}", file=sys.stderr)
        return 2
    print(f"{number} submissions of {options.exercise}, from {platform}")
    print(f"  {options.into}")
    for line in warnings:
        print(f"warning: {line}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
