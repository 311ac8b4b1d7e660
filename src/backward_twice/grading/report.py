"""``python -m backward_twice.grading.report OUT``: a page on a class that was graded into OUT.

It reads the journal and the masters, runs nothing of a student's, and writes ``OUT/report.html``:
for each exercise how many points there were, for each question who solved it, which properties
failed most and which beliefs they look like, how long the sandboxes took, and answers that are
alike, side by side.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import nbformat
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from backward_twice.grading import GradingError, atomic
from backward_twice.grading.feedback.alike import (
    ALIKE,
    Group,
    alike,
    grouped,
    read,
    side_by_side,
)
from backward_twice.grading.intake.limited import Limited
from backward_twice.grading.intake.submissions import Rejected, in_words, shown
from backward_twice.grading.run.journal import Journal, open_journal
from backward_twice.grading.run.judge import FAILED, PASSED, Json
from backward_twice.grading.run.master import Answer, Asked, Master, read_masters

_MOST = 8
_MOST_GROUPS = 20
_PAGES = Environment(
    loader=PackageLoader("backward_twice.grading.feedback", "."),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)


def report(journal: Journal, masters: dict[str, Master], solutions: Path) -> str:
    """The page, as HTML."""
    of: dict[str, list[Json]] = defaultdict(list)
    for key in sorted(journal.keys()):
        if key[1] in masters:
            of[key[1]].append(journal[key])
    with Limited() as limited:
        exercises = [
            _exercise(masters[name], results, solutions, limited) for name, results in of.items()
        ]
    return _PAGES.get_template("report.html").render(exercises=exercises, alike=ALIKE)


def _exercise(master: Master, results: list[Json], solutions: Path, limited: Limited) -> Json:
    points = [result["points"] for result in results]
    seconds = sorted(result["seconds"] for result in results if "seconds" in result)
    slowest = sorted(results, key=lambda result: -result.get("seconds", 0))[:5]
    led = _led(solutions / master.name / f"{master.name}.ipynb")
    return {
        "name": master.name,
        "submissions": len(results),
        "states": _counted(result["state"].partition(":")[0] for result in results),
        "max_points": master.max_points,
        "mean": statistics.fmean(points),
        "points": _bars(Counter(points), len(points)),
        "questions": [_question(asked, results) for asked in master.questions],
        "seconds": _quantiles(seconds),
        "steps": _steps(master, results),
        "slowest": [(shown(r["student"]), r["seconds"]) for r in slowest if "seconds" in r],
        **_alike(master, results, led, limited),
    }


def _question(asked: Asked, results: list[Json]) -> Json:
    found = [q for result in results for q in result["questions"] if q["id"] == asked.id]
    outcomes = Counter(_outcome(question) for question in found)
    outcomes["not there"] += len(results) - len(found)
    failed = [q for q in found if q["outcome"] == FAILED]
    properties = (
        what
        for question in failed
        for what in sorted(
            {_alike_words(f["what"]) for f in question["findings"] if not f["passed"]}
        )
    )
    return {
        "id": asked.id,
        "title": asked.title,
        "points": asked.points,
        "outcomes": [
            (name, outcomes[name], outcomes[name] / len(results))
            for name in ("right", "not right", "not written", "not judged", "not there")
            if outcomes[name]
        ],
        "properties": _counted(properties),
        "beliefs": _counted(
            belief for question in failed for belief in question.get("beliefs", ())
        ),
        "errors": _counted(
            question["error"].strip().splitlines()[-1].partition(":")[0][:80]
            for question in failed
            if question["error"] and not _untouched(question)
        ),
    }


def _outcome(question: Json) -> str:
    if question["outcome"] == FAILED:
        return "not written" if _untouched(question) else "not right"
    return "right" if question["outcome"] == PASSED else "not judged"


def _untouched(question: Json) -> bool:
    return bool(question["error"]) and question["error"].endswith("is not written yet")


def _alike_words(what: str) -> str:
    """A property's name without the numbers that were drawn for one student: they differ."""
    return re.sub(r"\d+", "#", what)


def _counted(values: Iterable[str]) -> list[tuple[str, int]]:
    return Counter(values).most_common(_MOST)


