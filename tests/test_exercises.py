"""Every exercise is generated from its solution, can be solved, and cannot be passed by a belief.

Here a question is asked as the learner's notebook asks it, in this process.  What the grader makes
of the same notebooks, in its sandbox, is tested in ``test_grading.py``.
"""

import ast
import importlib
import re
import sys
from pathlib import Path

import nbformat
import pytest
import torch
from IPython.core.inputtransformer2 import TransformerManager

from backward_twice.checks import Task, asking, check, question
from backward_twice.checks.plain import MAX_DEPTH, MAX_DIMENSIONS, dumps, loads
from backward_twice.exercises import generate
from backward_twice.misconceptions import FOLDER, OutdatedChange, changed, misconceptions_of

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

from exercises import OPENING  # noqa: E402 (the book's own extension)

SOLUTIONS = sorted((ROOT / "solutions").glob("*/*.ipynb"))
CHAPTERS = sorted((ROOT / "notebooks").glob("0*.ipynb"))
SEEDS = range(100, 105)  # neither the notebook's public draws nor its hidden one


def cells(path):
    return [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]


def role(cell, name):
    return cell.metadata.get("nbgrader", {}).get(name, False)


def questions():
    """Each question of each solution: exercise, name of the question, points."""
    for path in SOLUTIONS:
        for cell in cells(path):
            if role(cell, "grade"):
                yield path.stem, cell.metadata.nbgrader.grade_id, cell.metadata.nbgrader.points


QUESTIONS = [(exercise, name) for exercise, name, _ in questions()]
NAMED = pytest.mark.parametrize(
    ("exercise", "name"), QUESTIONS, ids=[".".join(pair) for pair in QUESTIONS]
)


def answer_in(path, exercise, name, replaced=None):
    """What the notebook's answer to a question defines; ``replaced`` is put in its place.

    The cells before the question's test cell are run, but for tests and those that must raise.
    """
    namespace = {"__name__": "__main__"}
    asked = question(f"{exercise}.{name}")
    for cell in cells(path):
        if role(cell, "grade"):
            if cell.metadata.nbgrader.grade_id == name:
                return namespace[asked.answer]
            continue
        if cell.id in ("bootstrap", "set-up") or "raises-exception" not in cell.metadata.get(
            "tags", ()
        ):
            own = cell.metadata.get("nbgrader", {}).get("grade_id") == answer_id(name)
            source = replaced if own and replaced is not None else cell.source
            lines = [line for line in source.splitlines() if not line.startswith("%")]
            exec(TransformerManager().transform_cell("\n".join(lines)), namespace)
    raise AssertionError(f"{path.name} has no test cell {name!r}")


def solution(exercise):
    return ROOT / "solutions" / exercise / f"{exercise}.ipynb"


def answer_id(name):
    return f"answer-{name.replace('_', '-')}"


def passes(answer, exercise, name, seed):
    """Whether the answer gets the question's points on what ``seed`` draws."""
    asked = question(f"{exercise}.{name}")
    inputs = asked.inputs(seed)
    try:
        observed = asked.observe(answer, inputs)
    except Exception:
        return False
    findings = asked.findings(observed, inputs)
    return bool(findings) and all(finding.passed for finding in findings)


def spoiled(value):
    """The value wrong in each of its parts, and of the same form."""
    if isinstance(value, dict):
        return {name: spoiled(part) for name, part in value.items()}
    if isinstance(value, list):
        return [spoiled(part) for part in value]
    if isinstance(value, torch.Tensor):
        return ~value if value.dtype == torch.bool else value + 7
    if isinstance(value, bool):
        return not value
    return value + 7 if isinstance(value, int | float) else 7


@NAMED
def test_what_is_wrong_in_any_part_has_a_case(exercise, name):
    asked = question(f"{exercise}.{name}")
    inputs = asked.inputs(100)
    right = asked.observe(answer_in(solution(exercise), exercise, name), inputs)
    observed = dumps(spoiled(loads(right)))
    findings = asked.findings(observed, inputs)
    assert not any(finding.passed for finding in findings)
    assert bool(asked.smallest_case(observed, inputs)) == (asked.program is not None)


def nested(depth):
    return [nested(depth - 1)] if depth else 1


FORGED = {"tensor": [1], "dtype": "none", "shape": [1]}
ODD = [None, [], {}, "", "x", 7, True, float("nan"), 10**400, [[7]], [FORGED], {"a": FORGED}]
ODD += ["\ud800", [torch.zeros(0)], [torch.zeros(())], nested(MAX_DEPTH - 2), nested(400)]


