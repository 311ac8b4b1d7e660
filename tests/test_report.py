"""The teacher's page on a class: what was solved, what it looks like, and whose it is."""

import html
import re

import pytest
from test_grading import MASTER, Page, job, ran
from test_submissions import CHECKOUT, NAME

from backward_twice.checks import question
from backward_twice.checks.asking import LOOKS_LIKE
from backward_twice.grading import class_report
from backward_twice.grading.feedback.student_page import page
from backward_twice.grading.judging import grader
from backward_twice.grading.judging.journal import open_journal
from backward_twice.grading.platforms.nbgrader.autograded import notebook
from backward_twice.misconceptions import misconceptions_of

EVIL = "<script>alert(1)</script>"


def believed(asked, name, what):
    """The results of an answer with this misconception for the draws of a job's question."""
    [misconception] = [m for m in misconceptions_of(f"{NAME}.{name}") if what in m.reply]
    ask = question(f"{NAME}.{name}")
    answer = misconception.answer(ask.answer)
    [step] = [s for s in asked["steps"] if s["kind"] == "question" and s["id"] == name]
    return {name: {"observed": [ask.observe(answer, inputs) for inputs in step["draws"]]}}


def told(page):
    """The page's words, without its tags, and without the students behind a number."""
    text = re.sub(r"<style>.*?</style>", "", page, flags=re.S)
    text = re.sub(r"<details><summary>(\d+)</summary>.*?</details>", r"\1", text, flags=re.S)
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
            found = grader.judged(asked, ran(asked, **changed)) | {"student": student}
            found["cells"][0]["source"] = source
            journal.add(student, found)
        journal.add("", grader.rejected("zoe", NAME, f"no notebook {EVIL}", 3.0))
    return tmp_path


def page_of(out):
    assert class_report.main([str(out), "--solutions", str(CHECKOUT / "solutions")]) == 0
    return (out / "report.html").read_text(encoding="utf-8")


def test_what_was_solved_and_what_it_looks_like(out):
    said = told(page_of(out))
    assert "7 submissions, on average 1.43 of 3 points" in said
    assert "graded 6" in said and "rejected 1" in said
    assert "right 2 29 % not right 3 43 % not written 1 14 % not there 1 14 %" in said
    assert "trunk&#39;s first layer 2" in said
    assert "&#34;Detach what is shared.&#34; It runs, and the trunk learns nothing" in said
    assert "loss. 2" in said and "ValueError 1" in said


def test_behind_each_number_are_the_students(out):
    """By the names that the class list has, with links to their pages."""
    (out / "grades.csv").write_text(f"student,assignment,name\nbob,{NAME},Bob Kahn\neve,{NAME},\n")
    page = page_of(out)
    [row] = re.findall(r'<th scope="row">not right</th>.*?</tr>', page, flags=re.S)[:1]
    links = dict(re.findall(r'<a href="([^"]*)">(.*?)</a>', row))
    assert links == {f"feedback/{s}/{NAME}/{NAME}.html": name for s, name in WRONG.items()}


WRONG = {"bob": "Bob Kahn", "eve": "eve", "joe": "joe"}


def test_answers_are_written_for_programs_that_compare_sources(out):
    page_of(out)
    folder = out / "answers"
    assert "c0 = a.sin()" in (folder / NAME / "bob.py").read_text()
    assert {path.stem for path in (folder / NAME).iterdir()} >= {"ada", "bob", "eve", "joe", "kim"}
    assert "loss_a" in (folder / "given" / f"{NAME}.py").read_text()


def test_nothing_of_a_students_runs_on_the_report(out):
    page = page_of(out)
    seen = Page(page)
    assert seen.tags.isdisjoint({"script", "img", "iframe", "link", "form", "object"})
    assert not [name for name in seen.attributes if name.startswith("on") or name == "src"]
    assert "default-src 'none'" in page


def test_nothing_graded_is_said(tmp_path, capsys):
    assert class_report.main([str(tmp_path)]) == 2
    assert "nothing was graded into" in capsys.readouterr().err


def test_a_belief_reaches_page_and_notebook():
    asked = job()
    found = grader.judged(asked, ran(asked, **believed(asked, "one_update", "Detach what")))
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
