"""The program of ``run_autograder``: grade the one submission, and write ``results.json``.

It runs as root and is the judge.  The student's code runs in another process, under bubblewrap if
that works in this container, and otherwise as a user of its own, to whom
``/autograder`` is closed.  Hidden inputs are drawn now, from a secret that is made now, unless the
teacher's private folder holds one.  Nothing that the student's cells print is passed on: only the
findings, in the judge's words, and the errors that an answer raised.

Whatever goes wrong here ends in a ``results.json`` with 0 points that says so: the text which
``run_autograder`` put there before is replaced in one step, or not at all.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import traceback
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import backward_twice
from backward_twice.checks import Finding
from backward_twice.checks.asking import LOOKS_LIKE, SMALLEST_CASE
from backward_twice.grading import GradingError, atomic
from backward_twice.grading.intake.reading import Reader
from backward_twice.grading.intake.submissions import Rejected, read_folder
from backward_twice.grading.judging import grader
from backward_twice.grading.judging.draws import read_draws
from backward_twice.grading.judging.master import Master, read_masters
from backward_twice.grading.sandbox import (
    Kind,
    Sandbox,
    SandboxError,
    SubmissionLimits,
    check_sandbox,
)

Json = dict[str, Any]

LIMITS = SubmissionLimits(seconds=60.0, memory=192 << 20, files=32 << 20, total=240.0)
"""For Gradescope's defaults, half a processor, 768 MB, 10 minutes; ``limits.json`` has others."""

_SECONDS = 540.0
"""Of Gradescope's 10 minutes, by the clock, what grading may take; the rest is for the start."""

_FAILED = (
    "The autograder itself failed, so these 0 points say nothing about your work. Submit again; if "
    "this happens again, pass this message on to your teacher, who can read the rest of it in the "
    "autograder's output."
)


def grade(source: Path, submission: Path, *closed: Path) -> Json:
    """Grade the notebook in the folder ``submission`` by the one exercise in ``source``.

    Args:
        source: the unpacked zip.
        closed: folders that the student's code must not see.

    Returns:
        what ``results.json`` has to hold.

    Raises:
        GradingError: this machine or this zip cannot grade; the message says why.
    """
    masters = read_masters(source / "solutions")
    [master] = masters.values()
    try:
        with Reader(masters) as reader:
            opened = partial(read_folder, submission, assignment=master.name)
            submitted = reader.read(master.name, opened)
    except Rejected as why:
        return _zero(f"Not graded: {why}. Hand in {master.name}.ipynb, and only that notebook.")
    private = source / "private"
    with tempfile.TemporaryDirectory() as folder:
        draws = read_draws(Path(folder), private if private.exists() else None, masters)
    limits = asdict(LIMITS) | json.loads((source / "limits.json").read_text())
    hide = [str(path) for path in (*closed, Path(backward_twice.__file__).parent)]
    sandbox = {"kind": _kind(), "hide": hide}
    print(f"sandbox: {sandbox['kind']}", flush=True)
    result = _graded(
        grader.job("", master, submitted.answers, draws, {"limits": limits, "sandbox": sandbox})
    )
    if result.get("again"):
        raise GradingError(result["detail"])
    return report(result, master, submitted.notes)


def _graded(job: Json) -> Json:
    """The result of a job; one in which a step ran out of time by the clock is tried once more.

    The machine may have been slow.  The second try has what is left of the time, and never costs.
    """
    began = time.monotonic()
    result = grader.grade(job)
    if not result.get("slow"):
        return result
    limits = job["limits"]
    seconds_left = (_SECONDS - (time.monotonic() - began)) / limits["clock"]
    if seconds_left <= 0:
        return result
    print("a step ran out of time by the clock: grading again", flush=True)
    second = grader.grade(job | {"limits": limits | {"total": min(seconds_left, limits["total"])}})
    return max(result, second, key=lambda candidate: candidate["points"])


def _kind() -> Kind:
    """Return the kind of sandbox that works in this container."""
    try:
        with Sandbox("bubblewrap") as sandbox:
            check_sandbox(sandbox)
    except SandboxError:
        return "account"
    return "bubblewrap"


def report(result: Json, master: Master, notes: tuple[str, ...] = ()) -> Json:
    """A result of :func:`.grader.judged` as Gradescope's ``results.json``.

    ``notes`` are remarks on the notebook as a whole, for the student.
    """
    titles = {cell.id: cell.title for cell in master.questions}
    lines = [f"{result['points']:g} of {result['max_points']:g} points."]
    if result["state"] != grader.GRADED:
        lines.append(f"Not all of it could be judged: {result['detail']}.")
    lines += [f"Note: {note}." for note in notes]
    return {
        "score": result["points"],
        "output": "\n".join(lines),
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [_test(question, titles[question["id"]]) for question in result["questions"]],
    }


def _test(question: Json, title: str) -> Json:
    lines = [str(Finding(**finding)) for finding in question["findings"]]
    lines += [f"{LOOKS_LIKE} {belief}" for belief in question["beliefs"]]
    if question["case"]:
        lines += [SMALLEST_CASE, question["case"]]
    if question["error"]:
        lines.append(question["error"])
    if question["outcome"] not in (grader.PASSED, grader.FAILED):
        lines.append(f"This could not be judged: {question['outcome']}.")
    return {
        "name": f"{title} ({question['id']})",
        "score": question["points"],
        "max_score": question["max_points"],
        "status": "passed" if question["outcome"] == grader.PASSED else "failed",
        "output": "\n".join(lines),
        "visibility": "visible",
    }


def _zero(message: str) -> Json:
    return {"score": 0, "output": message, "visibility": "visible", "stdout_visibility": "hidden"}


def write(results: Path, content: Json) -> None:
    """Replace ``results/results.json`` in one step."""
    atomic.write(results / "results.json", json.dumps(content, indent=1).encode())


def main(source: Path, submission: Path, results: Path) -> None:
    """Grade, and write ``results.json`` whatever happens."""
    try:
        content = grade(source, submission, source, submission, results)
    except Exception:
        traceback.print_exc()
        content = _zero(_FAILED)
    write(results, content)


def try_solution(source: Path) -> None:
    """Grade the master's own answers, and end with a message unless they have full marks."""
    [folder] = (source / "solutions").iterdir()
    content = grade(source, folder, source)
    tests = content.get("tests", [])
    if not tests or any(test["status"] != "passed" for test in tests):
        sys.exit(f"the solution does not have full marks here: {json.dumps(content, indent=1)}")
    print(f"{folder.name}: the solution has all {content['score']:g} points")


if __name__ == "__main__":
    if sys.argv[1] == "--try":
        try_solution(Path(sys.argv[2]))
    else:
        main(*map(Path, sys.argv[1:4]))
