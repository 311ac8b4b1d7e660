"""The teacher's command: every submission gets a row, whatever happens to it or to the grading."""

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import nullcontext

import psutil
import pytest
from nbgrader import api
from sqlalchemy import URL
from test_grading import VARIANT, ran
from test_submissions import CHECKOUT, NAME, ONE, TRUNK, answer_cell, code, notebook

from backward_twice.grading import grade_command
from backward_twice.grading.judging import grader
from backward_twice.grading.judging.journal import open_journal
from backward_twice.grading.platforms.nbgrader.gradebook import COURSE

RIGHT = {
    id: "".join(answer_cell(notebook(folder="solutions"), id)["source"]) for id in (ONE, TRUNK)
}
SCRIPT = "<script>alert(1)</script>"


def answered(one=RIGHT[ONE], trunk=RIGHT[TRUNK]):
    """An exercise with these answers."""
    found = notebook()
    answer_cell(found, ONE)["source"] = one
    answer_cell(found, TRUNK)["source"] = trunk
    return found


def stripped(found):
    for cell in found["cells"]:
        cell["metadata"] = {}
        del cell["id"]
    return found


def tampered(found):
    for cell in found["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("grade"):
            cell["metadata"]["nbgrader"]["points"] = 1000
            cell["source"] = "pass"
    found["metadata"]["kernelspec"] = {"name": "bash", "display_name": "x", "language": "bash"}
    return found


def without_tests(found):
    found["cells"] = [
        c for c in found["cells"] if not c["metadata"].get("nbgrader", {}).get("grade")
    ]
    return found


def reversed_cells(found):
    found["cells"].reverse()
    return found


def split(found):
    cell = answer_cell(found)
    place = found["cells"].index(cell)
    lines = cell["source"].splitlines(keepends=True)
    parts = ["".join(lines[:3]), "".join(lines[3:])]
    found["cells"][place : place + 1] = [code(p, metadata=cell["metadata"]) for p in parts]
    return found


def doubled(found):
    place = found["cells"].index(answer_cell(found))
    found["cells"].insert(place, json.loads(json.dumps(found["cells"][place])))
    return found


def huge(found):
    found["cells"][3:3] = [code("1", id=f"x{number}") for number in range(3000)]
    found["cells"].append({"cell_type": "markdown", "metadata": {}, "source": "a" * 4_000_000})
    return found


def with_import(found):
    """numpy imported where the set-up is, a line about plots, and a check in the answer cell."""
    set_up = next(cell for cell in found["cells"] if cell["id"] == "set-up")
    set_up["source"] = ["import numpy as np\n", *set_up["source"]]
    answer_cell(found, TRUNK)["source"] = (
        "%matplotlib inline\ncheck('two_losses.one_update', one_update)\n"
        f"{RIGHT[TRUNK]}\nnp.ones(1)"
    )
    return found


def with_helper(found):
    found["cells"].append(code("def helper(): pass"))
    return found


PATCHED = """
import torch
from IPython import get_ipython
for name in ("allclose", "equal", "isclose"):
    setattr(torch, name, lambda *a, **k: True)
torch.Tensor.__eq__ = lambda *a: True
torch.Tensor.backward = lambda *a, **k: None
import backward_twice.checks.task as q
q.compare = q.check = lambda *a, **k: []
get_ipython().input_transformers_cleanup.append(lambda lines: ["pass"])
class Equal(dict):
    def __eq__(self, other): return True
    __ne__ = __lt__ = __gt__ = lambda *a: False
"""
READS = """
from pathlib import Path
def trunk_gradients(*given):
    found = [p.read_text() for place in ({out!r}, {checkout!r}, "/")
             for p in [*Path(place).glob("*"), *Path(place).glob("*/*/*.ipynb")] if p.is_file()]
    raise ValueError(found)
"""

# Of each student what is handed in, the state, and the points.
HANDED_IN = {
    "right": (answered(), "graded", 3),
    "untouched": (notebook(), "graded", 0),
    "half": (answered(trunk="def trunk_gradients(*given): return given[:3]"), "graded", 2),
    "Zoë 李 O'Neill": (answered(), "graded", 3),
    "=cmd|' calc'!A0": (answered(), "graded", 3),
    "stripped": (stripped(answered()), "graded", 3),
    "tampered": (tampered(notebook()), "graded", 0),
    "without tests": (without_tests(answered()), "graded", 3),
    "reversed": (reversed_cells(answered()), "graded", 3),
    "split": (split(answered()), "graded", 3),
    "doubled": (doubled(answered()), "graded", 3),
    "huge": (huge(answered()), "graded", 3),
    "helper": (
        with_helper(answered(trunk="trunk_gradients = lambda *g: helper() + lost")),
        "graded",
        2,
    ),
    "double": (answered(f"torch.set_default_dtype(torch.float64)\n{RIGHT[ONE]}"), "graded", 3),
    "import": (with_import(answered()), "graded", 3),
    "patched": (answered(f"{PATCHED}\none_update = Equal", "trunk_gradients = Equal"), "graded", 0),
    "script": (
        answered(f"print({SCRIPT!r})\n{RIGHT[ONE]}", f"raise ValueError({SCRIPT!r})"),
        "graded",
        2,
    ),
    "no syntax": (answered(one="def one_update(:"), "graded", 1),
    "nameless": (
        answered(trunk="def trunk_gradients(*given): raise type(' ', (Exception,), {})()"),
        "graded",
        2,
    ),
    "exits": (answered(one="def one_update(*given):\n    raise SystemExit"), "graded", 1),
    "reads": (None, "graded", 2),
    "loops": (answered(one="while True: pass"), "partial", 1),
    "loops twice": (answered("while True: pass", "while True: pass"), "timeout", 0),
    "much": (answered(one="x = bytearray(100 << 30)"), "partial", 1),
    "ends": (answered(*["import os; os._exit(0)"] * 2), "crashed", 0),
    "ends quietly": (
        answered(trunk="def trunk_gradients(*g): import os; os._exit(0)"),
        "partial",
        2,
    ),
    "two": (answered(), "graded", 3),
    "misnamed": (answered(), "graded", 3),
    "late": (answered(), "graded", 3),
}
REJECTED = {
    "empty": "nothing was handed in",
    "no cells": "no cells",
    "not json": "not JSON",
    "a list": "not a notebook",
    "other exercise": "no answer cell of two_losses",
    "link": "a link; links are not followed",
    "fifo": "a FIFO",
    "folder": "a folder",
    "200 MB": "too large: 200 MB",
    "archive": "hand in the notebook itself",
}


def write(submissions, out, student, found):
    folder = submissions / student / NAME
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{NAME}.ipynb"
    if student == "reads":
        found = answered(trunk=READS.format(out=str(out), checkout=str(CHECKOUT)))
    if found is not None:
        path.write_text(json.dumps(found), encoding="utf-8")
    if student == "two":
        (folder / "older.ipynb").write_text(json.dumps(notebook()))
    elif student == "misnamed":
        path.rename(folder / "Untitled.ipynb")
    elif student == "late":
        (folder / "timestamp.txt").write_text("2026-03-02 01:00:00.000000 UTC")
    return path


@pytest.fixture(scope="module")
def class_of_all(tmp_path_factory):
    """A folder with every kind of submission, and the folder that it is graded into."""
    root = tmp_path_factory.mktemp("class of all")
    submissions, out = root / "what's handed in", root / "graded? 100% #ü"
    for student, (found, _, _) in HANDED_IN.items():
        write(submissions, out, student, found)
    paths = {student: write(submissions, out, student, None) for student in REJECTED}
    paths["empty"].parent.rmdir()
    paths["no cells"].write_text('{"nbformat": 4, "cells": []}')
    paths["not json"].write_text("nonsense")
    paths["a list"].write_text("[]")
    paths["other exercise"].write_text(json.dumps(notebook("hidden_state")))
    paths["link"].symlink_to(CHECKOUT / "solutions" / NAME / f"{NAME}.ipynb")
    os.mkfifo(paths["fifo"])
    paths["folder"].mkdir()
    paths["200 MB"].touch()
    os.truncate(paths["200 MB"], 200_000_000)
    (paths["archive"].parent / "all of it.zip").write_bytes(b"PK")
    (submissions / ".DS_Store").touch()
    (submissions / "__MACOSX").mkdir()
    return submissions, out


def start(submissions, out, workers, **more):
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "backward_twice.grading", submissions, "--out", out),
            *("--solutions", CHECKOUT / "solutions", "--seconds", "2", "--workers", str(workers)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Whoever started the tests may ignore Ctrl-C, as a shell does for what it starts behind it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **more,
    )


