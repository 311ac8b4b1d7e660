"""Grade one submission: a job in, a result out, both plain JSON, so that any worker can do it.

The job's steps run in a sandbox (:mod:`backward_twice.grading.sandbox`), which hands back what the
answers gave as text.  Here, outside the student's interpreter, each question judges that text by
what is right for its inputs.  A question has all its points when every finding of every draw
passed, and none otherwise.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from functools import cache
from typing import Any

from backward_twice.checks import Finding, merged, question
from backward_twice.checks.recognition import replies
from backward_twice.grading import GradingError
from backward_twice.grading.run.answers import Answers
from backward_twice.grading.run.draws import Draws
from backward_twice.grading.run.master import Answer, Asked, Master
from backward_twice.grading.run.modules import modules_of
from backward_twice.grading.run.played import played
from backward_twice.grading.sandbox import (
    Limits,
    SandboxError,
    StepResult,
    available,
    run_steps,
    shared,
)

Json = dict[str, Any]

PASSED, FAILED = "passed", "failed"
TIMEOUT, MEMORY, CRASHED = "timeout", "memory", "crashed"
"""Outcomes of a question; the last three are not judged, and are states of a submission too."""
GRADED, PARTIAL = "graded", "partial"
"""States of a submission whose questions were judged, all or some of them."""

MAX_OUTPUT = 10_000
"""The most of a cell's output that a result keeps, in characters."""
_MAX_TEXT = 1_000
_PRIVATE = " (private)"
_PRIVATELY = "of private inputs, property"
_NOT_SHOWN = "not shown, as it was asked of private inputs"


@cache
def checks_digest(exercise: str) -> str:
    """Changes with the code of an exercise's questions, and with no other exercise's."""
    digest = hashlib.sha256()
    for name, path in modules_of(exercise).items():
        digest.update(f"{name}\0{path.read_text(encoding='utf-8')}\0".encode())
    return digest.hexdigest()


def job(student: str, master: Master, answers: Answers, draws: Draws, settings: Json) -> Json:
    """The job of one submission: the master's cells with the student's answers, and hidden inputs.

    Private inputs come last.  They reach the sandbox only when all else has been handed back
    (:mod:`.steps`), and of what comes then nothing of the student's is shown.

    Args:
        settings: ``limits`` and ``sandbox``, as the sandbox takes them.
    """
    steps: list[Json] = []
    last: list[Json] = []
    for cell in master.cells:
        if isinstance(cell, Answer):
            for part, source in enumerate(answers.sources.get(cell.id, ()), 1):
                id = cell.id if part == 1 else f"{cell.id} ({part})"
                steps.append({"kind": "cell", "id": id, "source": source, "answer": cell.id})
        elif isinstance(cell, Asked):
            step = {
                "kind": "question",
                "id": cell.id,
                "question": cell.question,
                "points": cell.points,
                "answer": cell.answer,
                "missing": answers.missing.get(cell.answer),
            }
            steps.append(step | {"seeds": draws.seeds(master, cell, answers.digest)})
            private = draws.private(master, cell, answers.digest)
            if private:
                last.append(step | {"id": cell.id + _PRIVATE, "draws": private})
        else:
            steps.append({"kind": "cell", "id": cell.id, "source": cell.source, "answer": None})
    return {
        "student": student,
        "assignment": master.name,
        "steps": steps + last,
        "checks": checks_digest(master.name),
        **settings,
    }


def rejected(student: str, assignment: str, why: str, max_points: float) -> Json:
    """The result of a submission that is not run."""
    return {
        "student": student,
        "assignment": assignment,
        "state": f"rejected: {why}",
        "points": 0.0,
        "max_points": max_points,
        "detail": "",
        "questions": [],
        "cells": [],
    }


def failed(job: Json, why: str) -> Json:
    """The result of a submission whose grading itself came to grief: the next start tries again."""
    none = dict.fromkeys(("error", "ename", "observed"))
    none |= {"outcome": CRASHED, "output": "", "seconds": 0.0}
    return _judged(job, [none] * len(job["steps"])) | {
        "state": CRASHED,
        "detail": why,
        "again": True,
    }