def _bars(counted: Counter[float], total: int) -> list[tuple[str, int, float]]:
    return [(f"{value:g}", counted[value], counted[value] / total) for value in sorted(counted)]


def _quantiles(seconds: list[float]) -> list[tuple[str, float]]:
    if not seconds:
        return []
    places = {"half of them at most": 0.5, "nine of ten at most": 0.9, "the longest": 1.0}
    return [(name, seconds[max(0, round(q * len(seconds)) - 1)]) for name, q in places.items()]


def _steps(master: Master, results: list[Json]) -> list[Json]:
    """Of each step the processor's time: of half, of nine tenths, of the longest, and whose."""
    steps = []
    for cell in master.cells:
        if isinstance(cell, Answer):
            of, key, name = "cells", "answer", f"{cell.id} is run"
        elif isinstance(cell, Asked):
            of, key, name = "questions", "id", f"{cell.id} is asked"
        else:
            continue
        taken = []
        for result in results:
            found = [part["seconds"] for part in result[of] if part[key] == cell.id]
            taken += [(sum(found), shown(result["student"]))] if found else []
        if taken:
            longest, whose = max(taken)
            quantiles = [value for _, value in _quantiles(sorted(value for value, _ in taken))]
            steps.append({"name": name, "seconds": quantiles, "whose": whose if longest else ""})
    most = max((step["seconds"][-1] for step in steps), default=0)
    return [
        step | {"shares": [seconds / most if most else 0 for seconds in step["seconds"]]}
        for step in steps
    ]


def _led(master: Path) -> dict[str, list[str]]:
    """Of each answer the solution, and the code that the exercise begins with, if it has some."""
    cells = nbformat.read(master, as_version=4).cells
    sources = {cell.id: cell.source for cell in cells}
    return {
        cell.metadata.nbgrader.grade_id: [
            cell.source,
            *filter(None, [sources.get(cell.metadata.get("starter"))]),
        ]
        for cell in cells
        if cell.metadata.get("nbgrader", {}).get("solution")
    }


def _alike(
    master: Master, results: list[Json], led: dict[str, list[str]], limited: Limited
) -> Json:
    """Whose answers are most alike, two of each group side by side, and whose are not compared."""
    found: list[tuple[Group, str, dict[str, str]]] = []
    unread: set[str] = set()
    for answer in master.answers:
        written = {
            result["student"]: "\n".join(
                cell["source"] for cell in result["cells"] if cell["answer"] == answer.id
            )
            for result in results
        }
        answers, more = read(written, limited)
        unread.update(more)
        pairs = alike(answers, led.get(answer.id, []))
        found += [(group, answer.id, written) for group in grouped(pairs)]
    found.sort(key=lambda each: (-each[0].nearest.share, -len(each[0].students)))
    groups = [
        {
            "answer": id,
            "students": [shown(student) for student in group.students],
            "shown": [shown(group.nearest.one), shown(group.nearest.other)],
            "share": group.nearest.share,
            "diff": _drawn(limited, written[group.nearest.one], written[group.nearest.other]),
        }
        for group, id, written in found[:_MOST_GROUPS]
    ]
    more = max(0, len(found) - _MOST_GROUPS)
    return {"alike": groups, "more_alike": more, "unread": sorted(map(shown, unread))}


def _drawn(limited: Limited, one: str, other: str) -> Markup:
    try:
        return Markup(limited.call(partial(side_by_side, one, other)))  # escaped by difflib
    except Rejected as why:
        return Markup("<p>They are not shown side by side: {}.</p>").format(why)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m backward_twice.grading.report",
        description="Write OUT/report.html, a page on the class that was graded into OUT.",
    )
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--solutions", type=Path, metavar="DIR", default=Path("solutions"))
    options = parser.parse_args(arguments)
    path = options.out / "results.jsonl"
    try:
        if not path.is_file():
            raise GradingError(f"nothing was graded into {options.out}: there is no {path}")
        masters = read_masters(options.solutions)
        with open_journal(path) as journal:
            text = report(journal, masters, options.solutions)
        written = options.out / "report.html"
        atomic.write(written, text.encode("utf-8", "replace"))
    except GradingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {in_words(error, options.out)}", file=sys.stderr)
        return 2
    print(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