def interrupted(process, journal, more, send):
    """End a grading after so many more results; what it had started is gone soon."""
    started = psutil.Process(process.pid)
    children = []
    graded = lines(journal)
    deadline = time.monotonic() + 240
    # the reader, the workers, their warm processes
    while len(children) < 3 or lines(journal) < graded + more:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.05)
        children = started.children(recursive=True)
    send(process.pid)
    said = process.communicate(timeout=60)
    left = psutil.wait_procs(children, timeout=30)[1]
    assert not [child for child in left if child.status() != psutil.STATUS_ZOMBIE]
    return process.returncode, *said


def gradebook_in(out):
    return api.Gradebook(URL.create("sqlite", database=str(out / "gradebook.db")), COURSE)


def lines(journal):
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


@pytest.fixture(scope="module")
def graded(class_of_all, bubblewrap):
    """The class graded: killed on the way, interrupted on the way, and brought to its end."""
    submissions, out = class_of_all
    journal = out / "results.jsonl"
    code, _, _ = interrupted(
        start(submissions, out, 1), journal, 3, lambda pid: os.kill(pid, signal.SIGKILL)
    )
    assert code == -signal.SIGKILL and not (out / "grades.csv").exists()
    kept = journal.read_bytes()
    with gradebook_in(out) as gradebook:
        gradebook.find_assignment(NAME).duedate = api.utils.parse_utc("2026-03-01 23:00:00 UTC")
        gradebook.db.commit()
    # Ctrl-C goes to every process of the terminal.
    code, _, said = interrupted(
        start(submissions, out, 1), journal, 3, lambda pid: os.killpg(pid, signal.SIGINT)
    )
    assert code == 130 and "start again to continue" in said and "Traceback" not in said, said
    assert journal.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    process = start(submissions, out, 2)
    printed, said = process.communicate(timeout=400)
    assert process.returncode == 0, said
    return submissions, out, printed, said


