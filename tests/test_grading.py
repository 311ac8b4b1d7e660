"""A submission's result, and what becomes of it: points, journal, gradebook, table and page."""

import csv
import errno
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from nbgrader import api

from backward_twice.checks import question
from backward_twice.grading import GradingError
from backward_twice.grading.feedback import tables
from backward_twice.grading.feedback.student_page import page, write_page
from backward_twice.grading.intake.rebuild import answers
from backward_twice.grading.judging import grader, journal
from backward_twice.grading.judging.draws import DRAWS, Draws, read_draws
from backward_twice.grading.judging.master import Answers, read_master
from backward_twice.grading.platforms.nbgrader import gradebook
from backward_twice.misconceptions import misconceptions_of

CHECKOUT = Path(__file__).parents[1]
NAME = "two_losses"
MASTER = read_master(CHECKOUT / "solutions" / NAME / f"{NAME}.ipynb")
MASTERS = {NAME: MASTER}
ONE, TRUNK = (answer.id for answer in MASTER.answers)
ASKED_ONE, ASKED_TRUNK = MASTER.questions
SETTINGS = {
    "limits": {"seconds": 30.0, "memory": 1 << 30},
    "hide": [],
}
SECRET = Draws(b"secret of the test")
GIVEN = Answers({ONE: ("def one_update(): ...",), TRUNK: ("def trunk_gradients(): ...",)}, {}, ())


def job(given=GIVEN, draws=SECRET):
    return grader.drawn(grader.job("ada", MASTER, given, draws, SETTINGS))


def ran(job, **changed):
    """What a sandbox gives for the steps of ``job`` when every answer is right, but for changes."""
    results = []
    for step in job["steps"]:
        result = {"outcome": "done", "output": "", "error": None, "ename": None, "observed": None}
        if step["kind"] == "question":
            ask = question(step["question"])
            result["observed"] = [right(ask, inputs) for inputs in step["draws"]]
        results.append(result | changed.get(step["id"].replace("-", "_").replace(" ", "_"), {}))
    return results


def right(ask, inputs):
    from backward_twice.checks.plain import dumps

    return dumps(ask.right(inputs))


def raised(name, text):
    return {"error": f"{name}: {text}", "ename": name, "observed": None}


# Judging


def test_all_right():
    asked = job()
    result = grader.judged(asked, ran(asked))
    assert (result["state"], result["points"], result["max_points"]) == ("graded", 3, 3)
    assert result["detail"] == ""
    assert [found["outcome"] for found in result["questions"]] == ["passed", "passed"]
    assert [cell["id"] for cell in result["cells"]] == [ONE, TRUNK]
    assert json.loads(json.dumps(result)) == result
    assert json.loads(json.dumps(asked)) == asked


WRONG = [
    ['{"result": 1}'] * DRAWS,
    ["{}"] * DRAWS,
    ["[]"] * DRAWS,
    ["nonsense"] * DRAWS,
    ["[" * 100_000] * DRAWS,
    ["9" * 50_000] * DRAWS,
    ['{"tensor": [1], "dtype": "float32", "shape": [1, 1, 1e9]}'] * DRAWS,
    ['{"tensor": [], "dtype": "float32", "shape": [100000, 100000, 100000, 0]}'] * DRAWS,
    ["NaN"] * DRAWS,
    [""] * DRAWS,
    [],
    None,
]


@pytest.mark.parametrize("observed", WRONG, ids=range(len(WRONG)))
def test_whatever_else_comes_out_has_no_points(observed):
    asked = job()
    result = grader.judged(asked, ran(asked, one_update={"observed": observed}))
    assert (result["state"], result["points"]) == ("graded", 1)
    assert result["questions"][0]["outcome"] == "failed"
    assert not all(finding["passed"] for finding in result["questions"][0]["findings"])


def test_one_wrong_draw_is_wrong():
    asked = job()
    results = ran(asked)
    results[2]["observed"][-1] = "{}"
    assert grader.judged(asked, results)["points"] == 1


def test_too_few_answers_are_wrong():
    asked = job()
    results = ran(asked)
    results[2]["observed"].pop()
    assert grader.judged(asked, results)["points"] == 1


