"""Every numbered rule of an exercise has an answer that breaks it, and that no draw lets pass.

The answers stand in ``refused_answers.toml``.  A new rule without one fails here.
"""

import re
import tomllib
from pathlib import Path

import nbformat
import pytest
from test_exercises import SOLUTIONS, role

from backward_twice.checks import question
from backward_twice.checks.recognition import wrong_answer
from backward_twice.misconceptions import misconceptions, with_change

REFUSED = tomllib.loads(Path(__file__).with_name("refused_answers.toml").read_text("utf-8"))
HINTS = re.compile(r"<details>.*?</details>", re.S)
RULE = re.compile(r"^\d+\. (.+)", re.M)
DRAWS = range(1000, 1030)


def rules():
    """Each numbered rule: the question's name, and the rule's first line."""
    for path in SOLUTIONS:
        lines = []
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                lines += RULE.findall(HINTS.sub("", cell.source))
            elif role(cell, "grade"):
                yield from ((f"{path.stem}.{cell.metadata.nbgrader.grade_id}", at) for at in lines)
                lines = []


RULES = list(rules())
ANSWERS = [(name, rule) for name, answers in REFUSED.items() for rule in answers]


def test_each_rule_has_a_refused_answer():
    for name, line in RULES:
        begins = [rule for rule in REFUSED.get(name, ()) if line.startswith(rule)]
        assert len(begins) == 1, f"{name}: {line}"


def test_each_refused_answer_is_about_a_rule():
    for name, rule in ANSWERS:
        assert any(line.startswith(rule) for at, line in RULES if at == name), f"{name}: {rule}"


def refused(name, rule):
    """The answer that breaks a rule, and what is to be seen of it."""
    entry = REFUSED[name][rule]
    if "change" in entry:
        found = with_change(name, f"changed: {rule}", entry["change"].strip("\n").splitlines())
    else:
        [found] = [m for m in misconceptions(name) if m.name == entry["misconception"]]
    return wrong_answer(found, question(name).answer), entry


@pytest.mark.parametrize(
    ("name", "rule"), ANSWERS, ids=[f"{name}: {rule}" for name, rule in ANSWERS]
)
@pytest.mark.filterwarnings("ignore")
def test_no_draw_lets_a_broken_rule_pass(name, rule):
    answer, entry = refused(name, rule)
    asked, passed = question(name), []
    for seed in DRAWS:
        inputs = asked.inputs(seed)
        try:
            findings = asked.findings(asked.observe(answer, inputs), inputs)
        except Exception as error:
            assert re.search(entry["raises"], str(error)), error
            continue
        wrong = [finding.what for finding in findings if not finding.passed]
        if not any(entry["wrong"] in what for what in wrong):
            passed.append((seed, wrong))
    assert not passed
