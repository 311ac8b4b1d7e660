"""The recipe for an exercise that students do not have: a stub for them, the check for the grader.

As the page for teachers says it: a private clone with a solution and a module of checks more.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from test_submissions import CHECKOUT

CHECK = """
import torch

from backward_twice.checks.question import Question


def _draw(generator):
    return {"x": torch.randn(3, generator=generator)}


def _expect(x):
    return {"result": 2 * x}


gradient_of_square = Question("gradient_of_square", _draw, _expect)
"""
RIGHT = """def gradient_of_square(x):
    ### BEGIN SOLUTION
    x = x.clone().requires_grad_()
    x.square().sum().backward()
    return x.grad
    ### END SOLUTION"""


def nbgrader(grade_id, **more):
    role = {"grade": False, "solution": False, "locked": False, "task": False}
    return {"nbgrader": role | {"grade_id": grade_id, "schema_version": 3} | more}


def solution():
    asked = 'check("exam.gradient_of_square", gradient_of_square)'
    cells = [
        new_markdown_cell("# Solution: An exam"),
        new_code_cell("import torch\nfrom backward_twice.checks import check", id="set-up"),
        new_code_cell(
            RIGHT,
            id="answer-gradient-of-square",
            metadata=nbgrader("answer-gradient-of-square", solution=True),
        ),
        new_code_cell(
            asked,
            id="gradient-of-square",
            metadata=nbgrader("gradient_of_square", grade=True, locked=True, points=4),
        ),
    ]
    return new_notebook(cells=cells)


@pytest.fixture
def private(tmp_path):
    """A clone with the two files that students do not get."""
    clone = tmp_path / "private clone"
    shutil.copytree(CHECKOUT / "src", clone / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CHECKOUT / "nbgrader_config.py", clone)
    (clone / "solutions" / "exam").mkdir(parents=True)
    nbformat.write(solution(), clone / "solutions" / "exam" / "exam.ipynb")
    (clone / "src" / "backward_twice" / "checks" / "exam.py").write_text(CHECK)
    return clone


def run(clone, *arguments):
    """A command in the clone, with the clone's package."""
    bin = Path(sys.executable).parent
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=clone,
        env=os.environ | {"PYTHONPATH": str(clone / "src"), "PATH": f"{bin}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )


def handed_in(exercise, answer):
    for cell in exercise["cells"]:
        if cell["id"] == "answer-gradient-of-square":
            cell["source"] = answer
    return json.dumps(exercise)


@pytest.mark.usefixtures("bubblewrap")
def test_students_get_a_stub_and_the_grader_has_the_check(private, capsys):
    run(private, "-m", "backward_twice.exercises")
    exercise = json.loads((private / "exercises" / "exam" / "exam.ipynb").read_text())
    # The student's package has no such exercise: the check says that, whatever the answer is.
    names = {}
    for cell in exercise["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert "asked when it is graded" in capsys.readouterr().out
    assert "2 * x" not in json.dumps(exercise) and "x.square" not in json.dumps(exercise)

    for student, answer in {
        "ada": RIGHT,
        "bob": "def gradient_of_square(x):\n    return x",
        "eve": "from backward_twice.checks import exam\n"
        "def gradient_of_square(x):\n    return exam.gradient_of_square.expect(x)['result']",
    }.items():
        path = private / "submitted" / student / "exam" / "exam.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(handed_in(exercise, answer))
    graded = "-m", "backward_twice.grading", "submitted", "--out", "graded", "--workers", "1"
    run(private, *graded)
    with (private / "graded" / "grades.csv").open() as file:
        points = {row["student"]: row["points"] for row in csv.DictReader(file)}
    assert points == {"ada": "4", "bob": "0", "eve": "0"}
