"""The stored solutions, with which every answer is compared, give what the formulas give."""

import pytest
from formulas import FORMULAS
from test_exercises import QUESTIONS, SEEDS
from test_explanations import WITH_PROGRAM

from backward_twice.checks import compare, question
from backward_twice.checks.plain import dumps, loads


def test_each_solution_that_is_the_truth_is_proved():
    """By a formula, or by the programs that ``test_explanations.py`` runs."""
    proved = FORMULAS.keys() | {f"{exercise}.{name}" for exercise, name in WITH_PROGRAM}
    asked = {f"{exercise}.{name}" for exercise, name in QUESTIONS}
    assert {name for name in asked if question(name).expect is None} <= proved


@pytest.mark.parametrize("name", FORMULAS)
def test_the_solution_gives_what_the_formula_gives(name):
    asked = question(name)
    for seed in (0, 1, *SEEDS):
        inputs = asked.inputs(seed)
        right = asked.right(inputs)
        expected = dict.fromkeys(right, True) | loads(dumps(FORMULAS[name](**loads(inputs))))
        assert expected.keys() == right.keys()
        wrong = [finding for finding in compare(expected, right) if not finding.passed]
        assert not wrong, f"seed {seed}: {wrong}"