def test_an_error_is_an_ordinary_failure():
    asked = job()
    result = grader.judged(asked, ran(asked, one_update=raised("ValueError", "no")))
    assert (result["state"], result["points"]) == ("graded", 1)
    assert result["questions"][0]["error"] == "ValueError: no"
    result = grader.judged(asked, ran(asked, one_update=raised("NotImplementedError", "")))
    assert result["questions"][0]["error"] == "one_update is not written yet"


def test_the_answer_cells_own_error_is_told():
    asked = job()
    changed = {
        "answer_one_update": raised("SyntaxError", "invalid"),
        "one_update": raised("NameError", "no cell defines one_update"),
    }
    result = grader.judged(asked, ran(asked, **changed))
    assert result["questions"][0]["error"] == "SyntaxError: invalid"
    assert result["points"] == 1


@pytest.mark.parametrize("outcome", ["timeout", "memory", "crashed"])
def test_what_was_not_judged(outcome):
    asked = job()
    bad = {"outcome": outcome, "error": "why", "observed": None}
    result = grader.judged(asked, ran(asked, trunk_gradients=bad))
    assert (result["state"], result["points"]) == ("partial", 2)
    assert result["detail"] == f"trunk_gradients: {outcome} (why)"
    result = grader.judged(asked, ran(asked, trunk_gradients=bad, one_update=bad))
    assert (result["state"], result["points"]) == (outcome, 0)
    # A question inherits what became of its answer, whatever is there under the answer's name.
    result = grader.judged(asked, ran(asked, answer_one_update=bad))
    assert (result["state"], result["points"]) == ("partial", 1)
    assert result["questions"][0]["outcome"] == outcome


def test_what_was_not_reached_counts_as_too_long():
    asked = job()
    bad = {"outcome": "skipped", "error": "not run", "observed": None}
    result = grader.judged(asked, ran(asked, one_update=bad, trunk_gradients=bad))
    assert result["state"] == "timeout"


def test_a_missing_answer_is_a_clear_failure():
    given = Answers({ONE: GIVEN.sources[ONE]}, {TRUNK: "the answer cell is not there"}, ())
    asked = job(given)
    result = grader.judged(asked, ran(asked))  # even if another cell defines what is asked for
    assert (result["state"], result["points"]) == ("graded", 2)
    assert result["questions"][1]["error"] == "the answer cell is not there"


def test_a_fault_of_the_masters_own_is_nobodys_zero():
    asked = job()
    result = grader.judged(asked, ran(asked, set_up=raised("ImportError", "no torch")))
    assert (result["state"], result["points"], result["max_points"]) == ("crashed", 0, 3)
    assert "the master's own cell set-up failed: ImportError: no torch" in result["detail"]
    assert result["again"]


def test_a_slow_machine_is_no_fault_of_the_masters_either():
    asked = job()
    slow = {"outcome": "slow", "error": "took longer than 60 s by the clock"}
    result = grader.judged(asked, ran(asked, set_up=slow))
    assert result["slow"] and result["again"] and "set-up failed" in result["detail"]


def test_a_comparison_that_raises_is_a_failure(monkeypatch):
    asked = job()
    results = ran(asked)
    monkeypatch.setattr(grader.question(ASKED_ONE.question).__class__, "findings", lambda *_: 1 / 0)
    result = grader.judged(asked, results)
    assert result["points"] == 0
    assert "ZeroDivisionError" in result["questions"][0]["findings"][0]["text"]


@pytest.mark.parametrize("of_draws", [(0, 0), (1, 0), (0, 1)])
def test_no_finding_is_no_pass(monkeypatch, of_draws):
    asked = job()
    results = ran(asked)
    told = itertools.cycle(of_draws)
    right = grader.Finding("it", True, "exact")
    monkeypatch.setattr(
        grader.question(ASKED_ONE.question).__class__, "findings", lambda *_: [right] * next(told)
    )
    assert grader.judged(asked, results)["points"] == 0


