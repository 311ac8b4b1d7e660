"""The teacher's page on a class: what was solved, what it looks like, and what is alike."""

import html
import re
import shutil
from functools import partial

import pytest
from test_grading import MASTER, Page, job, ran, record, rows
from test_submissions import CHECKOUT, NAME

from backward_twice.checks import question
from backward_twice.checks.asking import LOOKS_LIKE
from backward_twice.checks.recognition import known
from backward_twice.grading import report
from backward_twice.grading.feedback.alike import Group, Pair, alike, grouped, tokens
from backward_twice.grading.feedback.page import page
from backward_twice.grading.intake.limited import Limited
from backward_twice.grading.intake.submissions import Rejected
from backward_twice.grading.platforms.nbgrader.autograded import notebook
from backward_twice.grading.run import judge
from backward_twice.grading.run.journal import open_journal

EVIL = "<script>alert(1)</script>"


def believed(asked, name, what):
    """What an answer with this belief gives for the draws of a job's question."""
    [belief] = [b for b in known(f"{NAME}.{name}") if what in b.said]
    ask = question(f"{NAME}.{name}")
    answer = belief.answer(ask.answer)
    [step] = [s for s in asked["steps"] if s["kind"] == "question" and s["id"] == name]
    return {name: {"observed": [ask.observe(answer, inputs) for inputs in step["draws"]]}}


