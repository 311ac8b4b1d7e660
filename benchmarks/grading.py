"""What grading costs beside nbgrader's own: ratios of medians from one run.

The same honest submissions, right and wrong, are graded by `nbgrader autograde` in one process, as
its batch does, and by `python -m backward_twice.grading` with a sandbox for each submission.
Rounds alternate between the two, so that a busy machine disturbs both alike; the start of each
program counts.  Then 1,000 submissions: does memory stay flat, and what does a second worker
bring, beside what the machine gives a second process that only forks?  It prints a table as
``README.md`` has it.
"""

import argparse
import csv
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from importlib.metadata import version
from itertools import cycle, islice
from pathlib import Path

import nbformat
import psutil
from nbformat import NotebookNode

from backward_twice.misconceptions import FOLDER, misconceptions_of

ROOT = Path(__file__).parents[1]


def handed_in(exercise: str, replaced: dict[str, str] | None = None) -> NotebookNode:
    """The exercise as handed in: right but for the answers in ``replaced``, by grade id."""
    path = f"{exercise}/{exercise}.ipynb"
    solution = nbformat.read(ROOT / "solutions" / path, as_version=4)
    notebook = nbformat.read(ROOT / "exercises" / path, as_version=4)
    right = {cell.id: cell.source for cell in solution.cells}
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = (replaced or {}).get(cell.metadata.nbgrader.grade_id, right[cell.id])
    return notebook


def honest(exercise: str) -> Iterator[NotebookNode]:
    """What honest learners hand in: right, untouched, and each typical wrong answer."""
    yield handed_in(exercise)
    yield nbformat.read(ROOT / "exercises" / exercise / f"{exercise}.ipynb", as_version=4)
    for path in sorted((FOLDER / exercise).glob("*.diff")):
        for misconception in misconceptions_of(f"{exercise}.{path.stem}"):
            grade_id = f"answer-{path.stem.replace('_', '-')}"
            yield handed_in(exercise, {grade_id: misconception.source})


def hand_in(folder: Path, exercise: str, students: int) -> None:
    """Lay out submissions of ``students`` students as nbgrader collects them.

    No two have an answer in common, so nothing is remembered from another's.
    """
    for number, notebook in enumerate(islice(cycle(list(honest(exercise))), students)):
        notebook = deepcopy(notebook)
        for cell in notebook.cells:
            if cell.metadata.get("nbgrader", {}).get("solution"):
                cell.source += f"\n# student {number}"
        path = folder / f"student{number:05}" / exercise / f"{exercise}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)


def nbgrader(course: Path, *arguments: str) -> None:
    """Run nbgrader in the course folder; it finds its own programs on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments],
        cwd=course,
        env=os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
    )


def nbgrader_course(folder: Path, *exercises: str) -> Path:
    """A course of nbgrader's with these exercises, where submissions can be put."""
    folder.mkdir()
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    for exercise in exercises:
        shutil.copytree(ROOT / "solutions" / exercise, folder / "solutions" / exercise)
        nbgrader(folder, "generate_assignment", exercise)
    return folder


def nbgrader_points(course: Path, exercise: str) -> dict[str, float]:
    """The points of each student in the course's gradebook."""
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        return {
            submission.student.id: submission.score
            for submission in gradebook.assignment_submissions(exercise)
        }


def grade(submissions: Path, out: Path, workers: int) -> None:
    """Grade as a teacher does."""
    subprocess.run(
        [
            *(sys.executable, "-m", "backward_twice.grading", submissions),
            *("--out", out, "--workers", str(workers)),
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )


def points(out: Path) -> dict[str, float]:
    """The points of each student in ``grades.csv``."""
    with (out / "grades.csv").open(encoding="utf-8", newline="") as file:
        return {row["student"]: float(row["points"]) for row in csv.DictReader(file)}


def seconds(run, *arguments) -> float:
    began = time.perf_counter()
    run(*arguments)
    return time.perf_counter() - began


class Watch(threading.Thread):
    """Watches a grading that this process starts: memory of all its processes, and its results.

    ``seen`` has for each look the time in seconds, the resident memory and the memory with each
    page counted once (PSS) in bytes, and the number of results.
    """

    def __init__(self, journal: Path) -> None:
        super().__init__(daemon=True)
        self._journal = journal
        self._done = threading.Event()
        self.seen: list[tuple[float, int, int, int]] = []

    def run(self) -> None:
        while not self._done.wait(1):
            resident, once = 0, 0
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error, OSError):
                    resident += process.memory_info().rss
                    rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
                    once += 1024 * int(rollup.partition("\nPss:")[2].split()[0])
            results = self._journal.read_bytes().count(b"\n") if self._journal.exists() else 0
            self.seen.append((time.perf_counter(), resident, once, results))

    def stop(self) -> None:
        self._done.set()
        self.join()

    def rate(self) -> float:
        """Results in a second, once a tenth of them is there: every process works by then."""
        last = self.seen[-1][3]
        working = [(when, number) for when, _, _, number in self.seen if last / 10 < number < last]
        (began, few), (ended, many) = working[0], working[-1]
        return (many - few) / (ended - began)

    def memory(self, which: int) -> str:
        """GB in the second fifth of the time and in the last."""
        values = [look[which] / 1e9 for look in self.seen]
        fifth = len(values) // 5
        early, late = values[fifth : 2 * fifth], values[-fifth:]
        return f"{statistics.median(early):.2f}, {statistics.median(late):.2f} GB"