def test_a_result_is_of_bounded_size():
    asked = job()
    long = {"output": "x" * 100_000, **raised("E", "y" * 100_000)}
    result = grader.judged(asked, ran(asked, answer_one_update=long, one_update=long))
    assert len(json.dumps(result)) < 30_000


def test_an_exercise_is_graded_anew_when_its_checks_or_solution_change(tmp_path, monkeypatch):
    for name in ("task", "plain", "helper", "other"):
        (tmp_path / f"{name}.py").touch()
    (tmp_path / "__init__.py").write_text("from backward_twice.checks.task import Task")
    (tmp_path / "task.py").write_text("from backward_twice.checks.plain import loads")
    (tmp_path / "mine.py").write_text("from backward_twice.checks.helper import f")
    monkeypatch.setattr(grader, "_CHECKS", tmp_path)
    fresh = grader.checks_digest.__wrapped__
    known = {fresh("mine")}
    (tmp_path / "other.py").write_text("1")
    assert fresh("mine") in known
    for name in ("mine.py", "helper.py", "task.py", "plain.py", "mine.txt"):
        with (tmp_path / name).open("a") as file:
            file.write("\n1")
        known.add(fresh("mine"))
    monkeypatch.setattr(grader, "code_cells", lambda exercise: [["answer", exercise]])
    known.add(fresh("mine"))
    assert len(known) == 7


# In the sandbox

SOLUTIONS = sorted(path.parent.name for path in (CHECKOUT / "solutions").glob("*/*.ipynb"))


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("exercise", SOLUTIONS)
def test_right_answers_have_all_points_and_wrong_ones_lose_theirs(exercise):
    """As they are graded: under the list of system calls, the draws one by one."""
    path = CHECKOUT / "solutions" / exercise / f"{exercise}.ipynb"
    master = read_master(path)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    right = answers(cells, master)
    settings = {
        "limits": {},
        "hide": [],
    }

    def graded(given):
        return grader.grade(grader.job("ada", master, given, SECRET, settings))

    result = graded(right)
    assert (result["state"], result["points"]) == ("graded", master.max_points), result
    for asked in master.questions:
        assert misconceptions_of(asked.question)
        for wrong in misconceptions_of(asked.question):
            sources = {**right.sources, asked.answer: (wrong.source,)}
            result = graded(replace(right, sources=sources))
            points = {found["id"]: found["points"] for found in result["questions"]}
            assert (result["state"], points[asked.id]) == ("graded", 0), wrong.name


# Hidden inputs


def test_inputs_depend_on_secret_answers_and_question():
    one = SECRET.seeds(MASTER, ASKED_ONE, "a")
    assert one == SECRET.seeds(MASTER, ASKED_ONE, "a") and len(set(one)) == DRAWS
    assert set(one).isdisjoint(SECRET.seeds(MASTER, ASKED_ONE, "b"))
    assert set(one).isdisjoint(SECRET.seeds(MASTER, ASKED_TRUNK, "a"))
    assert set(one).isdisjoint(Draws(b"another secret").seeds(MASTER, ASKED_ONE, "a"))
    assert "secret" not in repr(SECRET)


def test_the_secret_is_made_once_and_for_the_teacher_only(tmp_path):
    first = read_draws(tmp_path, None, MASTERS)
    assert read_draws(tmp_path, None, MASTERS) == first
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    (tmp_path / "secret").write_text("")
    with pytest.raises(GradingError, match="damaged"):
        read_draws(tmp_path, None, MASTERS)


VARIANT = """
from backward_twice.checks import question

def _larger(inputs):
    return inputs | {"x": 3 * inputs["x"]}

def one_update(generator):
    return _larger(question("two_losses.one_update").draw(generator))
"""


@pytest.fixture
def private(tmp_path):
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / f"{NAME}.py").write_text(VARIANT)
    return folder


