"""The teacher's command: ``python -m backward_twice.grading SUBMISSIONS --out OUT``.

What can go wrong for the teacher is looked for first: masters, private folder, output folder,
gradebook, sandbox, scheduler.  Then each submission that the journal does not hold yet is read,
rebuilt and graded, and written to the journal at once.  Gradebook, table and feedback are made of
the journal at the end; so grading may be interrupted anywhere and started again, and grading twice
changes nothing.  No row is lost because a run sees less: one student's submissions alone, or a
folder from which some are gone.

Exit codes: 0, every submission has its row, whatever is in it; 2, something is for the teacher to
put right; 130, interrupted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import cached_property, partial
from itertools import chain, islice, product
from pathlib import Path

from sqlalchemy.engine import URL, make_url

from backward_twice.grading import GradingError
from backward_twice.grading.feedback.page import write_page
from backward_twice.grading.feedback.table import (
    Row,
    row,
    summary,
    with_group,
    without,
    write_class,
    write_table,
)
from backward_twice.grading.intake.reading import Reader
from backward_twice.grading.intake.submissions import Place, Rejected, in_words, shown
from backward_twice.grading.platforms.nbgrader.autograded import write_notebook
from backward_twice.grading.platforms.nbgrader.collected import find, read
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
from backward_twice.grading.progress import Progress
from backward_twice.grading.run import batch
from backward_twice.grading.run.answers import Answers
from backward_twice.grading.run.draws import Draws, read_draws
from backward_twice.grading.run.journal import Journal, Key, open_journal
from backward_twice.grading.run.judge import Json, checks_digest, job, rejected
from backward_twice.grading.run.master import Master, read_masters
from backward_twice.grading.sandbox import Limits, available

_PROBE_BYTES = 1 << 20


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m backward_twice.grading",
        description="Grade submissions laid out as nbgrader collects them: "
        "SUBMISSIONS/<student>/<assignment>/<assignment>.ipynb.",
        epilog="Started again with the same OUT it goes on where it was interrupted.",
    )
    add = parser.add_argument
    add("submissions", type=Path, metavar="SUBMISSIONS", help="the folder of submissions")
    add("--out", type=Path, required=True, help="folder for grades.csv, feedback and the rest")
    add("--gradebook", metavar="URL", help="SQLAlchemy address (default: OUT/gradebook.db, SQLite)")
    add("--formgrader", action="store_true", help="gradebook.db and autograded/ go here, not OUT")
    add("--roster", type=Path, metavar="CSV", help="the class list that your platform exports")
    add("--student", action="append", metavar="NAME", help="grade only this student's submissions")
    add("--again", action="store_true", help="grade anew what was graded already")
    add("--drop-missing", action="store_true", help="forget results whose submission is gone")
    add("--late", type=_percent, metavar="PERCENT", help="points off for each day begun")
    add("--grace", type=_positive, default=0, metavar="MINUTES", help="not counted as late")
    add("--private", type=Path, metavar="DIR", help="your own secret and variants of questions")
    add("--solutions", type=Path, metavar="DIR", default=Path("solutions"), help="the masters")
    add("--scheduler", metavar="ADDRESS", help="a Dask scheduler (default: processes here)")
    add("--workers", type=_positive, default=os.cpu_count(), help="processes here (default: CPUs)")
    add("--seconds", type=_positive, default=30, help="limit for each cell and question")
    add("--memory", type=_positive, default=2048, metavar="MB", help="limit for each submission")
    add("--container-image", metavar="IMAGE", help="for where there is no bubblewrap")
    add("--trusted", action="store_true", help="run without a sandbox: you trust every submission")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def _percent(text: str) -> int:
    if (number := _positive(text)) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is more than 100 percent")
    return number


Todo = tuple[str, Master, Answers]
"""A student's name, the exercise, and the answers to grade."""


