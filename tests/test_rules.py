"""Every rule of an exercise has an answer that breaks it, and that no draw lets pass.

The answers stand in ``refused_answers.toml``.  A new numbered rule without one fails here.
"""

import re
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from test_exercises import SOLUTIONS, role

from backward_twice.checks import question
from backward_twice.misconceptions import misconceptions_of, with_change

REFUSED = tomllib.loads(Path(__file__).with_name("refused_answers.toml").read_text("utf-8"))
HINTS = re.compile(r"<details>.*?</details>", re.S)
RULE = re.compile(r"^\d+\. (.+)", re.M)
DRAWS = range(1000, 1300)
"""So many that 0 of them is less than 1 % of all, with a probability of 95 %."""
OF_CASES = {"name_the_cause.name_the_cause": (range(1000, 1015), 5)}
"""Questions whose draws cost more: fewer draws, and how many cases a draw has that may be wrong.
They are drawn one by one, so that an answer passes a draw as often as it passes each of them."""


def statements():
    """What stands before each question, by the question's name."""
    for path in SOLUTIONS:
        text = ""
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                text += HINTS.sub("", cell.source) + "\n"
            elif role(cell, "grade"):
                yield f"{path.stem}.{cell.metadata.nbgrader.grade_id}", text
                text = ""


STATEMENTS = dict(statements())
ANSWERS = [(name, rule) for name, answers in REFUSED.items() for rule in answers]


def test_each_rule_has_a_refused_answer():
    for name, text in STATEMENTS.items():
        for line in RULE.findall(text):
            begins = [rule for rule in REFUSED.get(name, ()) if line.startswith(rule)]
            assert len(begins) == 1, f"{name}: {line}"


def test_each_refused_answer_is_about_a_rule():
    for name, rule in ANSWERS:
        assert rule in " ".join(STATEMENTS[name].split()), f"{name}: {rule}"


def refused(name, rule):
    """The answer that breaks a rule, and what is to be seen of it."""
    entry = REFUSED[name][rule]
    if "change" in entry:
        found = with_change(name, f"changed: {rule}", entry["change"].strip("\n").splitlines())
    else:
        [found] = [m for m in misconceptions_of(name) if m.name == entry["misconception"]]
    return found.answer(question(name).answer), entry


def known(asked, inputs):
    """The question with its truth for these inputs, which takes as long as an answer."""
    truth = asked.right(inputs)
    return replace(asked, expect=lambda **_: truth)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_no_draw_lets_a_broken_rule_pass(name):
    answers = {rule: refused(name, rule) for rule in REFUSED[name]}
    draws, cases = OF_CASES.get(name, (DRAWS, 1))
    wrong, passed = Counter(), []
    for seed in draws:
        inputs = question(name).inputs(seed)
        asked = known(question(name), inputs)
        for rule, (answer, entry) in answers.items():
            try:
                findings = asked.findings(asked.observe(answer, inputs), inputs)
            except Exception as error:
                assert re.search(entry["raises"], str(error)), error
                continue
            found = [finding.what for finding in findings if not finding.passed]
            found = [what for what in found if entry["wrong"] in what]
            wrong[rule] += len(found)
            passed += [] if found else [(rule, seed)]
    assert not passed
    if cases > 1:
        assert all((1 - wrong[rule] / (cases * len(draws))) ** cases < 0.01 for rule in answers)