def test_private_variants_are_asked_in_addition_and_last(private, tmp_path):
    draws = read_draws(tmp_path, private, MASTERS)
    assert not (private / "__pycache__").exists()
    asked = job(draws=draws)
    assert [step["id"] for step in asked["steps"]][-1] == "one_update (private)"
    assert len(asked["steps"][-1]["draws"]) == DRAWS
    assert grader.judged(asked, ran(asked))["points"] == 3
    for bad in ({"observed": ["{}"] * DRAWS}, raised("ValueError", "hidden: 0.123")):
        result = grader.judged(asked, ran(asked, **{"one_update_(private)": bad}))
        assert result["points"] == 1
        told = json.dumps(result)
        assert "private inputs" in told and "0.123" not in told and "(private)" not in told
        assert "ValueError" not in told
    bad = {"outcome": "timeout", "error": "took long", "observed": None}
    result = grader.judged(asked, ran(asked, **{"one_update_(private)": bad}))
    assert (result["state"], result["points"]) == ("partial", 1)


NAMED = (
    VARIANT.replace(
        "return _larger(question",
        "drawn = _larger(question",
    ).rstrip()
    + """
    drawn["weights"] = {f"LEAK {name}": value for name, value in drawn["weights"].items()}
    return drawn
"""
)


def test_private_findings_do_not_tell_the_inputs(private, tmp_path):
    """Neither by how much a value differs, nor by the name of a property."""
    (private / f"{NAME}.py").write_text(NAMED)
    asked = job(draws=read_draws(tmp_path, private, MASTERS))
    results = ran(asked)
    shifted = json.loads(results[-1]["observed"][0])
    assert all("LEAK" in name for name in shifted)
    for value in shifted.values():
        value["tensor"][0] += 5.4321
    results[-1]["observed"][0] = json.dumps(shifted)
    result = grader.judged(asked, results)
    wrong = [f for f in result["questions"][0]["findings"] if not f["passed"]]
    assert wrong and {f["text"] for f in wrong} == {"not shown, because it concerns private inputs"}
    assert [f["what"] for f in wrong] == [f"of private inputs, property {n}" for n in range(1, 5)]
    assert "LEAK" not in json.dumps(result)


def test_no_word_that_comes_after_private_inputs_is_shown(private, tmp_path):
    """Whatever a broken answer does with them, in whatever field a word can be."""
    chance = random.Random(0)
    asked = job(draws=read_draws(tmp_path, private, MASTERS))
    for _ in range(500):
        results = ran(asked)
        results[-1] |= _broken(chance)
        if chance.random() < 0.3:
            results[-2] |= {"outcome": "crashed", "error": "ended", "observed": None}
        result = grader.judged(asked, results)
        assert result["points"] < 3
        assert "LEAK" not in json.dumps(result)
        assert "LEAK" not in repr([tables.row(result, []), page(result, MASTER, [])])


def _broken(chance):
    """A step that ended in some other way than a right one, with a word in each of its fields."""
    outcome = chance.choice(["done", "timeout", "slow", "memory", "crashed", "skipped"])
    failed = outcome != "done" or chance.random() < 0.5
    texts = ["{}", "[]", "LEAK", '{"LEAK": "LEAK"}', '"LEAK"', '{"LEAK": []}']
    observed = [chance.choice(texts) for _ in range(chance.choice([0, 1, DRAWS, DRAWS + 1]))]
    return {
        "outcome": outcome,
        "output": "LEAK",
        "error": "LEAK: LEAK" if failed else None,
        "ename": chance.choice(["LEAK", "NotImplementedError", "MemoryError"]) if failed else None,
        "observed": None if failed else observed,
    }


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (f"{NAME}.py", "def one_update(generator:", "SyntaxError"),
        (f"{NAME}.py", "import nothing_of_this_name", "ModuleNotFoundError"),
        (f"{NAME}.py", "def one_updaet(generator): return {}", "has no question 'one_updaet'"),
        (f"{NAME}.py", "def one_update(generator): return {}", "that the question does not accept"),
        (f"{NAME}.py", "def one_update(generator): return 1 / 0", "ZeroDivisionError"),
        (f"{NAME}.py", "def one_update(): pass", "TypeError"),
        (
            f"{NAME}.py",
            VARIANT.replace("3 *", "__import__('torch').rand(()) *"),
            "different inputs each time",
        ),
        ("other.py", "", "there is no exercise 'other'"),
    ],
)
def test_a_broken_private_folder_is_said(private, tmp_path, name, text, said):
    (private / name).write_text(text)
    with pytest.raises(GradingError, match=said):
        read_draws(tmp_path, private, MASTERS)
    with pytest.raises(GradingError, match="no private folder"):
        read_draws(tmp_path, tmp_path / "nowhere", MASTERS)