@dataclass
class Grading:
    """A grading under way: what it grades by, and what it found out about each submission."""

    options: argparse.Namespace
    masters: dict[str, Master]
    draws: Draws
    journal: Journal
    reader: Reader
    roster: Roster | None = None

    @cached_property
    def limits(self) -> Json:
        seconds, memory = self.options.seconds, self.options.memory << 20
        return asdict(Limits(seconds=seconds, memory=memory, total=4 * seconds))

    @cached_property
    def sandbox(self) -> Json:
        """How the sandbox is chosen; on other machines the workers find out for themselves."""
        options = self.options
        folders = [options.submissions, options.out, options.solutions, options.private]
        remote = options.scheduler or options.trusted
        kind = None if remote else available(options.container_image)
        return {
            "kind": "none" if options.trusted else kind,
            "image": options.container_image,
            "hide": [str(folder.resolve()) for folder in folders if folder is not None],
        }

    @cached_property
    def collected(self) -> dict[str, Collected]:
        """Of each exercise, where its submissions came from."""
        return {name: read_collected(self.options.submissions, name) for name in self.masters}

    @cached_property
    def _class(self) -> tuple[Owners | None, list[str]]:
        if self.roster is None:
            return None, []
        return read_owners(self.options.submissions, self.roster, self.collected)

    @property
    def owners(self) -> Owners | None:
        """Who is who in the class list, where there is one."""
        return self._class[0]

    @property
    def autograded(self) -> Path:
        """Where the graded notebooks go; Formgrader looks in the folder it was started in."""
        return (Path() if self.options.formgrader else self.options.out) / "autograded"

    @cached_property
    def digest(self) -> list[str]:
        """What every submission's grade depends on."""
        sandboxed = "trusted" if self.options.trusted else "sandboxed"
        return [self.draws.digest, sandboxed, repr(sorted(self.limits.items()))]

    def todo(self, places: list[Place], progress: Progress) -> Iterator[tuple[Told, Todo]]:
        """What is still to be graded, with what is to be kept beside the result.

        A submission that cannot be graded has its result at once.
        """
        for place in places:
            key = (place.student, place.assignment)
            master = self.masters.get(place.assignment)
            try:
                opened = partial(read, self.options.submissions, place)
                given = self.reader.read(place.assignment, opened)
            except Rejected as why:
                points = master.max_points if master else 0.0
                self.keep(Told(f"rejected: {why}"), rejected(*key, str(why), points))
                progress.advance()
                continue
            digest = self.draws.key(
                *self.digest, checks_digest(master.name), master.digest, given.answers.digest
            )
            collected = self.collected[master.name]
            late = [f"late, says {collected.platform}"] if key[0] in collected.late else []
            told = Told(digest, (*given.notes, *late), given.timestamp)
            if self.journal.holds(key, digest) and not self.options.again:
                self.keep(told, self.journal[key])
                progress.advance()
            else:
                yield told, (place.student, master, given.answers)

    def jobs(self, todo: Iterable[tuple[Told, Todo]]) -> Iterator[tuple[Told, Json]]:
        """The same as jobs for workers; now the sandbox has to be known."""
        settings = {"limits": self.limits, "sandbox": self.sandbox}
        for told, (student, master, answers) in todo:
            yield told, job(student, master, answers, self.draws, settings)

    def keep(self, told: Told, result: Json) -> None:
        """Write a result down, with the remarks on its submission."""
        when = told.timestamp and told.timestamp.isoformat()
        self.journal.add(told.digest, result | {"notes": [*told.notes], "timestamp": when})

    def missing(self, places: list[Place]) -> list[Key]:
        """What was graded before and is not among the submissions any more."""
        there = {(place.student, place.assignment) for place in places}
        return sorted(key for key in self.journal.keys() - there if key[1] in self.masters)

    def write(self, keys: list[Key], gradebook: Grades) -> tuple[list[Row], list[str]]:
        """Gradebook, feedback and tables, from the journal; the rows, and what is to be said."""
        rows: list[tuple[Row, Person | None]] = []
        if self.owners is not None:
            gradebook.enroll(self._people(keys))
        results = ((self.journal[key], _when(self.journal[key])) for key in keys)
        cost = self.options.late and Late(self.options.late, 60 * self.options.grace)
        for key, late in zip(keys, gradebook.record(results, cost or None), strict=True):
            found = self.journal[key]
            off = cost.penalty(found["points"], late) if cost else 0.0
            result = found | {"points": found["points"] - off}
            said = [*result.get("notes", ()), *_lateness(late, off)]
            if master := self.masters.get(key[1]):
                said += self._write_feedback(result, master, said)
            person = self.owners and self.owners.person(key)
            rows.append((row(result, said, person), person))
        names = sorted({name for _, name in keys if name in self.masters})
        max_points = {name: self.masters[name].max_points for name in names}
        warnings = []
        if self.owners is not None:
            warnings = self._add_others(rows, max_points)
            warnings += [*self._class[1], *self._write_people(rows)]
        write_table(self.options.out / "grades.csv", [each for each, _ in rows])
        # A group's points are its members' there.
        of_persons = [
            (each, person)
            for each, person in rows
            if not (self.owners and self.owners.members((each.student, each.assignment)))
        ]
        told = write_class(self.options.out / "class.csv", of_persons, self.roster, max_points)
        self._write_uploads(keys, names)
        return [each for each, _ in rows], [*warnings, *told]

    def _add_others(
        self, rows: list[tuple[Row, Person | None]], max_points: Mapping[str, float]
    ) -> list[str]:
        """Add a row for everybody in the class list who has none: a group's member, or nobody's.

        Returns:
            what the teacher has to know of groups.
        """
        there = {(person, each.assignment) for each, person in rows}
        of_groups: dict[tuple[Person, str], list[Row]] = defaultdict(list)
        for each, _ in rows:
            for person in self.owners.members((each.student, each.assignment)):
                of_groups[person, each.assignment].append(each)
        warnings = []
        for person, name in product(self.owners.roster.people, max_points):
            if (person, name) in there:
                continue
            groups = of_groups[person, name]
            if len(groups) == 1:
                rows.append((with_group(person, groups[0]), person))
                continue
            rows.append((without(person, name, max_points[name]), person))
            if groups:
                listed = " and ".join(shown(each.student) for each in groups)
                warnings.append(
                    f"{shown(person.name)} is in {listed}, and each handed in {name}: no points of "
                    "it are the member's in class.csv"
                )
        return warnings

    def _write_people(self, rows: Iterable[tuple[Row, Person | None]]) -> list[str]:
        """Write down who is who, with whom nobody knows; what there is to say if that fails."""
        people = self.owners.people
        for each, person in rows:
            key = each.student, each.assignment
            handle = self.owners.handle(key)
            if each.assignment not in self.masters or is_hidden(handle.name):
                continue
            if person or self.owners.identity(key) or self.owners.members(key):
                people.drop_guess(each.student)
            else:
                people.add_folder(each.student, handle)
        try:
            write_people(self.options.submissions, people)
        except OSError as error:
            return [f"who is who was not written down: {in_words(error, PEOPLE)}"]
        return []

    def _write_feedback(self, result: Json, master: Master, said: list[str]) -> list[str]:
        """A student's page and notebook; what there is to say if none can be made of the result.

        Raises:
            OSError: they cannot be written, and so nobody's can.
        """
        path = self.options.solutions / master.name / f"{master.name}.ipynb"
        try:
            write_page(self.options.out / "feedback", result, master, said)
            write_notebook(self.autograded, result, path, said)
        except OSError:
            raise
        except Exception as error:  # whatever one student's words do, the others have their grades
            return [f"no feedback could be made of it: {type(error).__name__}: {error}"]
        return []

    def _write_uploads(self, keys: list[Key], names: list[str]) -> None:
        """The zips that give the feedback back to the platforms the submissions came from."""
        out = self.options.out
        for name in names:
            write_upload(
                out / "upload" / f"{name}.zip",
                name,
                self.collected[name],
                {key[0]: self._participants(key) for key in keys if key[1] == name},
                lambda student, name=name: out / "feedback" / student / name / f"{name}.html",
                lambda student, name=name: self.autograded / student / name / f"{name}.ipynb",
            )

    def _participants(self, key: Key) -> list[Participant] | None:
        """A group's members whose numbers Moodle's worksheet says; None if it is no group."""
        members = self.owners.members(key) if self.owners else ()
        numbers = [(person.name, person.marks.get("moodle", "")) for person in members]
        return [member for member in numbers if member[1]] if members else None

    def _people(self, keys: list[Key]) -> dict[str, Person]:
        """Everybody in the class list, by the folder's name, or what that would be."""
        of = ((student, self.owners.person((student, name))) for student, name in keys)
        known = {student: person for student, person in of if person is not None}
        seen = set(known.values())
        listed = self.owners.listed.items()
        others = {identity.student: person for person, identity in listed if person not in seen}
        return others | known


