"""No small fault in a right answer has points: every mutant of every stored solution is graded.

There were 1,158 of 45 answers when this was written; all take less than a minute of a processor.

What passes all the same is listed with the reason in ``equivalent_mutants.toml``: those mutants are
other programs for the same answer.
"""

import ast
import contextlib
import difflib
import io
import signal
import tomllib
from pathlib import Path

import pytest
import torch
from mutants import mutants
from test_exercises import SOLUTIONS, answer_id, cells, passes, role

from backward_twice.checks import question

SEEDS = (200, 201)  # as many draws as the grader takes
SECONDS = 10  # of processor time, after which a mutant loops for ever
LISTED = tomllib.loads(Path(__file__).with_name("equivalent_mutants.toml").read_text("utf-8"))
REASONS = {change: each["why"] for each in LISTED["equivalent"] for change in each["changes"]}


class Endless(BaseException):
    """A mutant's loop does not end; no answer catches this."""


def ended(*_):
    raise Endless


@pytest.fixture
def bounded():
    """A function that ends in :class:`Endless` what takes more processor time than is allowed."""
    before = signal.signal(signal.SIGPROF, ended)
    yield lambda: signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


def survives(source, given, exercise, name):
    """Whether an answer with this source has the question's points."""
    namespace = dict(given)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            exec(source, namespace)
            answer = namespace[question(f"{exercise}.{name}").answer]
            return all(passes(answer, exercise, name, seed) for seed in SEEDS)
    except (Exception, Endless):
        return False


def difference(source, mutant):
    """What a mutant changes, on one line: the lines that go, and those that come."""
    lines = difflib.ndiff(source.splitlines(), mutant.splitlines())
    return " ".join(" ".join(line.split()) for line in lines if line[0] in "+-")


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")
def test_a_small_fault_has_no_points(path, bounded):
    given, survivors, tried = {"__name__": "__main__", "get_ipython": lambda: None}, set(), 0
    for cell in cells(path):
        tags = cell.metadata.get("tags", ())
        if role(cell, "grade") or cell.id == "bootstrap" or "raises-exception" in tags:
            continue
        lines = [line for line in cell.source.splitlines() if not line.startswith(("%", "!"))]
        source = "\n".join(lines)
        if role(cell, "solution"):
            [name] = [
                each.metadata.nbgrader.grade_id
                for each in cells(path)
                if role(each, "grade")
                and answer_id(each.metadata.nbgrader.grade_id) == cell.metadata.nbgrader.grade_id
            ]
            for mutant in mutants(source):
                tried += 1
                bounded()
                if survives(mutant, given, path.stem, name):
                    changed = difference(ast.unparse(ast.parse(source)), mutant)
                    survivors.add(f"{path.stem}.{name}: {changed}")
        with contextlib.redirect_stdout(io.StringIO()):
            exec(source, given)
        torch.manual_seed(0)
    assert tried > 2
    listed = {change for change in REASONS if change.startswith(f"{path.stem}.")}
    # They have points: a check or a draw does not look at what they change.
    assert not survivors - listed, "\n".join(sorted(survivors - listed))
    # They are listed, and have no points (any more).
    assert not listed - survivors, "\n".join(sorted(listed - survivors))


def test_every_reason_is_one():
    assert all(len(why.split()) > 5 and why.endswith(".") for why in REASONS.values())