def table(out):
    with (out / "grades.csv").open(encoding="utf-8", newline="") as file:
        return {row["student"].removeprefix("'"): row for row in csv.DictReader(file)}


@pytest.mark.early
def test_every_submission_has_its_row(graded):
    _, out, printed, said = graded
    found = table(out)
    expected = {student: (state, points) for student, (_, state, points) in HANDED_IN.items()}
    assert {
        s: (row["state"], float(row["points"])) for s, row in found.items() if s in expected
    } == (expected)
    for student, why in REJECTED.items():
        row = found.pop(student)
        assert row["state"].startswith("rejected: ") and why in row["state"], row
        assert row["points"] == "0"
    assert found.keys() == expected.keys()
    counted = Counter(state for state, _ in expected.values())
    for state, number in (counted | {"rejected": len(REJECTED)}).items():
        assert f"{number:6} {state}\n" in printed
    assert str(out / "grades.csv") in printed and "done" in said


@pytest.mark.early
def test_the_detail_says_what_there_is_to_say(graded):
    _, out, *_ = graded
    found = {student: row["detail"] for student, row in table(out).items()}
    for student, said in {
        "right": "",
        "two": f"only {NAME}.ipynb counts, not older.ipynb",
        "misnamed": f"named Untitled.ipynb instead of {NAME}.ipynb",
        "late": "late by 2:00:00",
        "helper": "taken from other cells for answer-trunk-gradients: helper",
        "import": f"taken from other cells for {TRUNK}: np; "
        "not run during grading: lines with matplotlib",
    }.items():
        assert found[student] == said
    # On a machine that gives it no quarter of a processor it is the clock's time that ends first.
    assert found["loops"].startswith("one_update: timeout (took longer than ")
    assert "one_update: memory" in found["much"] and "trunk_gradients: crashed" in found["ends"]
    assert "whose name it defines" in found["stripped"]