def drawn(job: Json) -> Json:
    """The job with the public inputs drawn, as the texts of plain data: ``draws`` of each question.

    A worker does this, since there may be many, and but one process that hands jobs to all of them.
    """
    steps = [
        step | {"draws": [question(step["question"]).inputs(seed) for seed in step["seeds"]]}
        if "seeds" in step
        else step
        for step in job["steps"]
    ]
    return job | {"steps": steps}


def grade(job: Json) -> Json:
    """Run and judge the submission that ``job`` describes; what a Dask worker is asked to do.

    Raises:
        GradingError: this machine cannot grade: it has other checks, or no sandbox.
    """
    if job["checks"] != checks_digest(job["assignment"]):
        raise GradingError("a worker has other checks than the grader: install the same version")
    kind, image, hide = (job["sandbox"][name] for name in ("kind", "image", "hide"))
    if kind is None:
        kind = _kind_here(image)
    sandbox = shared(kind, image, tuple(hide))
    job = drawn(job)
    steps = [{name: step[name] for name in _SENT if name in step} for step in job["steps"]]
    began = time.monotonic()
    try:
        results = run_steps(steps, Limits(**job["limits"]), sandbox)
    except SandboxError as error:
        # Is it the sandbox, or what this submission did to it?
        run_steps([{"kind": "cell", "id": "try", "source": ""}], Limits(), sandbox)
        return failed(job, f"the sandbox failed: {error}"[:_MAX_TEXT])
    return judged(job, results) | {"seconds": round(time.monotonic() - began, 2)}


_SENT = ("kind", "id", "source", "question", "draws")
_kind_here = cache(available)


def judged(job: Json, results: list[StepResult]) -> Json:
    """Judge what came out of the job's steps.

    The result is marked ``slow`` if a step ran out of time by the clock: it is final only if
    nothing else that could have slowed it was run beside it.

    Args:
        job: with its inputs drawn.
        results: one for each step, in order, as the sandbox gives them.
    """
    for step, came_out in zip(job["steps"], results, strict=True):
        if step["kind"] == "question" or step["answer"] is not None:
            break
        if came_out["outcome"] != "done" or came_out["error"]:
            # No student's code ran before it.
            why = came_out["error"] or came_out["outcome"]
            why = f"the master's own cell {step['id']} failed: {why[-200:]}"
            return failed(job, why) | _slow(results)
    return _judged(job, results)


def _judged(job: Json, results: list[StepResult]) -> Json:
    cells: list[Json] = []
    questions: dict[str, Json] = {}
    trouble: dict[str, tuple[str, str | None]] = {}
    for step, came_out in zip(job["steps"], results, strict=True):
        outcome = _outcome(came_out)
        if step["kind"] == "cell":
            if step["answer"] is not None:
                cells.append(_cell(step, came_out, outcome))
                if outcome is not None or came_out["error"]:
                    trouble.setdefault(step["answer"], (outcome or FAILED, came_out["error"]))
            continue
        found = _question(step, came_out, outcome, trouble.get(step["answer"]))
        known = questions.setdefault(found["id"], found)
        if known is not found:
            questions[found["id"]] = _together(known, found)
    points = sum(found["points"] for found in questions.values())
    return {
        "student": job["student"],
        "assignment": job["assignment"],
        "points": points,
        "max_points": sum(found["max_points"] for found in questions.values()),
        **_state(list(questions.values())),
        "questions": list(questions.values()),
        "cells": cells,
        **_slow(results),
    }


def _slow(results: list[StepResult]) -> Json:
    return {"slow": True} if any(each["outcome"] == "slow" for each in results) else {}


def _outcome(came_out: StepResult) -> str | None:
    """Why a step's result cannot be judged; None if it can."""
    if came_out["outcome"] == "done":
        return None
    if came_out["outcome"] in ("slow", "skipped"):  # skipped: all time was used up before it
        return TIMEOUT
    return came_out["outcome"] if came_out["outcome"] in (TIMEOUT, MEMORY) else CRASHED


def _cell(step: Json, came_out: StepResult, outcome: str | None) -> Json:
    error = came_out["error"]
    return {
        "id": step["id"],
        "answer": step["answer"],
        "source": step["source"],
        "output": came_out["output"][:MAX_OUTPUT],
        "error": error and error[:MAX_OUTPUT],
        "outcome": outcome or "done",
        "seconds": round(came_out["seconds"], 2),
    }


