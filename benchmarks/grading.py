"""What grading costs beside nbgrader's own: ratios of medians from one run.

The same honest submissions, right and wrong, are graded by `nbgrader autograde` in one process, as
its batch does, and by `python -m backward_twice.grading` with a sandbox for each submission.
Rounds alternate between the two, so that a busy machine disturbs both alike; the start of each
program counts.  Then 1,000 submissions: does memory stay flat, and what does a second worker
bring?
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

import nbformat
import psutil
from nbformat import NotebookNode

ROOT = Path(__file__).parents[1]
WRONG = ROOT / "src" / "backward_twice" / "misconceptions"


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
    for path in sorted((WRONG / exercise).glob("*/*.py")):
        grade_id = f"answer-{path.parent.name.replace('_', '-')}"
        yield handed_in(exercise, {grade_id: path.read_text("utf-8")})


def hand_in(folder: Path, exercise: str, students: int) -> None:
    """Lay out submissions of ``students`` students as nbgrader collects them."""
    for number, notebook in enumerate(islice(cycle(list(honest(exercise))), students)):
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


class Memory(threading.Thread):
    """Watches the resident memory, in bytes, of all processes that this one starts."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: list[int] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.5):
            total = 0
            for process in psutil.Process().children(recursive=True):
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.seen.append(total)

    def stop(self) -> list[int]:
        self.done.set()
        self.join()
        return self.seen


def against_nbgrader(folder: Path, exercise: str, students: int, rounds: int) -> None:
    hand_in(folder / "submitted", exercise, students)
    course = nbgrader_course(folder / "course", exercise)
    shutil.copytree(folder / "submitted", course / "submitted")
    times: dict[str, list[float]] = {"nbgrader": [], "1 worker": [], "2 workers": []}
    for number in range(rounds):
        shutil.rmtree(course / "autograded", ignore_errors=True)
        autograde = ("autograde", exercise, "--create", "--force")
        times["nbgrader"].append(seconds(nbgrader, course, *autograde))
        for workers in (1, 2):
            out = folder / f"out{number}-{workers}"
            name = "1 worker" if workers == 1 else "2 workers"
            times[name].append(seconds(grade, folder / "submitted", out, workers))
            assert points(out) == nbgrader_points(course, exercise), "the grades differ"
    print(f"{students} submissions of {exercise}, {rounds} rounds, every start included")
    for name, values in times.items():
        ratios = sorted(t / v for t, v in zip(times["nbgrader"], values, strict=True))
        print(
            f"{name:<10} {statistics.median(values) / students:6.3f} s each; nbgrader / this "
            f"{statistics.median(ratios):5.1f} [{ratios[0]:.1f} to {ratios[-1]:.1f}]"
        )


def at_scale(folder: Path, exercise: str, students: int) -> None:
    hand_in(folder / "many", exercise, students)
    times = {}
    for workers in (1, 2):
        memory = Memory()
        memory.start()
        times[workers] = seconds(grade, folder / "many", folder / f"many{workers}", workers)
        seen = memory.stop()
        early, late = (
            statistics.median(part) / 1e6
            for part in (seen[len(seen) // 5 : 2 * len(seen) // 5], seen[-len(seen) // 5 :])
        )
        print(
            f"{students} submissions, {workers} workers: {times[workers]:.0f} s, "
            f"{times[workers] / students * 1e3:.0f} ms each; memory {early:.0f} MB in the second "
            f"fifth, {late:.0f} MB in the last"
        )
    assert points(folder / "many1").keys() == points(folder / "many2").keys()
    print(f"2 workers against 1: {times[1] / times[2]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--exercise", default="two_losses")
    parser.add_argument("--students", type=int, default=20, help="beside nbgrader (default 20)")
    parser.add_argument("--rounds", type=int, default=3, help="beside nbgrader (default 3)")
    parser.add_argument("--many", type=int, default=1000, help="for memory and workers")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        against_nbgrader(Path(folder), chosen.exercise, chosen.students, chosen.rounds)
        at_scale(Path(folder), chosen.exercise, chosen.many)


if __name__ == "__main__":
    main()