# The journal


def result(student="ada", points=3.0, **more):
    asked = job()
    wrong = {"trunk_gradients": {"observed": ["{}"] * DRAWS}} if points < 3 else {}
    return grader.judged(asked, ran(asked, **wrong)) | {"student": student, **more}


def test_the_journal_remembers_and_a_later_line_counts(tmp_path):
    path = tmp_path / "results.jsonl"
    with journal.open_journal(path) as kept:
        kept.add("1", result())
        kept.add("2", result("bob"))
        kept.add("3", result(points=2))
        kept.add("4", result("eve", again=True))
    before = path.read_bytes()
    with journal.open_journal(path) as kept:
        assert kept.holds(("bob", NAME), "2") and kept.holds(("ada", NAME), "3")
        assert not kept.holds(("ada", NAME), "1") and not kept.holds(("zoe", NAME), "1")
        assert not kept.holds(("eve", NAME), "4")  # its grading came to grief: tried again
        assert kept["ada", NAME]["points"] == 2 and kept["bob", NAME] == result("bob")
        kept.add("3", result(points=2))
        kept.add("4", result("eve", again=True))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "torn", [b'{"digest": "2", "resu', b"{", b'{"digest": "2"}', b"x" * 99_999]
)
def test_a_torn_last_line_is_cut_off(tmp_path, torn):
    path = tmp_path / "results.jsonl"
    with journal.open_journal(path) as kept:
        kept.add("1", result())
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    with journal.open_journal(path) as kept:
        assert kept.holds(("ada", NAME), "1")
        kept.add("2", result("bob"))
    text = path.read_bytes()
    assert text.startswith(whole) and text.count(b"\n") == 2 and text.endswith(b"\n")
    with journal.open_journal(path) as kept:
        assert kept["bob", NAME] == result("bob")


def test_a_damaged_journal_is_not_thrown_away(tmp_path):
    path = tmp_path / "results.jsonl"
    with journal.open_journal(path) as kept:
        kept.add("1", result())
    text = b"rubbish\n" + path.read_bytes()
    path.write_bytes(text)
    with pytest.raises(GradingError, match="damaged in line 1"), journal.open_journal(path):
        pass
    assert path.read_bytes() == text


def test_two_gradings_do_not_write_one_journal(tmp_path):
    path = tmp_path / "results.jsonl"
    with journal.open_journal(path):
        code = (
            "import sys; from pathlib import Path\n"
            "from backward_twice.grading.judging.journal import open_journal\n"
            "with open_journal(Path(sys.argv[1])): pass"
        )
        other = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert "another grading is writing" in other.stderr


