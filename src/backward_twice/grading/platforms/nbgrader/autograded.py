"""The notebook of a graded submission: the exercise with the student's answers and the findings.

nbgrader's Formgrader shows it like the output of ``nbgrader autograde``; on Canvas it is the
feedback, because Canvas returns a file under the name of the submission.  A student's text appears
only as source code and as plain text of outputs, which nbconvert escapes.
"""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import nbformat
from nbgrader.preprocessors import ClearHiddenTests, ClearOutput

from backward_twice.checks import Finding
from backward_twice.checks.asking import LOOKS_LIKE, SMALLEST_CASE
from backward_twice.grading import atomic
from backward_twice.grading.judging.grader import PASSED, Json
from backward_twice.starters import ClearSolutionsKeepStarters


@cache
def _exercise(master: Path) -> str:
    """Return the text of the exercise's notebook: the master without solutions and outputs."""
    notebook, resources = nbformat.read(master, as_version=4), {}
    for step in (ClearSolutionsKeepStarters(), ClearHiddenTests(), ClearOutput()):
        notebook, resources = step.preprocess(notebook, resources)
    return nbformat.writes(notebook)


def notebook(result: Json, master: Path, remarks: Sequence[str] = ()) -> Json:
    """Return a graded submission (:func:`.grader.judged`) as a notebook in JSON."""
    filled = json.loads(_exercise(master))
    questions = {question["id"]: question for question in result["questions"]}
    for cell in filled["cells"]:
        nbgrader = cell["metadata"].get("nbgrader", {})
        if nbgrader.get("solution"):
            parts = [part for part in result["cells"] if part["answer"] == nbgrader["grade_id"]]
            cell["source"] = "\n\n".join(part["source"] for part in parts)
            cell["outputs"] = [output for part in parts for output in _of_cell(part)]
        elif nbgrader.get("grade") and nbgrader["grade_id"] in questions:
            cell["outputs"] = _of_question(questions[nbgrader["grade_id"]])
    lines = [f"{result['points']:g} of {result['max_points']:g} points"]
    lines += [] if questions else [result["state"]]
    lines += [*remarks, *([result["detail"]] if result["detail"] else [])]
    first = next(cell for cell in filled["cells"] if cell["cell_type"] == "code")
    first["outputs"] = [_text("\n".join(lines))]
    return filled


def _of_cell(part: Json) -> list[Json]:
    return ([_text(part["output"])] if part["output"] else []) + _error(part["error"])


def _of_question(question: Json) -> list[Json]:
    points = f"{question['points']:g} of {question['max_points']:g}"
    lines = [f"{question['id']}: {question['outcome']}, {points}"]
    lines += [f"  {Finding(**finding)}" for finding in question["findings"]]
    lines += [f"  {LOOKS_LIKE} {belief}" for belief in question.get("beliefs", ())]
    if case := question.get("case"):
        lines += [f"  {SMALLEST_CASE}", *(f"    {line}" for line in case.splitlines())]
    failed = [] if question["outcome"] == PASSED else _error(question["error"])
    return [_text("\n".join(lines)), *failed]


def _text(text: str) -> Json:
    return {"output_type": "stream", "name": "stdout", "text": text}


def _error(text: str | None) -> list[Json]:
    if not text:
        return []
    name, _, value = text.strip().splitlines()[-1].partition(": ")
    lines = text.splitlines()
    return [{"output_type": "error", "ename": name, "evalue": value, "traceback": lines}]


def write_notebook(folder: Path, result: Json, master: Path, remarks: Sequence[str]) -> None:
    """Write ``folder/<student>/<assignment>/<assignment>.ipynb``, where Formgrader looks."""
    student, assignment = result["student"], result["assignment"]
    path = folder / student / assignment / f"{assignment}.ipynb"
    atomic.write(path, json.dumps(notebook(result, master, remarks)).encode())
