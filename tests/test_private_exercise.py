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

from backward_twice.checks.task import Task


def _draw(generator):
    return {"x": torch.randn(3, generator=generator)}


def _expect(x):
    return {"result": 2 * x}


def _copied(x):
    return x.clone()


# What asks may call a function by a table: what that refers to is needed in the sandbox, too.
_WAYS = {"copied": [lambda x: _copied(x)]}


def _run(answer, x):
    return {"result": answer(_WAYS["copied"][0](x))}


gradient_of_square = Task("gradient_of_square", _draw, _expect, _run)
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


# What a homework's code can reach: modules, folders that Python has listed, and all of its memory.
# It looks for words with each letter moved by one, so that it does not find its own.
SPY = """
import gc, sys
words = {words}
table = bytes((code + 1) % 256 for code in range(256))
def has(text):
    moved = text.encode(errors="replace").translate(table)
    return any(word in moved for word in words)
reached = [name for name in sys.modules if has(name)]
reached += [str(o)[:200] for o in gc.get_objects() if type(o) in (dict, set, list, tuple)
            and any(type(part) is str and has(part) for part in o)]
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb") as memory:
    for line in maps:
        place, access, *_ = line.split()
        if access.startswith("rw"):
            start, end = (int(number, 16) for number in place.split("-"))
            for at in range(start, end, 1 << 22):
                try:
                    memory.seek(at)
                    moved = memory.read(min(end - at, 1 << 22)).translate(table)
                except OSError:
                    continue
                for word in words[1:]:
                    if (found := moved.find(word)) >= 0:
                        reached.append(str(moved[found - 40 : found + 60]))
print("REACHED", reached[:5])
"""
# Of the exam: its name, a question, a property, a constant.
WORDS = ("exam", "gradient_of_square", "the frozen tower", "margin_of_3_4")


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
    assert "checked only during grading" in capsys.readouterr().out
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


@pytest.mark.usefixtures("bubblewrap")
def test_a_homework_reads_nothing_of_the_exam(private):
    """Not its topic, the names of its questions, properties or constants, nor that it is there."""
    checks = private / "src" / "backward_twice" / "checks"
    secrets = 'PROPERTY = "the frozen tower"\nmargin_of_3_4 = 0.75\n'
    (checks / "exam.py").write_text(f'"""An exam on {WORDS[2]}."""\n{secrets}{CHECK}')
    shutil.copytree(CHECKOUT / "solutions" / "two_losses", private / "solutions" / "two_losses")
    notebook = json.loads((private / "solutions/two_losses/two_losses.ipynb").read_text())
    moved = [bytes(code + 1 for code in word.encode()) for word in WORDS]
    spy = SPY.replace("{words}", repr(moved))
    for cell in notebook["cells"]:
        if cell["id"] == "answer-one-update":
            cell["source"] = spy + "".join(cell["source"])
    path = private / "submitted" / "mallory" / "two_losses" / "two_losses.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(notebook))
    run(private, "-m", "backward_twice.grading", "submitted", "--out", "graded", "--workers", "1")
    [line] = (private / "graded" / "results.jsonl").read_text().splitlines()
    result = json.loads(line)["result"]
    output = result["cells"][0]["output"]
    assert output == "REACHED []\n", output
    assert result["points"] == result["max_points"]


LISTING = """
import sys
from backward_twice import checks
from backward_twice.grading.sandbox.forget import forget_folder, load_questions
forget_folder()
listed = []
sys.addaudithook(lambda event, given: event == "os.listdir" and listed.append(given[0]))
load_questions(["memory_hunt"])  # which imports modules that nothing else does
print("backward_twice.checks.witness" in sys.modules, checks.__path__[0] in listed)
"""


def test_to_load_questions_lists_no_folder():
    """A freed list stays in memory: a homework that reads all of it would find an exam's name."""
    assert run(CHECKOUT, "-c", LISTING).stdout == "True False\n"