def test_a_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    path = tmp_path / "results.jsonl"
    with journal.open_journal(path) as kept:
        kept.add("1", result())
        whole = path.read_bytes()
        write = os.pwrite
        free = [100]

        def full(descriptor, text, offset):
            if not free[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            written = write(descriptor, text[: free[0]], offset)
            free[0] -= written
            return written

        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            kept.add("2", result("bob"))
        assert path.read_bytes() == whole
        monkeypatch.undo()
        kept.add("2", result("bob"))
        assert kept["bob", NAME] == result("bob")


# nbgrader's gradebook


def record(url, *results, when=None, masters=MASTERS):
    with gradebook.open_gradebook(Path(url.removeprefix("sqlite:///")), masters) as grades:
        timestamp = when and when.isoformat()
        return list(grades.record(each | {"timestamp": timestamp} for each in results))


def rows(url):
    """Every row of the gradebook, but for the ids that nbgrader draws at random."""
    with api.Gradebook(url, gradebook.COURSE) as opened:
        submissions = opened.db.query(api.SubmittedAssignment).all()
        return {
            (s.student_id, s.name, s.timestamp, s.score, s.max_score, s.needs_manual_grade): [
                (g.name, g.auto_score, g.manual_score, g.extra_credit, g.max_score)
                for n in s.notebooks
                for g in sorted(n.grades, key=lambda g: g.name)
            ]
            + sorted((c.name, c.auto_comment) for n in s.notebooks for c in n.comments)
            for s in submissions
        }


@pytest.fixture
def url(tmp_path, empty_gradebook):
    return f"sqlite:///{shutil.copy(empty_gradebook, tmp_path / 'gradebook.db')}"


def test_the_gradebook_has_the_points(url, tmp_path):
    when = datetime(2026, 3, 1, 12)
    assert record(url, result(), result("bob", 2), when=when) == [0, 0]
    found = rows(url)
    ada, bob = sorted(found)
    assert ada == ("ada", NAME, when, 3, 3, False) and bob == ("bob", NAME, when, 2, 3, False)
    assert ("one_update", 2, None, None, 2) in found[ada]
    assert ("trunk_gradients", 0, None, None, 1) in found[bob]
    assert {name for name, _ in found[bob][2:]} == {ONE, TRUNK}  # to be commented on
    record(url, result(), result("bob", 2), when=when)
    assert rows(url) == found


def test_nbgraders_own_export_agrees(url, tmp_path):
    record(url, result(), result("bob", 2), grader.rejected("eve", NAME, "why", 3))
    bin = Path(sys.executable).parent
    exported = tmp_path / "exported.csv"
    subprocess.run(
        [bin / "nbgrader", "export", f"--CourseDirectory.db_url={url}", f"--to={exported}"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        env=os.environ | {"PATH": f"{bin}:{os.environ['PATH']}", "HOME": str(tmp_path)},
    )
    with exported.open() as file:
        found = {row["student_id"]: row for row in csv.DictReader(file)}
    points = {name: (row["score"], row["max_score"]) for name, row in found.items()}
    assert points == {"ada": ("3.0", "3.0"), "bob": ("2.0", "3.0"), "eve": ("0.0", "3.0")}


def test_what_a_teacher_put_in_stays(url):
    record(url, result(points=2))
    with api.Gradebook(url, gradebook.COURSE) as opened:
        grade = opened.find_grade("trunk_gradients", NAME, NAME, "ada")
        grade.manual_score, grade.extra_credit, grade.needs_manual_grade = 0.5, 0.25, False
        opened.find_comment(TRUNK, NAME, NAME, "ada").manual_comment = "well argued"
        opened.find_assignment(NAME).duedate = datetime(2026, 1, 1)
        opened.db.commit()
    record(url, result(points=2))
    with api.Gradebook(url, gradebook.COURSE) as opened:
        grade = opened.find_grade("trunk_gradients", NAME, NAME, "ada")
        assert (grade.score, grade.needs_manual_grade) == (0.75, False)
    record(url, result(points=3))
    with api.Gradebook(url, gradebook.COURSE) as opened:
        grade = opened.find_grade("trunk_gradients", NAME, NAME, "ada")
        # The automatic score is another one now: for the teacher to look at.
        assert (grade.auto_score, grade.score, grade.needs_manual_grade) == (1, 0.75, True)
        assert opened.find_comment(TRUNK, NAME, NAME, "ada").comment == "well argued"
        assert opened.find_assignment(NAME).duedate == datetime(2026, 1, 1)


def test_an_extension_of_an_assignment_without_a_due_date_makes_nothing_late(url):
    record(url, result())
    with api.Gradebook(url, gradebook.COURSE) as opened:
        opened.find_submission(NAME, "ada").extension = timedelta(hours=2)
        opened.db.commit()
    assert record(url, result(), when=datetime(2026, 3, 1)) == [0]


def test_how_late_is_counted_from_the_due_date_and_its_extension(url):
    record(url)
    with api.Gradebook(url, gradebook.COURSE) as opened:
        opened.find_assignment(NAME).duedate = datetime(2026, 3, 1)
        opened.db.commit()
    when = datetime(2026, 3, 1, 2, 5)
    assert record(url, result(), when=when) == [timedelta(hours=2, minutes=5).total_seconds()]
    assert record(url, result(), when=datetime(2026, 2, 1)) == [0]
    assert record(url, result()) == [0]
    with api.Gradebook(url, gradebook.COURSE) as opened:
        opened.find_submission(NAME, "ada").extension = timedelta(hours=2)
        opened.db.commit()
    assert record(url, result(), when=when) == [300]


def test_a_rejected_submission_takes_back_its_points(url):
    record(url, result())
    record(url, grader.rejected("ada", NAME, "why", 3.0), grader.rejected("x", "nowhere", "why", 0))
    assert [(key[0], key[3]) for key in rows(url)] == [("ada", 0)]


def test_a_gradebook_of_nbgraders_own_is_taken_as_it_is(url, tmp_path):
    with api.Gradebook(url, "my course") as opened:
        opened.add_assignment(NAME, duedate="2026-03-01 00:00:00 UTC")
        opened.add_notebook(NAME, NAME)
        opened.add_grade_cell("one_update", NAME, NAME, max_score=7, cell_type="code")
        opened.add_student("ada", last_name="Lovelace")
        opened.add_submission(NAME, "ada")
    record(url, result())
    with api.Gradebook(url, "my course") as opened:
        assert opened.find_assignment(NAME).course_id == "my course"
        assert opened.find_student("ada").last_name == "Lovelace"
        assert opened.find_submission(NAME, "ada").score == 3
        assert opened.find_assignment(NAME).max_score == 3
        opened.add_grade_cell("another", NAME, NAME, max_score=7, cell_type="code")
    with pytest.raises(GradingError, match="another; take another gradebook, or remove it"):
        record(url, result())


def test_a_gradebook_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # nbgrader looks for alembic there
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "text.db").write_text("no database, but text of some length" * 100)
    record(f"sqlite:///{tmp_path / 'good.db'}")
    for url, said in [
        (f"sqlite:///{tmp_path / 'nowhere' / 'gradebook.db'}", "unable to open"),
        (f"sqlite:///{tmp_path / 'folder.db'}", "unable to open"),
        (f"sqlite:///{tmp_path / 'text.db'}", "not a database"),
    ]:
        with pytest.raises(GradingError, match=said):
            record(url)


def test_a_class_of_many(url):
    one = result()
    many = [one | {"student": f"student {number:04}"} for number in range(450)]
    assert len(record(url, *many)) == 450
    with api.Gradebook(url, gradebook.COURSE) as opened:
        assert opened.average_assignment_score(NAME) == 3
        assert opened.db.query(api.Grade).count() == 900


# The table


SIGNS = tuple("=+-@＝＋－＠﹦⁼−")
FORMULAS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    " =1",
    "＝1",
    "＠x",
    "\n-1",
    "\u200d=1",
    "﹦1",
    "⁼1",
    "−1",
]