def _question(
    step: Json, came_out: StepResult, outcome: str | None, trouble: tuple[str, str | None] | None
) -> Json:
    private = step["id"].endswith(_PRIVATE)
    error = came_out["error"]
    findings: list[Finding] = []
    beliefs: list[str] = []
    case, lines = "", []
    if step["missing"]:
        outcome, error = FAILED, step["missing"]
    elif trouble and trouble[0] != FAILED:
        outcome, error = trouble
    elif outcome is None:
        findings = _findings(step, came_out)
        passed = bool(findings) and all(finding.passed for finding in findings)
        outcome = PASSED if passed else FAILED
        if findings and not passed and not private:
            beliefs, case = _explained(step, came_out)
            lines = _played(case)
        if error and came_out["ename"] == "NotImplementedError":
            error = f"{question(step['question']).answer} is not written yet"
        elif error and trouble:
            error = trouble[1]  # the answer cell's own error is where to begin
    if private:
        # No word is of the student's choice, and no name of the inputs'.
        findings = [
            replace(f, what=f"{_PRIVATELY} {number}", text="" if f.passed else _NOT_SHOWN)
            for number, f in enumerate(findings, 1)
        ]
        error = _NOT_SHOWN if came_out["error"] and not (step["missing"] or trouble) else error
    return {
        "id": step["id"].removesuffix(_PRIVATE),
        "points": step["points"] if outcome == PASSED else 0.0,
        "max_points": step["points"],
        "outcome": outcome,
        "findings": [
            {"what": f.what[:_MAX_TEXT], "passed": f.passed, "text": f.text[:_MAX_TEXT]}
            for f in findings
        ],
        "beliefs": beliefs,
        "case": case[:_MAX_TEXT],
        "played": lines,
        "error": error and error[:_MAX_TEXT],
        "seconds": round(came_out["seconds"], 2),
    }


def _findings(step: Json, came_out: StepResult) -> list[Finding]:
    """What the question says of each draw, as one list.  Not one draw may be without an answer."""
    if came_out["error"]:
        return []
    observed = came_out["observed"] or []
    if len(observed) != len(step["draws"]):
        return [Finding("what came out", False, "not an answer for each of the inputs")]
    ask = question(step["question"])
    draws = []
    for text, inputs in zip(observed, step["draws"], strict=True):
        try:
            draws.append(ask.findings(text, inputs))
        except Exception as error:  # whatever a student's values did to the comparison
            draws.append([Finding("what came out", False, f"{type(error).__name__}: {error}")])
        if not draws[-1]:
            return []
    return merged(draws)


def _explained(step: Json, came_out: StepResult) -> tuple[list[str], str]:
    """What beliefs an answer looks like, and its smallest case that is wrong, as a program."""
    observed, ask = came_out["observed"] or [], question(step["question"])
    if len(observed) != len(step["draws"]):
        return [], ""
    try:
        cases = [
            ask.smallest_case(ask.findings(text, inputs), text, inputs)
            for text, inputs in zip(observed, step["draws"], strict=True)
        ]
    except Exception:  # whatever a student's values did to it: the findings say that it is wrong
        cases = []
    case = min(filter(None, cases), key=lambda text: text.count("\n"), default="")
    return replies(step["question"], ask, observed, step["draws"]), case


def _played(case: str) -> list[Json]:
    try:
        return played(case)
    except Exception:  # a case that cannot be played is still a case
        return []


def _together(known: Json, private: Json) -> Json:
    """A question's two rounds as one: the first that did not pass, with both's findings."""
    worse = known if known["outcome"] != PASSED else private
    seconds = round(known["seconds"] + private["seconds"], 2)
    return worse | {"findings": known["findings"] + private["findings"], "seconds": seconds}


def _state(questions: list[Json]) -> Json:
    lost = [found for found in questions if found["outcome"] not in (PASSED, FAILED)]
    if not lost:
        return {"state": GRADED, "detail": ""}
    why = [found["error"] or "" for found in lost]
    detail = "; ".join(
        f"{found['id']}: {found['outcome']}" + (f" ({said})" if said else "")
        for found, said in zip(lost, why, strict=True)
    )
    state = lost[0]["outcome"] if len(lost) == len(questions) else PARTIAL
    return {"state": state, "detail": detail}
