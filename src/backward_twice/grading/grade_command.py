"""The teacher's command: ``python -m backward_twice.grading SUBMISSIONS --out OUT``.

Everything that the teacher may have to correct is checked first: masters, private folder, output
folder, gradebook, sandbox.  Then each submission that is not in the journal yet is read, rebuilt,
graded, and written to the journal immediately.  Gradebook, tables and feedback are created from the
journal at the end.  So grading may be interrupted and continued, and grading twice changes nothing.

Exit codes: 0, every submission has a row; 2, the teacher must correct something; 130, interrupted.
"""

import argparse
import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from itertools import chain, islice, product
from pathlib import Path

from backward_twice.grading import GradingError
from backward_twice.grading.feedback import tables
from backward_twice.grading.feedback.student_page import write_page
from backward_twice.grading.intake.reading import Reader
from backward_twice.grading.intake.submissions import (
    Rejected,
    SubmissionFolder,
    in_words,
    read,
    shown,
)
from backward_twice.grading.judging import batch
from backward_twice.grading.judging.draws import Draws, read_draws
from backward_twice.grading.judging.grader import Json, checks_digest, job, rejected
from backward_twice.grading.judging.journal import Journal, Key, open_journal
from backward_twice.grading.judging.master import Master, read_masters
from backward_twice.grading.platforms.nbgrader.autograded import write_notebook
from backward_twice.grading.platforms.nbgrader.collected import find
from backward_twice.grading.platforms.nbgrader.gradebook import Grades, Late, open_gradebook
from backward_twice.grading.platforms.owners import Owners, read_owners
from backward_twice.grading.platforms.people import PEOPLE, is_hidden, write_people
from backward_twice.grading.platforms.roster import Person, Roster, read_roster
from backward_twice.grading.platforms.upload import (
    Collected,
    Participant,
    read_collected,
    write_upload,
)
from backward_twice.grading.sandbox.limits import SubmissionLimits
from backward_twice.grading.sandbox.protocol import check_sandbox

_MOST_LISTED = 10


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m backward_twice.grading",
        description="Grade submissions laid out as nbgrader collects them: "
        "SUBMISSIONS/<student>/<assignment>/<assignment>.ipynb.",
        epilog="Run it again with the same OUT to continue an interrupted grading.",
    )
    add = parser.add_argument
    add("submissions", type=Path, metavar="SUBMISSIONS", help="the folder of submissions")
    add("--out", type=Path, required=True, help="folder for grades.csv, feedback and the rest")
    add("--formgrader", action="store_true", help="gradebook.db and autograded/ go here, not OUT")
    add("--roster", type=Path, metavar="CSV", help="the class list that your platform exports")
    add("--student", action="append", metavar="NAME", help="grade only this student's submissions")
    add("--again", action="store_true", help="grade again what was graded already")
    add("--drop-missing", action="store_true", help="forget results whose submission is gone")
    add("--late", type=_positive, metavar="PERCENT", help="points off for each day begun")
    add("--grace", type=_positive, default=0, metavar="MINUTES", help="not counted as late")
    add(
        "--extension",
        nargs=3,
        action="append",
        default=[],
        metavar=("NAME", "EXERCISE", "DAYS"),
        help="let a student hand in that many days later",
    )
    add("--private", type=Path, metavar="DIR", help="your own secret and variants of questions")
    add("--solutions", type=Path, metavar="DIR", default=Path("solutions"), help="the masters")
    add("--workers", type=_positive, default=os.cpu_count(), help="processes (default: CPUs)")
    seconds, memory = int(SubmissionLimits.seconds), SubmissionLimits.memory >> 20
    add("--seconds", type=_positive, default=seconds, help="limit for each cell and question")
    add("--memory", type=_positive, default=memory, metavar="MB", help="limit for each submission")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