@pytest.mark.parametrize("before", ["", "x;", "x,", "x\t", "x|", 'x";"', "x ; ", "x;;"])
@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_is_a_formula(tmp_path, text, before):
    text = before + text
    row = tables.Row(text, text, 1.5, 3, text, text, text, text)
    tables.write_table(tmp_path / "grades.csv", [row])
    written = (tmp_path / "grades.csv").read_text(encoding="utf-8").splitlines()[1]
    for separator in ",;\t|":
        for quote in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE):
            [cells] = csv.reader([written], delimiter=separator, quoting=quote)
            for cell in cells:
                assert cell.lstrip(" \t\"'\u200d")[:1] not in SIGNS or "'" in cell
                assert cell.lstrip(' \t"\u200d')[:1] not in SIGNS
    with (tmp_path / "grades.csv").open(newline="", encoding="utf-8") as file:
        assert [cells[2:4] for cells in csv.reader(file)][1] == ["1.5", "3"]


def test_no_word_of_a_students_is_in_the_table():
    asked = job()
    said = {"error": "took more than 1 MB of memory", "ename": "MemoryError", "observed": None}
    bad = {"outcome": "memory", **said}
    result = grader.judged(asked, ran(asked, one_update=bad))
    assert result["detail"] == "one_update: memory (took more than 1 MB of memory)"