@dataclass(frozen=True)
class Told:
    """What is kept beside a result: the digest it is kept under, and remarks on the submission."""

    digest: str
    notes: tuple[str, ...] = ()
    timestamp: datetime | None = None


def _when(result: Json) -> datetime | None:
    return datetime.fromisoformat(when) if (when := result.get("timestamp")) else None


def _lateness(seconds: float, off: float) -> list[str]:
    cost = f", {off:g} points off" if off else ""
    return [f"late by {timedelta(seconds=round(seconds))}{cost}"] if seconds > 0 else []


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        return _grade(options)
    except KeyboardInterrupt:
        print("interrupted; what was graded is kept, start again to go on", file=sys.stderr)
        return 130
    except GradingError as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(
            f"error: {in_words(error, options.out)}; what was graded is kept, start again to go on",
            file=sys.stderr,
        )
    return 2


def _grade(options: argparse.Namespace) -> int:
    out = options.out
    _look_at_folders(options.submissions, out)
    masters = read_masters(options.solutions)
    here = URL.create("sqlite", database=str((out / "gradebook.db").resolve()))
    if options.formgrader:
        here = URL.create("sqlite", database=str(Path("gradebook.db").resolve()))
    url = options.gradebook or here
    places = find(options.submissions, masters)
    with ExitStack() as stack:
        # Before anything else is written there: one grading at a time.
        journal = stack.enter_context(open_journal(out / "results.jsonl"))
        roster = _roster(options.roster, out)
        draws = read_draws(out, options.private, masters)
        reader = stack.enter_context(Reader(masters))
        grading = Grading(options, masters, draws, journal, reader, roster)
        chosen = _chosen(places, options, grading.owners)
        missing = grading.missing(places)
        if options.drop_missing:
            for key in missing:
                journal.drop(key)
            missing = []
        keys = {(place.student, place.assignment) for place in chosen}
        keys |= {(p.student, p.assignment) for p in places} & journal.keys() | {*missing}
        # nbgrader's export has a line for every student and assignment: no more than there are.
        wanted = {name: masters[name] for name in masters if name in {key[1] for key in keys}}
        with open_gradebook(url, wanted):
            pass  # it can be written
        with Progress(len(chosen)) as progress:
            todo = grading.todo(chosen, progress)
            first = list(islice(todo, 1))
            if first:  # else all is graded already, and there is no need of workers
                # A sandbox is tried while the workers start: both take a second or more.
                trying = stack.enter_context(ThreadPoolExecutor(1)).submit(lambda: grading.sandbox)
                number = min(options.workers, len(chosen))  # none that has nothing to do
                client = stack.enter_context(batch.workers(options.scheduler, number))
                trying.result()
                for told, result in batch.run(client, grading.jobs(chain(first, todo))):
                    grading.keep(told, result)
                    progress.advance()
        try:
            with open_gradebook(url, wanted) as gradebook:
                rows, warnings = grading.write(sorted(keys), gradebook)
        except GradingError as error:
            raise GradingError(f"{error}; what was graded is kept, start again") from error
    where = Path("gradebook.db") if options.formgrader else out / "gradebook.db"
    if options.gradebook:
        where = make_url(options.gradebook).render_as_string(hide_password=True)
    told = [out / "grades.csv", out / "class.csv", out / "feedback", grading.autograded, where]
    told += sorted((out / "upload").glob("*.zip"))
    print(summary(rows, told))
    for warning in [*_gone(missing, options), *warnings]:
        print(f"warning: {warning}", file=sys.stderr)
    return 0


