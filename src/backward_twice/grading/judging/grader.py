"""Grade one submission: a job in, a result out, both plain JSON, so that a worker can do it.

Each question compares the text that the sandbox returns with the right results for its inputs.  A
question has all its points when every finding of every draw passed, and none otherwise.
"""

import hashlib
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from backward_twice import checks
from backward_twice.checks import Finding, merged, question
from backward_twice.checks.recognition import replies
from backward_twice.grading.judging.draws import Draws
from backward_twice.grading.judging.master import AnswerCell, Answers, Master, QuestionCell
from backward_twice.grading.sandbox.forks import shared
from backward_twice.grading.sandbox.limits import SandboxError, SubmissionLimits
from backward_twice.grading.sandbox.protocol import (
    StepResult,
    check_sandbox,
    run_steps,
    unfinished,
)
from backward_twice.misconceptions import code_cells

Json = dict[str, Any]

PASSED, FAILED = "passed", "failed"
TIMEOUT, MEMORY, CRASHED = "timeout", "memory", "crashed"
"""Outcomes of a question; the last three are not judged, and are states of a submission too."""
GRADED, PARTIAL = "graded", "partial"
"""States of a submission whose questions were judged, all or some of them."""

_CHECKS = Path(checks.__file__).parent
_IMPORTED = re.compile(rf"\b{re.escape(checks.__name__)}\.(\w+)")

MAX_OUTPUT = 10_000
"""The most of a cell's output that a result keeps, in characters."""
_MAX_TEXT = 1_000
_PRIVATE = " (private)"
_PRIVATELY = "of private inputs, property"
_NOT_SHOWN = "not shown, because it concerns private inputs"


@cache
def checks_digest(exercise: str) -> str:
    """Return a digest of an exercise's solution, and of the code and texts of its questions."""
    names, sources = ["__init__", exercise], {}
    while names:
        name = names.pop()
        paths = [_CHECKS / f"{name}{suffix}" for suffix in (".py", ".txt")]
        if name not in sources:
            sources[name] = "".join(p.read_text(encoding="utf-8") for p in paths if p.is_file())
            names += _IMPORTED.findall(sources[name])  # nothing is imported to find out
    parts = [sources, code_cells(exercise)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def job(student: str, master: Master, answers: Answers, draws: Draws, settings: Json) -> Json:
    """Return a submission's job: the master's cells with the student's answers, and hidden inputs.

    Private inputs come last.  They reach the sandbox only after all other steps have ended
    (:mod:`.protocol`), and the student's output from then on is not shown.  The ``settings`` are
    ``limits`` and ``hide``, as the sandbox takes them.
    """
    steps: list[Json] = []
    last: list[Json] = []
    for cell in master.cells:
        if isinstance(cell, AnswerCell):
            for part, source in enumerate(answers.sources.get(cell.id, ()), 1):
                id = cell.id if part == 1 else f"{cell.id} ({part})"
                steps.append({"kind": "cell", "id": id, "source": source, "answer": cell.id})
        elif isinstance(cell, QuestionCell):
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
    return {"student": student, "assignment": master.name, "steps": steps + last, **settings}


def rejected(student: str, assignment: str, why: str, max_points: float) -> Json:
    """Return the result of a submission that is not run."""
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
    """Return the result of a failed grading, which is repeated at the next start."""
    nothing = _judged(job, [unfinished(CRASHED, None)] * len(job["steps"]))
    return nothing | {"state": CRASHED, "detail": why, "again": True}


def drawn(job: Json) -> Json:
    """Return the job with ``draws``, the inputs drawn from the seeds, added to its questions.

    A worker does this, because one process distributes the jobs to all workers.
    """
    steps = [
        step | {"draws": [question(step["question"]).inputs(seed) for seed in step["seeds"]]}
        if "seeds" in step
        else step
        for step in job["steps"]
    ]
    return job | {"steps": steps}


def grade(job: Json) -> Json:
    """Run and judge a submission, in a worker; raise GradingError if there is no sandbox here."""
    sandbox = shared(tuple(job["hide"]))
    job = drawn(job)
    steps = [{name: step[name] for name in _SENT if name in step} for step in job["steps"]]
    try:
        results = run_steps(steps, SubmissionLimits(**job["limits"]), sandbox)
    except SandboxError as error:
        check_sandbox(sandbox)  # it raises, unless this submission is the reason
        return failed(job, f"the sandbox failed: {error}"[:_MAX_TEXT])
    return judged(job, results)


_SENT = ("kind", "source", "question", "draws")


def judged(job: Json, results: list[StepResult]) -> Json:
    """Judge the results of the job's steps, in their order; the job has its inputs (:func:`drawn`).

    A result is ``slow`` if a step exceeded its wall-clock time, which other jobs may have caused.
    """
    for step, reply in zip(job["steps"], results, strict=True):
        if step["kind"] == "question" or step["answer"] is not None:
            break
        if reply["outcome"] != "done" or reply["error"]:
            # No student's code ran before it.
            reason = reply["error"] or reply["outcome"]
            reason = f"the master's own cell {step['id']} failed: {reason[-200:]}"
            return failed(job, reason) | _slow(results)
    return _judged(job, results)


def _judged(job: Json, results: list[StepResult]) -> Json:
    cells: list[Json] = []
    questions: dict[str, Json] = {}
    trouble: dict[str, tuple[str, str | None]] = {}
    for step, reply in zip(job["steps"], results, strict=True):
        outcome = _outcome(reply)
        if step["kind"] == "cell":
            if step["answer"] is not None:
                cells.append(_cell(step, reply))
                if outcome is not None or reply["error"]:
                    trouble.setdefault(step["answer"], (outcome or FAILED, reply["error"]))
            continue
        judgement = _question(step, reply, outcome, trouble.get(step["answer"]))
        earlier_round = questions.setdefault(judgement["id"], judgement)
        if earlier_round is not judgement:
            questions[judgement["id"]] = _together(earlier_round, judgement)
    points = sum(judgement["points"] for judgement in questions.values())
    return {
        "student": job["student"],
        "assignment": job["assignment"],
        "points": points,
        "max_points": sum(judgement["max_points"] for judgement in questions.values()),
        **_state(list(questions.values())),
        "questions": list(questions.values()),
        "cells": cells,
        **_slow(results),
    }


def _slow(results: list[StepResult]) -> Json:
    return {"slow": True} if any(reply["outcome"] == "slow" for reply in results) else {}


def _outcome(reply: StepResult) -> str | None:
    """Return why a step's result cannot be judged; None if it can."""
    if reply["outcome"] == "done":
        return None
    if reply["outcome"] in ("slow", "skipped"):  # skipped: all time was used up before it
        return TIMEOUT
    return reply["outcome"] if reply["outcome"] in (TIMEOUT, MEMORY) else CRASHED


def _cell(step: Json, reply: StepResult) -> Json:
    error = reply["error"]
    return {
        "id": step["id"],
        "answer": step["answer"],
        "source": step["source"],
        "output": reply["output"][:MAX_OUTPUT],
        "error": error and error[:MAX_OUTPUT],
    }


def _question(
    step: Json, reply: StepResult, outcome: str | None, trouble: tuple[str, str | None] | None
) -> Json:
    private = step["id"].endswith(_PRIVATE)
    error = reply["error"]
    findings: list[Finding] = []
    beliefs: list[str] = []
    case = ""
    if step["missing"]:
        outcome, error = FAILED, step["missing"]
    elif trouble and trouble[0] != FAILED:
        outcome, error = trouble
    elif outcome is None:
        findings = _findings(step, reply)
        passed = bool(findings) and all(finding.passed for finding in findings)
        outcome = PASSED if passed else FAILED
        if findings and not passed and not private:
            beliefs, case = _explained(step, reply)
        if error and reply["ename"] == "NotImplementedError":
            error = f"{question(step['question']).answer} is not written yet"
        elif error and trouble:
            error = trouble[1]  # the answer cell's own error is where to begin
    if private:
        # No word is of the student's choice, and no name of the inputs'.
        findings = [
            replace(f, what=f"{_PRIVATELY} {number}", text="" if f.passed else _NOT_SHOWN)
            for number, f in enumerate(findings, 1)
        ]
        error = _NOT_SHOWN if reply["error"] and not (step["missing"] or trouble) else error
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
        "error": error and error[:_MAX_TEXT],
    }