def test_the_table_is_written_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "grades.csv"
    tables.write_table(path, [tables.Row("Zoë", NAME, 1, 3, "graded", 'a "quoted", detail')])
    assert path.read_text(encoding="utf-8") == (
        "student,assignment,points,max_points,state,detail,name,identifier,earlier_points\n"
        'Zoë,two_losses,1,3,graded,"a ""quoted"", detail",,,\n'
    )

    def rows():
        yield tables.Row("eve", NAME, 1, 3, "graded", "")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        tables.write_table(path, rows())
    assert "Zoë" in path.read_text(encoding="utf-8")
    assert [found.name for found in tmp_path.iterdir()] == ["grades.csv"]


# The page


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += [name for name, _ in attrs]


def test_nothing_of_a_students_runs_on_the_page(tmp_path):
    evil = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}"
    found = result(points=2)
    for cell in found["cells"]:
        cell |= {"source": evil, "output": evil, "error": evil}
    for each in found["questions"]:
        each |= {"error": evil + "2"}
        each["findings"][0] |= {"what": evil, "text": evil}
    found |= {"student": evil.replace("/", ""), "detail": evil}
    text = page(found, MASTER, [evil])
    seen = Page(text)
    assert seen.tags.isdisjoint({"script", "img", "iframe", "link", "a", "form", "object"})
    assert not [name for name in seen.attributes if name.startswith("on") or name == "src"]
    assert text.count("&lt;script&gt;") >= 8 and "{{ 7 * 7 }}" in text
    assert "default-src 'none'" in text


def test_the_page_tells_what_was_wrong_and_no_hidden_test(tmp_path):
    found = result(points=2)
    found["cells"][0]["output"] = "what it printed"
    write_page(tmp_path, found, MASTER, ["late by 1:00:00"])
    path = tmp_path / "ada" / NAME / f"{NAME}.html"
    text = path.read_text(encoding="utf-8")
    for said in (
        *("2 of 3 points", "late by 1:00:00", "Repair the update", "def one_update(): ..."),
        *("✓ right", "✗ wrong", "missing", "what it printed", '<html lang="en">'),
    ):
        assert said in text
    hidden = json.dumps(job()["steps"])
    numbers = [n for n in hidden.replace("]", " ").replace(",", " ").split() if "." in n]
    assert len(numbers) > 20 and not any(number in text for number in numbers)
    assert "HIDDEN" not in text and "check(" not in text
    written = path.stat().st_mtime_ns
    write_page(tmp_path, found, MASTER, ["late by 1:00:00"])
    assert path.stat().st_mtime_ns == written


def test_a_rejected_submission_has_a_page_that_says_why(tmp_path):
    write_page(tmp_path, grader.rejected("ada", NAME, "no <b>", 3.0), MASTER, [])
    assert "rejected: no &lt;b&gt;" in (tmp_path / "ada" / NAME / f"{NAME}.html").read_text()


@pytest.mark.parametrize("student", ["", ".", "..", "a/b", "/etc", "../x", "a\0b"])
def test_no_page_lies_outside_its_folder(tmp_path, student):
    with pytest.raises(ValueError, match="no name of a folder"):
        write_page(tmp_path / "feedback", result(student), MASTER, [])
    assert not list(tmp_path.iterdir())


def test_two_questions_about_one_answer_show_it_once():
    asked = replace(ASKED_TRUNK, answer=ONE)
    master = replace(
        MASTER, cells=tuple(asked if cell == ASKED_TRUNK else cell for cell in MASTER.cells)
    )
    text = page(result(), master, [])
    assert text.count("def one_update(): ...") == 1


def test_seeds_are_those_that_torch_takes():
    for number in range(50):
        torch.Generator().manual_seed(SECRET._seed(MASTER, ASKED_ONE, "a", number))


def test_of_many_properties_the_wrong_ones_are_listed():
    found = result()
    found["questions"][0]["findings"] = [
        {"what": f"property {number}", "passed": number != 7, "text": "exact"}
        for number in range(30)
    ]
    text = page(found, MASTER, [])
    assert "29 properties are right, and these are wrong" in text
    assert "property 7<" in text and "property 8<" not in text