def _roster(path: Path | None, out: Path) -> Roster | None:
    """The class list, or the one that was given before: it is kept in the output folder."""
    kept = out / "roster.csv"
    if path is None:
        return read_roster(kept) if kept.is_file() else None
    roster = read_roster(path)
    if path.resolve() != kept.resolve():
        shutil.copyfile(path, kept)
    return roster


def _chosen(places: list[Place], options: argparse.Namespace, owners: Owners | None) -> list[Place]:
    """The places of the students that were named, by folder or by the class list; or all."""
    if not options.student:
        return places
    students = {place.student for place in places}
    chosen: set[str] = set()
    for name in options.student:
        person = owners and owners.find(name)
        found = {name} & students or {
            place.student
            for place in places
            if person and owners.person((place.student, place.assignment)) is person
        }
        chosen |= found
        if not found:
            near = get_close_matches(name, students, n=3, cutoff=0.5)
            like = f"; there is {', '.join(map(shown, near))}" if near else ""
            raise GradingError(f"no submission of {shown(name)!r} in {options.submissions}{like}")
    return [place for place in places if place.student in chosen]


def _gone(missing: list[Key], options: argparse.Namespace) -> list[str]:
    """Words on results that stay though their submissions are gone."""
    if not missing:
        return []
    listed = ", ".join(f"{shown(student)} ({assignment})" for student, assignment in missing[:10])
    more = ", …" if len(missing) > 10 else ""
    return [
        f"{len(missing)} graded before are not in {options.submissions} any more: {listed}{more}; "
        "their rows stay. If they were taken away on purpose: --drop-missing"
    ]


def _look_at_folders(submissions: Path, out: Path) -> None:
    """Find out now, not after grading, whether there is something to read and room to write."""
    if not submissions.is_dir():
        raise GradingError(f"there is no folder {submissions}")
    if out.resolve().is_relative_to(submissions.resolve()):
        raise GradingError(f"{out} lies in {submissions}, where it would be taken for a student's")
    if out.exists() and not out.is_dir():
        raise GradingError(f"{out} is no folder; choose another name for --out")
    out.mkdir(parents=True, exist_ok=True)
    probe = out / ".probe"
    try:
        with probe.open("wb") as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    finally:
        with suppress(OSError):
            probe.unlink()