@pytest.mark.early
def test_the_gradebook_and_the_table_agree(graded):
    _, out, *_ = graded
    rows = table(out)
    with gradebook_in(out) as gradebook:
        points = {s.student_id: s.score for s in gradebook.assignment_submissions(NAME)}
        assert gradebook.find_submission(NAME, "late").total_seconds_late == 7200
    assert points == {
        student: float(row["points"]) for student, row in rows.items() if row["assignment"]
    }


@pytest.mark.early
def test_feedback_for_all_and_nothing_of_theirs_runs(graded):
    _, out, *_ = graded
    pages = {path.parts[-3]: path.read_text() for path in out.glob("feedback/*/*/*.html")}
    assert HANDED_IN.keys() <= pages.keys()
    assert SCRIPT not in "".join(pages.values())
    assert "&lt;script&gt;" in pages["script"]
    assert "<pre>NameError" in pages["helper"] and "not written yet" in pages["untouched"]
    assert "right, 2 of 2 points" in pages["half"] and "is of type Sequential" in pages["half"]
    secret = (out / "secret").read_text()
    assert not any(secret in page or "HIDDEN TESTS" in page for page in pages.values())
    assert not list(out.glob("**/.*"))


@pytest.mark.early
def test_grading_twice_changes_nothing(graded):
    submissions, out, printed, _ = graded
    before = contents(out)
    process = start(submissions, out, 2)
    again, said = process.communicate(timeout=200)
    assert (process.returncode, again) == (0, printed), said
    assert contents(out) == before


def contents(out):
    with gradebook_in(out) as gradebook:
        grades = [
            sorted(
                str({**vars(row), "_sa_instance_state": None}) for row in gradebook.db.query(each)
            )
            for each in (api.Student, api.SubmittedAssignment, api.Grade, api.Comment)
        ]
    return grades, {
        path: path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.name != "gradebook.db"
    }


# Without sandbox and workers: what becomes of a grading


class Here:
    """Grades in this process, without running anything: bob is wrong, all others are right."""

    def __init__(self, root, monkeypatch, gradebook):
        self.submissions, self.out = root / "handed in", root / "graded"
        self.out.mkdir()
        shutil.copy(gradebook, self.out / "gradebook.db")
        self.graded = []
        self.stop_after = None
        monkeypatch.setattr(grade_command.batch, "Workers", lambda *_: nullcontext())
        monkeypatch.setattr(grade_command.batch, "run", self.run)
        monkeypatch.setattr(grade_command, "check_sandbox", lambda: None)

    def run(self, workers, jobs):
        for tag, job in jobs:
            if self.stop_after is not None and len(self.graded) >= self.stop_after[0]:
                raise self.stop_after[1]
            self.graded.append(job["student"])
            bad = (
                {}
                if not job["student"].startswith("bob")
                else {"one_update": {"observed": ["{}"] * 2}}
            )
            asked = grader.drawn(job)
            yield tag, grader.judged(asked, ran(asked, **bad))

    def hand_in(self, *students):
        for student in students:
            write(self.submissions, self.out, student, answered())

    def grade(self, *options):
        self.graded.clear()
        return grade_command.main(
            [
                *(str(self.submissions), "--out", str(self.out)),
                *("--solutions", str(CHECKOUT / "solutions"), *map(str, options)),
            ]
        )

    def points(self):
        return {student: float(row["points"]) for student, row in table(self.out).items()}


@pytest.fixture
def here(tmp_path, monkeypatch, empty_gradebook):
    return Here(tmp_path, monkeypatch, empty_gradebook)


def test_feedback_that_cannot_be_made_keeps_nobodys_grade_back(here, monkeypatch):
    made = grade_command.write_notebook

    def write_notebook(folder, result, *more):
        if result["student"] == "bob":
            raise LookupError("his words")
        made(folder, result, *more)

    monkeypatch.setattr(grade_command, "write_notebook", write_notebook)
    here.hand_in("ada", "bob", "zoe")
    assert here.grade() == 0 and here.points() == {"ada": 3, "bob": 1, "zoe": 3}
    said = "the feedback could not be written: LookupError: his words"
    assert table(here.out)["bob"]["detail"] == said and table(here.out)["zoe"]["detail"] == ""