@dataclass
class Grading:
    """The state of a grading: its settings, masters, class list, journal and progress."""

    options: argparse.Namespace
    masters: dict[str, Master]
    draws: Draws
    journal: Journal
    reader: Reader
    roster: Roster | None = None
    extensions: dict[Key, timedelta] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)  # a line for each score that has changed
    chosen: int = 0  # submissions to grade
    done: int = 0  # of these, the stored ones

    @cached_property
    def limits(self) -> Json:
        seconds, memory = self.options.seconds, self.options.memory << 20
        return asdict(SubmissionLimits(seconds=seconds, memory=memory, total=4 * seconds))

    @cached_property
    def hidden(self) -> list[str]:
        """The folders that no submission may see."""
        options = self.options
        folders = [options.submissions, options.out, options.solutions, options.private]
        return [str(folder.resolve()) for folder in folders if folder is not None]

    @cached_property
    def collected(self) -> dict[str, Collected]:
        """The origin of each exercise's submissions, by the exercise's name."""
        records = read_collected(self.options.submissions)
        return {name: records.get(name, Collected()) for name in self.masters}

    @cached_property
    def owners(self) -> Owners | None:
        """The owners of the submissions, if there is a class list."""
        return self.roster and read_owners(self.options.submissions, self.roster, self.collected)

    @property
    def autograded(self) -> Path:
        """The folder of the graded notebooks; with ``--formgrader`` it is in the current folder."""
        return (Path() if self.options.formgrader else self.options.out) / "autograded"

    @cached_property
    def digest(self) -> list[str]:
        """The settings on which every submission's grade depends, as parts of its digest."""
        return [self.draws.digest, repr(sorted(self.limits.items()))]

    def pending(self, folders: list[SubmissionFolder]) -> Iterator[tuple[tuple[str, Json], Json]]:
        """Yield the submissions still to be graded as jobs for workers; store the other results.

        Each job has a tag: the digest of its result, and the submission's notes and time.
        """
        settings = {"limits": self.limits, "hide": self.hidden}
        for folder in folders:
            key = (folder.student, folder.assignment)
            master = self.masters.get(folder.assignment)
            try:
                opened = partial(read, self.options.submissions, folder)
                answers, about = self.reader.read(folder.assignment, opened)
            except Rejected as why:
                points = master.max_points if master else 0.0
                result = rejected(*key, str(why), points) | {"notes": [], "timestamp": None}
                self.store(f"rejected: {why}", result)
                continue
            digest = self.draws.key(
                *self.digest, checks_digest(master.name), master.digest, answers.digest
            )
            collected = self.collected[master.name]
            if key[0] in collected.late:
                about["notes"].append(f"late, says {collected.platform}")
            if self.journal.holds(key, digest) and not self.options.again:
                self.store(digest, self.journal[key] | about)
            else:
                yield (digest, about), job(folder.student, master, answers, self.draws, settings)

    def store(self, digest: str, result: Json) -> None:
        """Write a result into the journal, note changed points, and print progress by tenths."""
        student, assignment = key = result["student"], result["assignment"]
        earlier = self.journal.points(key)
        self.journal.add(digest, result)
        points = self.journal.points(key)
        if earlier and points != earlier:
            old, new = (f"{history[-1].points:g}" for history in (earlier, points))
            self.changes.append(f"{shown(student)}, {shown(assignment)}: {old} → {new} points")
        self.done += 1
        if self.done * 10 // self.chosen > (self.done - 1) * 10 // self.chosen:
            print(f"{self.done} of {self.chosen} done", file=sys.stderr)

    def missing(self, folders: list[SubmissionFolder]) -> list[Key]:
        """Return the keys of results of known exercises whose submissions no longer exist."""
        present = {(folder.student, folder.assignment) for folder in folders}
        return sorted(key for key in self.journal.keys() - present if key[1] in self.masters)

    def write(self, keys: list[Key], gradebook: Grades) -> tuple[list[tables.Row], list[str]]:
        """Write gradebook, feedback and tables; return the rows of the table, and warnings."""
        rows: list[tables.Row] = []
        if self.owners is not None:
            gradebook.enroll(self._people(keys))
        results = (self.journal[key] for key in keys)
        cost = Late(self.options.late, 60 * self.options.grace) if self.options.late else None
        lateness = gradebook.record(results, cost, self.extensions)
        for key, late in zip(keys, lateness, strict=True):
            result = self.journal[key]
            off = cost.penalty(result["points"], late) if cost else 0.0
            result = result | {"points": result["points"] - off}
            remarks = [*result.get("notes", ()), *_lateness(late, off)]
            if master := self.masters.get(key[1]):
                remarks += self._write_feedback(result, master, remarks)
            person = self.owners and self.owners.person(key)
            rows.append(tables.row(result, remarks, person, self.journal.points(key)[:-1]))
        names = sorted({name for _, name in keys if name in self.masters})
        max_points = {name: self.masters[name].max_points for name in names}
        warnings = []
        if self.owners is not None:
            warnings = self._add_others(rows, max_points)
            warnings += [*self.owners.problems, *self._write_people(rows)]
        tables.write_table(self.options.out / "grades.csv", rows)
        # class.csv lists the members of a group, not the group.
        of_persons = [
            line
            for line in rows
            if not (self.owners and self.owners.members((line.student, line.assignment)))
        ]
        path = self.options.out / "class.csv"
        warnings += tables.write_class(path, of_persons, self.roster, max_points)
        for name in names:
            students = {key[0]: self._participants(key) for key in keys if key[1] == name}
            collected = self.collected[name]
            write_upload(self.options.out, name, collected, students, self.autograded)
        return rows, warnings

    def _add_others(self, rows: list[tables.Row], max_points: Mapping[str, float]) -> list[str]:
        """Add missing rows of listed persons; warn if two of a person's groups submitted."""
        present = {(line.person, line.assignment) for line in rows}
        of_groups: dict[tuple[Person, str], list[tables.Row]] = defaultdict(list)
        for line in rows:
            for person in self.owners.members((line.student, line.assignment)):
                of_groups[person, line.assignment].append(line)
        warnings = []
        for person, name in product(self.owners.roster.people, max_points):
            if (person, name) in present:
                continue
            groups = of_groups[person, name]
            if len(groups) == 1:
                rows.append(tables.with_group(person, groups[0]))
                continue
            rows.append(tables.without(person, name, max_points[name]))
            if groups:
                listed = " and ".join(shown(line.student) for line in groups)
                warnings.append(
                    f"{shown(person.name)} is in {listed}, and each handed in {name}: class.csv "
                    "has no points for this member"
                )
        return warnings

    def _write_people(self, rows: Iterable[tables.Row]) -> list[str]:
        """Write the identities, with the folders of unknown students; warn if that fails."""
        people = self.owners.people
        for line in rows:
            key = line.student, line.assignment
            handle = self.owners.handle(key)
            if line.assignment not in self.masters or is_hidden(handle.name):
                continue
            if line.person or self.owners.identity(key) or self.owners.members(key):
                people.drop_guess(line.student)
            else:
                people.add_folder(line.student, handle)
        try:
            write_people(self.options.submissions, people)
        except OSError as error:
            return [f"the identities were not saved: {in_words(error, PEOPLE)}"]
        return []

    def _write_feedback(self, result: Json, master: Master, remarks: list[str]) -> list[str]:
        """Write a student's page and notebook; return a remark if that fails for this result."""
        path = self.options.solutions / master.name / f"{master.name}.ipynb"
        try:
            write_page(self.options.out / "feedback", result, master, remarks)
            write_notebook(self.autograded, result, path, remarks)
        except OSError:  # the output folder cannot be written, so the grading stops
            raise
        except Exception as error:  # one student's text must not stop the grading of the others
            return [f"the feedback could not be written: {type(error).__name__}: {error}"]
        return []

    def _participants(self, key: Key) -> list[Participant] | None:
        """Return a group's members whose numbers in Moodle are known; None if it is not a group."""
        members = self.owners.members(key) if self.owners else ()
        numbers = [(person.name, person.marks.get("moodle", "")) for person in members]
        return [member for member in numbers if member[1]] if members else None

    def _people(self, keys: list[Key]) -> dict[str, Person]:
        """Return all persons in the class list by folder, whether they handed in or not."""
        owned = ((student, self.owners.person((student, name))) for student, name in keys)
        present = {student: person for student, person in owned if person is not None}
        persons = set(present.values())
        listed = self.owners.listed.items()
        absent = {identity.student: person for person, identity in listed if person not in persons}
        return absent | present