@NAMED
def test_whatever_an_answer_gives_back_it_is_judged(exercise, name):
    asked = question(f"{exercise}.{name}")
    inputs = asked.inputs(100)
    for odd in ODD:
        try:
            observed = asked.observe(lambda *args, odd=odd, **kwargs: odd, inputs)
        except Exception:  # said by the check as the answer's own
            continue
        findings = asked.findings(observed, inputs)
        assert findings and not all(finding.passed for finding in findings)
        asked.smallest_case(observed, inputs)


def test_a_question_with_nothing_to_compare_says_so_and_is_not_passed(monkeypatch):
    """As a teacher's own may be, for one of its draws."""
    empty = Task("f", lambda _: {}, expect=lambda: {"result": []})
    monkeypatch.setattr(asking, "question", lambda _: empty)
    with pytest.raises(
        AssertionError, match=r"1 of 1 properties wrong\n.*compares nothing with it"
    ):
        check("own.f", lambda: [])


def test_a_value_too_deep_to_judge_is_said_to_be_so():
    with pytest.raises(AssertionError, match=f"lists in lists, more than {MAX_DEPTH} deep"):
        check("kept_gradients.kept_values", lambda calls: nested(400))


def test_a_tensor_of_many_dimensions_is_not_read():
    """Of a million sizes not even the product may be asked for: it takes a minute."""
    text = dumps(torch.ones((1,) * MAX_DIMENSIONS))
    assert loads(text).dim() == MAX_DIMENSIONS
    with pytest.raises(ValueError, match="values do not fit its shape"):
        loads(text.replace("[1, 1", "[1, 1, 1"))
    with pytest.raises(ValueError, match=f"at most {MAX_DIMENSIONS} are accepted"):
        dumps(torch.ones((1,) * (MAX_DIMENSIONS + 1)))


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exercises")
    return {path.stem: path for path in generate(ROOT, folder)}


def test_every_exercise_is_generated(generated):
    stored = {path.stem: path for path in (ROOT / "exercises").glob("*/*.ipynb")}
    assert stored.keys() == generated.keys()
    for name, path in generated.items():
        assert stored[name].read_bytes() == path.read_bytes(), f"{name}: run `make exercises`"


def test_no_exercise_holds_its_solution(generated):
    for path in SOLUTIONS:
        exercise = nbformat.read(generated[path.stem], as_version=4)
        text = "\n".join(cell.source for cell in exercise.cells)
        assert "HIDDEN" not in text and "SOLUTION" not in text and "Solution: " not in text
        assert not any(cell.get("outputs") for cell in exercise.cells)
        sources = {cell.id: cell.source for cell in exercise.cells}
        for cell in cells(path):
            if role(cell, "solution"):
                assert sources[cell.id] != cell.source, f"{path.stem}: {cell.id}"


def test_an_exercise_says_what_it_asks_of_its_learner(subtests):
    for path in SOLUTIONS:
        with subtests.test(exercise=path.stem):
            first = nbformat.read(path, as_version=4).cells[0].source
            opening = OPENING.match(first)
            assert opening, first
            assert (ROOT / "notebooks" / f"{opening['chapter']}.ipynb").exists()


def test_an_exercise_is_found_on_the_site(subtests):
    pages = (ROOT / "book" / "_toc.yml").read_text("utf-8")
    for name, path in ((path.stem, path) for path in SOLUTIONS):
        with subtests.test(exercise=name):
            assert f"file: exercises/{name}/{name}\n" in pages
            assert f"file: solutions/{name}/{name}\n" in pages
            opening = OPENING.match(nbformat.read(path, as_version=4).cells[0].source)
            chapter = ROOT / "notebooks" / f"{opening['chapter']}.ipynb"
            link = f"[{opening['title']}](../exercises/{name}/{name}.ipynb)"
            about = f"{opening['difficulty']}, about {opening['minutes']} minutes"
            last = nbformat.read(chapter, as_version=4).cells[-1].source
            assert f"- {link}: {about}" in last


def test_every_chapter_has_its_exercises():
    """Three for an article and for the tool, two for a chapter of Part II; chapter 0 predicts."""
    chapters = [
        re.search(r"notebooks/(\w+)\.ipynb", path.read_text("utf-8"))[1] for path in SOLUTIONS
    ]
    for chapter in CHAPTERS[1:]:
        least = 3 if chapter.stem < "07" else 2
        assert chapters.count(chapter.stem) >= least, chapter.stem