def test_only_what_is_new_is_graded(here, tmp_path):
    here.hand_in("ada", "bob")
    assert here.grade() == 0 and here.graded == ["ada", "bob"]
    assert here.points() == {"ada": 3, "bob": 1}
    assert here.grade() == 0 and here.graded == []
    here.hand_in("eve")
    assert here.grade() == 0 and here.graded == ["eve"]
    changed = answered(one=RIGHT[ONE] + "\n# another answer")
    write(here.submissions, here.out, "ada", changed)
    assert here.grade() == 0 and here.graded == ["ada"]
    changed["cells"].append(code("print('not handed in')"))
    write(here.submissions, here.out, "ada", changed)
    assert here.grade() == 0 and here.graded == []
    assert here.grade("--seconds", 60) == 0 and here.graded == ["ada", "bob", "eve"]
    private = tmp_path / "private"
    private.mkdir()
    (here.out / "secret").write_text("another secret, of the teacher's")
    assert here.grade() == 0 and here.graded == ["ada", "bob", "eve"]
    (private / f"{NAME}.py").write_text(VARIANT)
    assert here.grade("--private", private) == 0 and here.graded == ["ada", "bob", "eve"]
    assert here.grade("--private", private) == 0 and here.graded == []


def test_a_submission_replaced_by_a_bad_one_and_back(here):
    here.hand_in("ada")
    assert here.grade() == 0 and here.points() == {"ada": 3}
    path = here.submissions / "ada" / NAME / f"{NAME}.ipynb"
    path.write_text("nonsense")
    assert here.grade() == 0 and here.points() == {"ada": 0}
    with gradebook_in(here.out) as gradebook:
        assert gradebook.find_submission(NAME, "ada").score == 0
    here.hand_in("ada")
    assert here.grade() == 0 and here.points() == {"ada": 3}


@pytest.mark.parametrize(
    ("stop", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted; the results so far are saved"),
        (grade_command.GradingError("there is no sandbox here"), 2, "no sandbox here"),
        (OSError(28, "No space left on device", "results.jsonl"), 2, "No space left on device"),
    ],
)
def test_an_interrupted_grading_goes_on(here, capsys, stop, code, said):
    here.hand_in("ada", "bob", "eve")
    here.stop_after = 2, stop
    assert here.grade() == code
    assert said in capsys.readouterr().err
    assert not (here.out / "grades.csv").exists()
    here.stop_after = None
    assert here.grade() == 0 and here.graded == ["eve"]
    assert here.points() == {"ada": 3, "bob": 1, "eve": 3}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device", "grades.csv"), "grades.csv: No space left"),
        (OSError(28, "No space left on device"), "{out}: No space left on device"),
    ],
)
def test_an_error_names_its_place(here, capsys, error, said):
    here.hand_in("ada", "bob")
    here.stop_after = 1, error
    assert here.grade() == 2 and f"error: {said.format(out=here.out)}" in capsys.readouterr().err


def test_of_two_gradings_into_one_folder_the_second_changes_nothing(here, capsys, tmp_path):
    here.hand_in("ada")
    listed = tmp_path / "list.csv"
    listed.write_text("name\nAda\n")
    with open_journal(here.out / "results.jsonl"):
        before = contents(here.out)
        assert here.grade("--roster", listed) == 2
        assert f"another grading is writing {here.out}" in capsys.readouterr().err
        assert contents(here.out) == before
    assert here.grade("--roster", listed) == 0 and (here.out / "roster.csv").exists()


def test_what_may_not_be_read_costs_nobody_else(here, tmp_path, bound_by_permissions):
    """Of a file, its folder, a student's folder and a time; and of the masters all stops."""
    here.hand_in("ada", "bob", "eve", "zoe")
    of = {student: here.submissions / student / NAME for student in ("ada", "bob", "eve", "zoe")}
    (of["zoe"] / "timestamp.txt").write_text("2026-03-01 12:00:00 UTC")
    for path in (of["ada"] / f"{NAME}.ipynb", of["bob"], of["eve"].parent, of["zoe"]):
        (path / "timestamp.txt" if path == of["zoe"] else path).chmod(0)
    masters = shutil.copytree(CHECKOUT / "solutions", tmp_path / "masters")
    grade = "-m", "backward_twice.grading", here.submissions, "--out", here.out
    ended = bound_by_permissions(*grade, "--solutions", masters)
    assert ended.returncode == 0, ended.stderr
    said = {student: (row["state"], row["detail"]) for student, row in table(here.out).items()}
    assert said == {
        "ada": (f"rejected: {NAME}.ipynb cannot be read: Permission denied", ""),
        "bob": (f"rejected: {NAME} cannot be read: Permission denied", ""),
        "eve": ("rejected: the folder cannot be read: Permission denied", ""),
        "zoe": ("graded", "timestamp.txt contains no readable time"),
    }
    (masters / NAME).chmod(0)
    ended = bound_by_permissions(*grade, "--solutions", masters)
    assert ended.returncode == 2
    assert f"{masters / NAME}: Permission denied (give the user who runs this" in ended.stderr