def _lateness(seconds: float, off: float) -> list[str]:
    cost = f", {off:g} points off" if off else ""
    return [f"late by {timedelta(seconds=round(seconds))}{cost}"] if seconds > 0 else []


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        return _grade(options)
    except KeyboardInterrupt:
        print(f"interrupted; {batch.SAVED}", file=sys.stderr)
        return 130
    except GradingError as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"error: {in_words(error, options.out)}; {batch.SAVED}", file=sys.stderr)
    return 2


def _grade(options: argparse.Namespace) -> int:
    out = options.out
    _check_folders(options.submissions, out)
    masters = read_masters(options.solutions)
    folder = Path() if options.formgrader else out
    place = folder / "gradebook.db"
    folders = find(options.submissions, masters)
    with ExitStack() as stack:
        # Before anything else is written there: one grading at a time.
        journal = stack.enter_context(open_journal(out / "results.jsonl"))
        roster = _roster(options.roster, out)
        draws = read_draws(out, options.private, masters)
        reader = stack.enter_context(Reader(masters))
        grading = Grading(options, masters, draws, journal, reader, roster)
        chosen = folders
        if options.student:
            students = _students(options.student, folders, grading)
            chosen = [folder for folder in folders if folder.student in students]
        grading.extensions = _extensions(folders, grading)
        missing = grading.missing(folders)
        if options.drop_missing:
            for key in missing:
                journal.drop(key)
            missing = []
        keys = {(folder.student, folder.assignment) for folder in chosen}
        keys |= {(f.student, f.assignment) for f in folders} & journal.keys() | {*missing}
        # nbgrader exports a line for each student and assignment: only for those that exist.
        graded = {name: masters[name] for name in masters if name in {key[1] for key in keys}}
        with open_gradebook(place, graded):
            pass  # it can be written
        grading.chosen = len(chosen)
        pending = grading.pending(chosen)
        first = list(islice(pending, 1))
        if first:  # else everything is graded already
            check_sandbox()
            number = min(options.workers, len(chosen))  # no idle ones
            workers = stack.enter_context(batch.Workers(number))
            for (digest, about), result in batch.run(workers, chain(first, pending)):
                grading.store(digest, result | about)
        try:
            with open_gradebook(place, graded) as gradebook:
                rows, warnings = grading.write(sorted(keys), gradebook)
        except GradingError as error:
            raise GradingError(f"{error}; {batch.SAVED}") from error
    written = [out / name for name in ("grades.csv", "class.csv", "feedback")]
    written += [grading.autograded, place, *sorted((out / "upload").glob("*.zip"))]
    print("\n".join([*_changes(grading.changes), tables.summary(rows, written)]))
    for warning in [*_gone(missing, options), *warnings]:
        print(f"warning: {warning}", file=sys.stderr)
    return 0


