"""The smallest case that is wrong, line by line: what a learner sees of it on the page."""

import importlib
import pkgutil

import pytest
from test_grading import CHECKOUT, MASTER, SECRET, job, ran

from backward_twice import checks
from backward_twice.checks import Task, question
from backward_twice.checks.plain import dumps, loads
from backward_twice.grading.feedback.student_page import page
from backward_twice.grading.judging import grader
from backward_twice.grading.judging.draws import DRAWS
from backward_twice.grading.judging.master import Answers, read_master
from backward_twice.grading.judging.played import MOST_LINES, play_program

TWICE = """x = torch.ones(2, requires_grad=True)
y = x.exp().sum()
y.backward()
y.backward()
print("never")"""


def test_each_line_that_ran_says_what_it_did():
    lines = play_program(TWICE)
    assert [step["line"] for step in lines] == TWICE.splitlines()[:4]
    assert [step["held"] for step in lines] == [0, 8, 0, 0]
    first, makes, frees, raises = (step["did"] for step in lines)
    assert first == "makes leaf x"
    assert makes == "makes SumBackward0, ExpBackward0"
    assert frees == "frees the tensors saved by ExpBackward0; x.grad is [2.72, 2.72]"
    assert raises.startswith("raises RuntimeError in ExpBackward0: Trying to backward through")


def test_a_change_in_place_and_a_gradient_that_goes():
    program = "x = torch.ones(1, requires_grad=True)\ny = x.exp()\ny.add_(1)\nx.grad = y.detach()"
    changes, there, gone = (step["did"] for step in play_program(f"{program}\nx.grad = None")[2:])
    assert changes == "makes AddBackward0; changes in place the tensors saved by ExpBackward0"
    assert there == "x.grad is [3.72]"
    assert gone == "x.grad is None"


def test_a_loop_of_many_lines_is_not_played():
    assert play_program(f"for _ in range({MOST_LINES}):\n    pass") == []
    assert play_program("") == []


PROGRAMS = [
    f"{found.name}.{name}"
    for found in pkgutil.iter_modules(checks.__path__)
    for name, asked in vars(importlib.import_module(f"{checks.__name__}.{found.name}")).items()
    if isinstance(asked, Task) and asked.program is not None
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_questions_case_can_be_played(name):
    asked = question(name)
    played_once = 0
    for seed in range(5):
        inputs = asked.inputs(seed)
        observed = "{}" if name != "shared_trunk.retain_flags" else flags(asked, inputs)
        case = asked.smallest_case(asked.findings(observed, inputs), observed, inputs)
        assert case
        lines = play_program(case)
        played_once += bool(lines)
        source = {line.strip() for line in case.splitlines()}
        assert {step["line"].strip() for step in lines} <= source
    assert played_once


def flags(asked, inputs):
    """What an answer gives that retains nothing."""
    programs = loads(inputs)["programs"]
    lost = {f"program {n}": [False] * len(p["calls"]) for n, p in enumerate(programs, 1)}
    return dumps(lost)


def test_the_page_shows_it_and_runs_nothing():
    name = "which_need_saved"
    master = read_master(CHECKOUT / "solutions" / name / f"{name}.ipynb")
    answers = {answer.id: ("pass",) for answer in master.answers}
    asked = grader.drawn(grader.job("ada", master, Answers(answers, {}, ()), SECRET, {}))
    result = grader.judged(asked, ran(asked, bytes_held={"observed": ["{}"] * DRAWS}))
    [found] = [each for each in result["questions"] if each["id"] == "bytes_held"]
    assert found["played"][0]["line"] == "from gradtrace import snapshot"
    text = page(result, master, [])
    assert "The same, line by line" in text and "makes " in text
    assert "<script" not in text


def test_what_is_right_has_no_case():
    asked = job()
    result = grader.judged(asked, ran(asked))
    assert all(found["played"] == [] for found in result["questions"])
    assert "The same, line by line" not in page(result, MASTER, [])