def test_a_file_is_no_folder_to_grade_into(here, capsys, tmp_path):
    here.hand_in("ada")
    (tmp_path / "graded.csv").touch()
    assert here.grade("--out", tmp_path / "graded.csv") == 2
    said = capsys.readouterr().err
    assert (
        "graded.csv is not a folder; choose another name for --out" in said and "kept" not in said
    )


def test_a_disk_that_fills_up_while_the_table_is_written(here, capsys, monkeypatch):
    here.hand_in("ada")

    def full(*_):
        raise OSError(28, "No space left on device", "grades.csv")

    with monkeypatch.context() as patch:
        patch.setattr(grade_command.tables, "write_table", full)
        assert here.grade() == 2
    said = capsys.readouterr().err
    assert "grades.csv: No space left on device; the results so far are saved" in said
    assert here.grade() == 0 and here.graded == [] and here.points() == {"ada": 3}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--private", "/nowhere"], "no private folder"),
        (["--solutions", "/nowhere"], "no master notebooks"),
    ],
)
def test_what_is_the_teachers_to_put_right_is_said_before_grading(here, capsys, options, said):
    here.hand_in("ada")
    assert here.grade(*options) == 2
    assert said in capsys.readouterr().err and here.graded == []


def test_folders_that_cannot_be(here, capsys):
    assert here.grade() == 2
    assert "there is no folder" in capsys.readouterr().err
    here.hand_in("ada")
    here.out = here.submissions / "graded"
    assert here.grade() == 2
    assert "looks like a student's folder" in capsys.readouterr().err
    here.out = here.submissions.parent / "file"
    here.out.write_text("")
    assert here.grade() == 2
    assert "file is not a folder; choose another name for --out" in capsys.readouterr().err


def test_an_empty_folder_of_submissions(here):
    here.submissions.mkdir()
    assert here.grade() == 0 and table(here.out) == {}


def test_where_there_is_no_sandbox_nothing_is_run(here, capsys, monkeypatch):
    here.hand_in("ada")

    def none():
        raise grade_command.GradingError("students' work cannot run in a sandbox here")

    monkeypatch.setattr(grade_command, "check_sandbox", none)
    assert here.grade() == 2
    assert "cannot run in a sandbox here" in capsys.readouterr().err and here.graded == []


def test_numbers_that_are_none():
    for option in ("--workers", "--seconds", "--memory"):
        for text in ("0", "-1", "x", "1.5"):
            with pytest.raises(SystemExit), contextlib.redirect_stderr(None):
                grade_command.parse(["a", "--out", "b", option, text])


def test_make_hands_over_names_as_they_are(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    odd = "it's 100 % $x $(y) #1"
    named = [f"{name}={odd}" for name in ("SUBMISSIONS", "OUT", "ROSTER")]
    made = ["make", "--silent", "grade", f"BIN={tmp_path}", f"FULL={python}", *named]
    # A `make` around this one would hand over its own words.
    without = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    printed = subprocess.check_output(made, cwd=CHECKOUT, env=without, text=True)
    assert printed.splitlines()[-5:] == [odd, "--out", odd, "--roster", odd]


def test_each_tenth_of_a_class_is_printed(tmp_path, capsys):
    with open_journal(tmp_path / "results.jsonl") as journal:
        grading = grade_command.Grading(None, {}, None, journal, None, chosen=25)
        for number in range(25):
            result = {"student": str(number), "assignment": "two_losses", "points": 0.0}
            grading.store("digest", result)
    lines = capsys.readouterr().err.splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("3 of 25 done", "25 of 25 done", 10)