def _roster(path: Path | None, out: Path) -> Roster | None:
    """Read and copy the class list; without a path, read the copy in ``out``, if there is one."""
    copy = out / "roster.csv"
    if path is None:
        return read_roster(copy) if copy.is_file() else None
    roster = read_roster(path)
    if path.resolve() != copy.resolve():
        shutil.copyfile(path, copy)
    return roster


def _students(names: Iterable[str], folders: list[SubmissionFolder], grading: Grading) -> set[str]:
    """Look up students' folders by the folders' names, or by the persons in the class list."""
    students = {folder.student for folder in folders}
    owners = grading.owners
    chosen: set[str] = set()
    for name in names:
        person = owners and owners.find(name)
        meant = {name} & students or {
            folder.student
            for folder in folders
            if person and owners.person((folder.student, folder.assignment)) is person
        }
        chosen |= meant
        if not meant:
            raise GradingError(f"no submission of {shown(name)!r} in {grading.options.submissions}")
    return chosen


def _extensions(folders: list[SubmissionFolder], grading: Grading) -> dict[Key, timedelta]:
    extensions = {}
    for name, exercise, days in grading.options.extension:
        of_exercise = [folder for folder in folders if folder.assignment == exercise]
        for student in _students([name], of_exercise, grading):
            try:
                extensions[student, exercise] = timedelta(days=float(days))
            except (ValueError, OverflowError) as error:
                raise GradingError(f"--extension: {days!r} is not a number of days") from error
    return extensions


def _changes(changes: list[str]) -> list[str]:
    if not changes:
        return []
    unlisted = len(changes) - _MOST_LISTED
    listed = changes[:_MOST_LISTED] + ([f"and {unlisted} more"] if unlisted > 0 else [])
    heading = "points that have changed (grades.csv has the earlier points):"
    return [f"{len(changes)} with {heading}", *(f"  {line}" for line in listed)]


def _gone(missing: list[Key], options: argparse.Namespace) -> list[str]:
    if not missing:
        return []
    first = missing[:_MOST_LISTED]
    listed = ", ".join(f"{shown(student)} ({assignment})" for student, assignment in first)
    dots = ", …" if len(missing) > _MOST_LISTED else ""
    return [
        f"{len(missing)} graded submissions are no longer in {options.submissions}: {listed}{dots}"
        "; their rows stay. If you removed them on purpose, add --drop-missing"
    ]


def _check_folders(submissions: Path, out: Path) -> None:
    if not submissions.is_dir():
        raise GradingError(f"there is no folder {submissions}")
    if out.resolve().is_relative_to(submissions.resolve()):
        raise GradingError(f"{out} is inside {submissions}, where it looks like a student's folder")
    if out.exists() and not out.is_dir():
        raise GradingError(f"{out} is not a folder; choose another name for --out")
    out.mkdir(parents=True, exist_ok=True)