def told(page):
    """The page's words, without its tags."""
    text = re.sub(r"<style>.*?</style>", "", page, flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


@pytest.fixture
def out(tmp_path):
    """A class of six: right, a belief twice, an error, untouched, and one with evil in it."""
    asked = job()
    belief = believed(asked, "one_update", "Detach what is shared")
    error = {
        "one_update": {"error": f"ValueError: {EVIL}", "ename": "ValueError", "observed": None}
    }
    unwritten = {"error": "NotImplementedError: ", "ename": "NotImplementedError", "observed": None}
    nothing = {"one_update": unwritten}
    long = "def one_update(a, b):\n" + "".join(f"    c{i} = a.sin() + b * {i}\n" for i in range(9))
    with open_journal(tmp_path / "results.jsonl") as journal:
        for student, changed, source in (
            ("ada", {}, "def one_update(): ..."),
            ("bob", belief, long),
            ("eve", belief, long.replace("c", "other").replace("    ", "  ") + "# mine"),
            ("joe", error, "def one_update(): ..."),
            ("kim", nothing, "def one_update(): ..."),
            (EVIL.replace("/", ""), {}, f"x = {EVIL!r}\n" * 10),
        ):
            found = judge.judged(asked, ran(asked, **changed)) | {"student": student}
            found["cells"][0]["source"] = source
            journal.add(student, found | {"seconds": 0.25})
        journal.add("", judge.rejected("zoe", NAME, f"no notebook {EVIL}", 3.0))
    return tmp_path


def page_of(out):
    assert report.main([str(out), "--solutions", str(CHECKOUT / "solutions")]) == 0
    return (out / "report.html").read_text(encoding="utf-8")


def test_what_was_solved_and_what_it_looks_like(out):
    said = told(page_of(out))
    assert "7 submissions, on average 1.43 of 3 points" in said
    assert "graded 6" in said and "rejected 1" in said
    assert "right 2 29 % not right 3 43 % not written 1 14 % not there 1 14 %" in said
    assert "trunk&#39;s first layer 2" in said
    assert "&#34;Detach what is shared.&#34; It runs, and the trunk learns nothing" in said
    assert "loss. 2" in said and "ValueError 1" in said
    assert "half of them at most 0.25" in said
    assert "one_update is asked 0.12 0.12 0.12 kim" in said


def test_answers_that_are_alike_stand_side_by_side(out):
    page = page_of(out)
    assert "bob and eve: 100 %, answer-one-update" in told(page)
    assert "ada and" not in told(page)


def test_nothing_of_a_students_runs_on_the_report(out):
    page = page_of(out)
    seen = Page(page)
    assert seen.tags.isdisjoint({"script", "img", "iframe", "link", "form", "object"})
    assert not [name for name in seen.attributes if name.startswith("on") or name == "src"]
    assert "default-src 'none'" in page


def test_nothing_graded_is_said(tmp_path, capsys):
    assert report.main([str(tmp_path)]) == 2
    assert "nothing was graded into" in capsys.readouterr().err


def test_the_words_of_a_program_and_not_its_names():
    assert tokens("a = f(b)  # mine") == tokens("x=g( y )")
    assert tokens("a.sin()") != tokens("a.cos()")
    assert tokens("def f(:\n  '''") and tokens("") == []


def test_what_the_exercise_led_to_is_not_called_alike():
    body = "".join(f"    y = x.sin() * {i}\n" for i in range(12))
    answers = {"ada": f"def f(x):\n{body}", "bob": f"def g(a):\n{body}", "eve": "def f(x): pass"}
    read = {student: tokens(source) for student, source in answers.items()}
    [pair] = alike(read, [])
    assert (pair.one, pair.other, pair.share) == ("ada", "bob", 1)
    assert alike(read, [answers["ada"]]) == []
    assert alike({student: tokens("def f(x): return x") for student in "abc"}, []) == []


def test_many_who_share_one_answer_are_one_group_and_hide_nobody():
    pairs = [Pair(*two, 1.0) for two in ("ab", "ac", "bc", "de")] + [Pair("c", "f", 0.9)]
    assert grouped(pairs) == [
        Group(("a", "b", "c", "f"), pairs[0]),
        Group(("d", "e"), pairs[3]),
    ]


def test_groups_beyond_those_that_are_shown_are_counted(out, monkeypatch):
    long = "x = 1\n" * 20
    with open_journal(out / "results.jsonl") as journal:
        for student in ("one", "two", "three"):
            found = journal["ada", NAME] | {"student": student}
            found["cells"][0]["source"] = long
            journal.add(student, found)
    monkeypatch.setattr(report, "_MOST_GROUPS", 1)
    said = told(page_of(out))
    assert "one, three and two: 100 %" in said and "And 1 more." in said
    assert "Nearest to each other, and shown here, are" in said


TAKES_LONG = "# takes long"


class Impatient(Limited):
    """Whatever is done with one source takes too long."""

    def call(self, function):
        assert isinstance(function, partial)
        if TAKES_LONG in function.args:
            raise Rejected("it cannot be read within 5 s")
        return super().call(function)


def test_answers_that_take_long_to_compare_are_named(out, monkeypatch):
    """Parsing and drawing are done elsewhere, and whose answer takes long is left out of it."""
    long = "x = 1\n" * 2_000
    with open_journal(out / "results.jsonl") as journal:
        for student, source in (("slow", TAKES_LONG), ("one", long), ("two", long)):
            found = journal["ada", NAME] | {"student": student}
            found["cells"][0]["source"] = source
            journal.add(student, found)
    monkeypatch.setattr(report, "Limited", Impatient)
    said = told(page_of(out))
    assert "Not compared, because reading them takes too long: slow." in said
    assert "one and two: 100 %" in said and "not shown side by side: more than 500 lines" in said
    assert "bob and eve: 100 %" in said


def test_a_belief_reaches_page_gradebook_and_notebook(tmp_path, empty_gradebook):
    asked = job()
    found = judge.judged(asked, ran(asked, **believed(asked, "one_update", "Detach what")))
    [first, second] = found["questions"]
    [belief] = first["beliefs"]
    assert "Detach what is shared" in belief and second["beliefs"] == []
    said = f"{LOOKS_LIKE} {belief}"
    assert " ".join(said.split()) in html.unescape(told(page(found, MASTER, [])))
    master = CHECKOUT / "solutions" / NAME / f"{NAME}.ipynb"
    assert said in "".join(
        output["text"]
        for cell in notebook(found, master)["cells"]
        for output in cell.get("outputs", [])
    )
    gradebook = f"sqlite:///{shutil.copy(empty_gradebook, tmp_path / 'gradebook.db')}"
    record(gradebook, found)
    assert said in html.unescape(str(rows(gradebook)))