FORKING = """
import os, sys, time
end = time.perf_counter() + float(sys.argv[1])
forks = 0
while time.perf_counter() < end:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    forks += 1
print(forks)
"""


def forks(processes: int, seconds: float = 5) -> int:
    """How many forks that many processes make side by side, each of which awaits its own."""
    command = [sys.executable, "-c", FORKING, str(seconds)]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    return sum(int(process.communicate()[0]) for process in started)


def middle(values: list[float], digits: int) -> str:
    """The median, and from where to where they go."""
    few, some, many = (
        f"{value:.{digits}f}" for value in (min(values), statistics.median(values), max(values))
    )
    return f"{some} ({few} to {many})"


def line(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def against_nbgrader(folder: Path, exercise: str, students: int, rounds: int) -> None:
    hand_in(folder / "submitted", exercise, students)
    course = nbgrader_course(folder / "course", exercise)
    shutil.copytree(folder / "submitted", course / "submitted")
    times: dict[int, list[float]] = {0: [], 1: [], 2: []}
    for number in range(rounds):
        shutil.rmtree(course / "autograded", ignore_errors=True)
        autograde = ("autograde", exercise, "--create", "--force")
        times[0].append(seconds(nbgrader, course, *autograde))
        for workers in (1, 2):
            out = folder / f"out{number}-{workers}"
            times[workers].append(seconds(grade, folder / "submitted", out, workers))
            assert points(out) == nbgrader_points(course, exercise), "the grades differ"
    for workers in (1, 2):
        ratios = [t / v for t, v in zip(times[0], times[workers], strict=True)]
        line(
            f"`nbgrader autograde` / `make grade`, {students} submissions, workers: {workers}, a "
            "sandbox each, every start included",
            middle(ratios, 1),
            "5" if workers == 1 else "",
        )


def at_scale(folder: Path, exercise: str, students: int, rounds: int) -> None:
    hand_in(folder / "many", exercise, students)
    times: dict[int, list[float]] = {1: [], 2: []}
    each: dict[int, list[float]] = {1: [], 2: []}
    forked: dict[int, list[float]] = {1: [], 2: []}
    last = {}
    for number in range(rounds):
        for workers in (1, 2):
            out = folder / f"many{number}-{workers}"
            watch = last[workers] = Watch(out / "results.jsonl")
            watch.start()
            times[workers].append(seconds(grade, folder / "many", out, workers))
            watch.stop()
            each[workers].append(1e3 / watch.rate())
            forked[workers].append(1 / forks(workers))
            assert points(out) == points(folder / "many0-1"), "the grades differ"
    for workers, most in ((1, 1.5), (2, 2.5)):
        of = f"{students} submissions, workers: {workers}"
        line(f"{of}: all of it", f"{middle(times[workers], 0)} s", "")
        line(f"{of}: each, once all processes work", f"{middle(each[workers], 1)} ms", "")
        memory = f"{of}: memory of all processes, in the second fifth of the time and in the last"
        line(f"{memory}, each page counted once", last[workers].memory(2), f"flat, {most} GB")
        line(f"{memory}, resident", last[workers].memory(1), "flat")
    for what, cost, aim in (
        ("2 workers / 1, once all processes work", each, "1.7"),
        ("2 workers / 1, start and end included", times, ""),
        ("2 processes that only fork / 1, on this machine", forked, ""),
    ):
        line(what, middle([one / two for one, two in zip(cost[1], cost[2], strict=True)], 2), aim)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--exercise", default="two_losses")
    parser.add_argument("--students", type=int, default=20, help="beside nbgrader (default 20)")
    parser.add_argument("--rounds", type=int, default=3, help="of everything (default 3)")
    parser.add_argument("--many", type=int, default=1000, help="for memory and workers")
    chosen = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"PyTorch {version('torch')}, Python {platform.python_version()}, {os.cpu_count()} cores")
    print(f"load before: {load:.1f}" + (", so the machine is not idle" if load > 0.3 else ""))
    print()
    line("what", "seen", "aim")
    line(*["---"] * 3)
    with tempfile.TemporaryDirectory() as folder:
        against_nbgrader(Path(folder), chosen.exercise, chosen.students, chosen.rounds)
        at_scale(Path(folder), chosen.exercise, chosen.many, chosen.rounds)


if __name__ == "__main__":
    main()