def test_the_notebook_asks_every_question_of_its_module(subtests):
    for path in SOLUTIONS:
        with subtests.test(exercise=path.stem):
            module = importlib.import_module(f"backward_twice.checks.{path.stem}")
            defined = {name for name, value in vars(module).items() if isinstance(value, Task)}
            assert defined == {name for exercise, name in QUESTIONS if exercise == path.stem}


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_a_question_is_an_answer_cell_and_a_test_cell(path):
    """The names that grader, generation and links rely on."""
    found = cells(path)
    tests = {c.metadata.nbgrader.grade_id: c for c in found if role(c, "grade")}
    answers = {c.metadata.nbgrader.grade_id: c for c in found if role(c, "solution")}
    assert answers.keys() == {answer_id(name) for name in tests}
    for name, cell in tests.items():
        asked = question(f"{path.stem}.{name}")
        call = f'check("{path.stem}.{name}", {asked.answer}'
        assert re.fullmatch(
            re.escape(call)
            + r"\)\n### BEGIN HIDDEN TESTS\n"
            + re.escape(call)
            + r", seed=\d+\)\n### END HIDDEN TESTS",
            cell.source,
        )
        assert cell.metadata.nbgrader.locked and cell.metadata.nbgrader.points > 0
        assert cell.id == name.replace("_", "-")
        answer = answers[answer_id(name)]
        assert answer.id == answer_id(name)
        defined = {node.name for node in ast.parse(answer.source).body if hasattr(node, "name")}
        assert asked.answer in defined


@NAMED
def test_the_solution_is_right(exercise, name):
    path = ROOT / "solutions" / exercise / f"{exercise}.ipynb"
    answer = answer_in(path, exercise, name)
    for seed in (0, 1, *SEEDS):
        assert passes(answer, exercise, name, seed), f"seed {seed}"


@NAMED
def test_the_untouched_exercise_is_not(exercise, name, generated):
    answer = answer_in(generated[exercise], exercise, name)
    for seed in (0, 1, *SEEDS):
        assert not passes(answer, exercise, name, seed), f"seed {seed}"


@NAMED
def test_draws_differ_and_repeat(exercise, name):
    asked = question(f"{exercise}.{name}")
    drawn = [asked.inputs(seed) for seed in SEEDS]
    assert len(set(drawn)) == len(drawn)
    assert drawn == [asked.inputs(seed) for seed in SEEDS]


def test_every_question_has_typical_wrong_answers(subtests):
    for exercise, name in QUESTIONS:
        with subtests.test(question=f"{exercise}.{name}"):
            assert len(misconceptions_of(f"{exercise}.{name}")) >= 2


def test_every_misconception_is_about_a_question():
    assert {(path.parent.name, path.stem) for path in FOLDER.glob("*/*.diff")} == set(QUESTIONS)


WRONG = [
    (exercise, name, misconception)
    for exercise, name in QUESTIONS
    for misconception in misconceptions_of(f"{exercise}.{name}")
]


@pytest.mark.parametrize(
    ("exercise", "name", "misconception"),
    WRONG,
    ids=[f"{exercise}.{name}.{misconception.name}" for exercise, name, misconception in WRONG],
)
def test_a_typical_wrong_answer_gets_no_point(exercise, name, misconception):
    answer = answer_in(solution(exercise), exercise, name, replaced=misconception.source)
    for seed in (0, 1, *SEEDS):
        assert not passes(answer, exercise, name, seed), f"seed {seed}"


def test_a_change_applies_in_order():
    answer = ["def f(x):", "    y = x", "    z = y", "    y = x", "    return z"]

    def result(*change):
        return changed(answer, change, "f").splitlines()

    second_changed = [*answer[:3], "    y = 2", answer[4]]
    assert result("     z = y", "-    y = x", "+    y = 2") == second_changed
    assert result(" def f(x):", "-...", "+    return 1") == ["def f(x):", "    return 1"]
    assert result("-    y = x", "-...", "     return z") == ["def f(x):", "    return z"]


@pytest.mark.parametrize("line", ["-    w = x", " def g(x):", "    return z", ""])
def test_a_change_that_no_longer_applies_says_which_line(line):
    with pytest.raises(
        OutdatedChange, match=re.escape(f"f: the stored answer has no such line here: {line!r}")
    ):
        changed(["def f(x):", "    return z"], ["     return z", line], "f")