def _findings(step: Json, reply: StepResult) -> list[Finding]:
    """Return the merged findings of all draws; none after an error, one if results are missing."""
    if reply["error"]:
        return []
    observed = reply["observed"] or []
    if len(observed) != len(step["draws"]):
        return [Finding("what came out", False, "the number of results is not that of the inputs")]
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


def _explained(step: Json, reply: StepResult) -> tuple[list[str], str]:
    """Return the replies to an answer's misconceptions, and its smallest wrong case, a program."""
    observed, ask = reply["observed"] or [], question(step["question"])
    if len(observed) != len(step["draws"]):
        return [], ""
    try:
        cases = [
            ask.smallest_case(text, inputs)
            for text, inputs in zip(observed, step["draws"], strict=True)
        ]
    except Exception:  # whatever a student's values did to it: the findings say that it is wrong
        cases = []
    case = min(filter(None, cases), key=lambda text: text.count("\n"), default="")
    return replies(step["question"], ask, observed, step["draws"]), case


def _together(public: Json, private: Json) -> Json:
    """Merge a question's public and private results; the first that did not pass decides."""
    worse = public if public["outcome"] != PASSED else private
    return worse | {"findings": public["findings"] + private["findings"]}


def _state(questions: list[Json]) -> Json:
    lost = [judgement for judgement in questions if judgement["outcome"] not in (PASSED, FAILED)]
    if not lost:
        return {"state": GRADED, "detail": ""}
    detail = "; ".join(
        f"{judgement['id']}: {judgement['outcome']}"
        + (f" ({judgement['error']})" if judgement["error"] else "")
        for judgement in lost
    )
    state = lost[0]["outcome"] if len(lost) == len(questions) else PARTIAL
    return {"state": state, "detail": detail}
