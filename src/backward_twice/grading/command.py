"""The teacher's command: ``python -m backward_twice.grading SUBMISSIONS --out OUT``.

What can go wrong for the teacher is looked for first: masters, private folder, output folder,
gradebook, sandbox, scheduler.  Then each submission that the journal does not hold yet is read,
rebuilt and graded, and written to the journal at once.  Gradebook, table and feedback are made of
the journal at the end; so grading may be interrupted anywhere and started again, and grading twice
changes nothing.

Exit codes: 0, every submission has its row, whatever is in it; 2, something is for the teacher to
put right; 130, interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path

from sqlalchemy.engine import URL, make_url

from backward_twice.grading import GradingError, batch
from backward_twice.grading.draws import Draws, read_draws
from backward_twice.grading.feedback.page import write_page
from backward_twice.grading.feedback.table import Row, row, summary, write_table
from backward_twice.grading.journal import Journal, Key, open_journal
from backward_twice.grading.judge import Json, checks_digest, job, rejected
from backward_twice.grading.master import Master, read_masters
from backward_twice.grading.platforms.nbgrader.collected import find, read
from backward_twice.grading.platforms.nbgrader.gradebook import Grades, open_gradebook
from backward_twice.grading.progress import Progress
from backward_twice.grading.reading import Reader
from backward_twice.grading.sandbox import Limits, available
from backward_twice.grading.submissions import Place, Rejected, shown

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
    add("--private", type=Path, metavar="DIR", help="your own secret and variants of questions")
    add("--solutions", type=Path, metavar="DIR", default=Path("solutions"), help="the masters")
    add("--scheduler", metavar="ADDRESS", help="a Dask scheduler (default: processes here)")
    add("--workers", type=_positive, default=os.cpu_count(), help="processes here (default: CPUs)")
    add("--seconds", type=_positive, default=30, help="limit for each cell and question")
    add("--memory", type=_positive, default=2048, metavar="MB", help="limit for each submission")
    add("--container-image", metavar="IMAGE", help="for where there is no bubblewrap")
    add("--cold", action="store_true", help="for old kernels: what is right is not out of sight")
    add("--trusted", action="store_true", help="run without a sandbox: you trust every submission")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


@dataclass
class Grading:
    """A grading under way: what it grades by, and what it found out about each submission."""

    options: argparse.Namespace
    masters: dict[str, Master]
    draws: Draws
    journal: Journal
    reader: Reader
    said: dict[Key, tuple[tuple[str, ...], datetime | None]] = field(default_factory=dict)

    @cached_property
    def limits(self) -> Json:
        seconds, memory = self.options.seconds, self.options.memory << 20
        return asdict(Limits(seconds=seconds, memory=memory, total=4 * seconds))

    @cached_property
    def sandbox(self) -> Json:
        """How the sandbox is chosen; on other machines the workers find out for themselves."""
        options = self.options
        folders = [options.submissions, options.out, options.solutions, options.private]
        where = options.container_image, options.cold
        kind = None if options.scheduler or options.trusted else available(*where)
        return {
            "kind": "none" if options.trusted else kind,
            "image": options.container_image,
            "cold": options.cold,
            "hide": [str(folder.resolve()) for folder in folders if folder is not None],
        }

    @cached_property
    def digest(self) -> list[str]:
        """What every submission's grade depends on."""
        sandboxed = "trusted" if self.options.trusted else "sandboxed"
        return [self.draws.digest, sandboxed, repr(sorted(self.limits.items()))]

    def jobs(self, places: list[Place], progress: Progress) -> Iterator[tuple[str, Json]]:
        """The jobs still to do, with the digest that their result is kept under.

        A submission that cannot be graded has its result at once.
        """
        for place in places:
            key = (place.student, place.assignment)
            master = self.masters.get(place.assignment)
            try:
                opened = partial(read, self.options.submissions, place)
                given = self.reader.read(place.assignment, opened)
            except Rejected as why:
                self.said[key] = ((), None)
                points = master.max_points if master else 0.0
                self.journal.add(f"rejected: {why}", rejected(*key, str(why), points))
                progress.advance()
                continue
            self.said[key] = given.notes, given.timestamp
            digest = self.draws.key(
                *self.digest, checks_digest(master.name), master.digest, given.answers.digest
            )
            if self.journal.holds(key, digest):
                progress.advance()
            else:
                settings = {"limits": self.limits, "sandbox": self.sandbox}
                yield digest, job(place.student, master, given.answers, self.draws, settings)

    def write(self, places: list[Place], gradebook: Grades) -> list[Row]:
        """Gradebook, feedback and table, from the journal."""
        keys = [(place.student, place.assignment) for place in places]
        rows = []
        results = ((self.journal[key], self.said[key][1]) for key in keys)
        for key, late in zip(keys, gradebook.record(results), strict=True):
            result = self.journal[key]
            said = [*self.said[key][0], *_lateness(late)]
            rows.append(row(result, said))
            if master := self.masters.get(key[1]):
                write_page(self.options.out / "feedback", result, master, said)
        write_table(self.options.out / "grades.csv", rows)
        return rows


def _lateness(seconds: float) -> list[str]:
    return [f"late by {timedelta(seconds=round(seconds))}"] if seconds > 0 else []


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
        where = f"{shown(os.fsdecode(error.filename))}: " if error.filename else ""
        print(
            f"error: {where}{error.strerror or error}; what was graded is kept, "
            "start again to go on",
            file=sys.stderr,
        )
    return 2


def _grade(options: argparse.Namespace) -> int:
    out = options.out
    _look_at_folders(options.submissions, out)
    masters = read_masters(options.solutions)
    draws = read_draws(out, options.private, masters)
    here = URL.create("sqlite", database=str((out / "gradebook.db").resolve()))
    url = options.gradebook or here
    places = find(options.submissions, masters)
    handed_in = {place.assignment for place in places}
    # nbgrader's export has a line for every student and assignment: no more than there are.
    wanted = {name: master for name, master in masters.items() if name in handed_in}
    with open_gradebook(url, wanted):
        pass  # it can be written
    with ExitStack() as stack:
        journal = stack.enter_context(open_journal(out / "results.jsonl"))
        reader = stack.enter_context(Reader(masters))
        grading = Grading(options, masters, draws, journal, reader)
        with Progress(len(places)) as progress:
            jobs = grading.jobs(places, progress)
            first = list(islice(jobs, 1))
            if first:  # else all is graded already, and there is no need of workers
                client = stack.enter_context(batch.workers(options.scheduler, options.workers))
                for digest, result in batch.run(client, chain(first, jobs)):
                    journal.add(digest, result)
                    progress.advance()
        try:
            with open_gradebook(url, wanted) as gradebook:
                rows = grading.write(places, gradebook)
        except GradingError as error:
            raise GradingError(f"{error}; what was graded is kept, start again") from error
    where = out / "gradebook.db"
    if options.gradebook:
        where = make_url(options.gradebook).render_as_string(hide_password=True)
    told = [out / "grades.csv", out / "feedback", where]
    print(summary(rows, told))
    return 0


def _look_at_folders(submissions: Path, out: Path) -> None:
    """Find out now, not after grading, whether there is something to read and room to write."""
    if not submissions.is_dir():
        raise GradingError(f"there is no folder {submissions}")
    if out.resolve().is_relative_to(submissions.resolve()):
        raise GradingError(f"{out} lies in {submissions}, where it would be taken for a student's")
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
