"""Honest submissions get the points that nbgrader's own autograde gives them.

The exercises are nbgrader's format, and their test cells ask the same questions as the grader, so a
teacher may use either.  Right, untouched and typically wrong answers are graded by both.
"""

import csv
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import grading  # noqa: E402 (the benchmark lays out the same submissions)

EXERCISES = ("two_losses", "hidden_state", "hessian_vector")
# A kernel for each submission, forked from one that has imported PyTorch.
WARM = f"""
import sys
sys.path.append({str(Path(__file__).parent)!r})
import warm_kernels
warm_kernels.provision()
"""
STUDENTS = 8  # of each exercise: right, untouched, and the typical wrong answers


@pytest.mark.early
@pytest.mark.usefixtures("bubblewrap")
def test_the_same_points_as_nbgrader(tmp_path):
    for exercise in EXERCISES:
        grading.hand_in(tmp_path / "submitted", exercise, STUDENTS)
    course = grading.nbgrader_course(tmp_path / "course", *EXERCISES)
    with (course / "nbgrader_config.py").open("a", encoding="utf-8") as settings:
        settings.write(WARM)
    shutil.copytree(tmp_path / "submitted", course / "submitted")
    for exercise in EXERCISES:
        grading.nbgrader(course, "autograde", exercise, "--create")
    expected = {
        (student, exercise): points
        for exercise in EXERCISES
        for student, points in grading.nbgrader_points(course, exercise).items()
    }
    assert len(expected) == STUDENTS * len(EXERCISES) >= 20
    assert len(set(expected.values())) > 2

    grading.grade(tmp_path / "submitted", tmp_path / "out", workers=2)
    with (tmp_path / "out" / "grades.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["state"] for row in rows} == {"graded"}
    found = {(row["student"], row["assignment"]): float(row["points"]) for row in rows}
    assert found == expected
