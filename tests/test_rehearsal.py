"""``check`` in a notebook says so when what passes there would not be graded."""

import json
from textwrap import indent

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from test_submissions import CHECKOUT, ONE, TRUNK
from traitlets.config import Config

from backward_twice.checks import check, question

SOLUTION = json.loads((CHECKOUT / "solutions" / "two_losses" / "two_losses.ipynb").read_text())
SOURCES = {cell["id"]: "".join(cell["source"]) for cell in SOLUTION["cells"]}
SET_UP, RIGHT = SOURCES["set-up"], SOURCES[ONE]
WITH_HELPER = RIGHT.replace("optimizer.step()", "step(optimizer)")
HELPER = "def step(optimizer):\n    optimizer.step()"
WRONG = RIGHT.replace("optimizer.step()", "")
CHECK = 'check("two_losses.one_update", one_update)'


@pytest.fixture
def notebook(monkeypatch, capsys):
    """Run cells one after another in a fresh IPython; what the last one printed."""
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=config)

    def run(*cells):
        for cell in cells:
            capsys.readouterr()
            shell.run_cell(cell, store_history=True)
        return capsys.readouterr().out

    run.shell = shell
    dtype = torch.get_default_dtype()
    yield run
    torch.set_default_dtype(dtype)
    InteractiveShell.clear_instance()


NOT = "However, the grader could not use this answer:"
ALL_RIGHT = "two_losses.one_update: all 4 properties right"


@pytest.mark.parametrize(
    "cells",
    [
        [SET_UP, RIGHT],
        [SET_UP, HELPER, WITH_HELPER],
        [SET_UP, WITH_HELPER, HELPER],
        [SET_UP + "\nfrom torch.nn import functional as F", RIGHT.replace("torch.", "F.")],
        [SET_UP, "from math import *", RIGHT + "\nsqrt(2)"],
        [SET_UP, "lr = {}\nlr['a'] = 1", RIGHT + "\nlr['a']"],
        [SET_UP, "torch.set_default_dtype(torch.float64)", RIGHT],
        [SET_UP, "%timeit -n1 -r1 1\n" + RIGHT + f"\n{CHECK}\nhere = 1"],
        [SET_UP, "def step(optimizer: Nothing:", HELPER, WITH_HELPER],
        [SET_UP, "import nothing_at_all as step", HELPER, WITH_HELPER],
        [SET_UP, WRONG, f"%%time\n{RIGHT}"],
        [SET_UP, WRONG, "if torch:\n" + indent(RIGHT, "    ")],
        [SET_UP, "if torch:\n" + indent(HELPER, "    "), WITH_HELPER],
        [SET_UP, "try:\n    from math import tau\nexcept OSError: pass", RIGHT + "\ntau"],
        # A form feed, as some put between parts, ends no line.
        [SET_UP, "import math\n\f\n" + HELPER.replace("\n", "\n    now = 1\n"), WITH_HELPER],
    ],
)
def test_what_would_be_graded_passes_without_a_word(notebook, cells):
    said = notebook(*cells, CHECK)
    assert ALL_RIGHT in said and NOT not in said, said


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ([SET_UP, "globals()['step'] = lambda o: o.step()", WITH_HELPER], "'step' is not defined"),
        (
            [SET_UP, "table = []", "table.append(1)", RIGHT + "\n    table[0]"],
            "IndexError: list index out of range",
        ),
        (
            [SET_UP, RIGHT, "mine = one_update", "def one_update(*given): pass"],
            "the grader uses one_update",
        ),
    ],
)
def test_what_would_be_lost_is_said(notebook, cells, why):
    check = CHECK.replace(", one", ", mine" if "the grader uses" in why else ", one")
    check = check.replace("mine_update", "mine")
    said = notebook(*cells, check)
    assert ALL_RIGHT in said and NOT in said and why in said, said


def test_an_answer_in_the_test_cell_is_said(notebook):
    notebook(SET_UP, "def one_update(*given):\n    raise NotImplementedError()")
    assert "into the answer cell above" in notebook(f"{RIGHT}\n{CHECK}")
    # Where the front end tells which cell runs, the answer cell may check itself.
    notebook.shell.get_parent = lambda: {"metadata": {"cellId": ONE}}
    assert NOT not in notebook(f"{RIGHT}\n{CHECK}")
    notebook.shell.get_parent = lambda: {"metadata": {"cellId": "one-update"}}
    assert NOT in notebook(f"{RIGHT}\n{CHECK}")


def test_the_rehearsal_leaves_nothing_behind(notebook):
    answer = "print('defined')\n" + RIGHT + "\ntorch.manual_seed(7)\nnew = 1"
    notebook(SET_UP, answer, "torch.manual_seed(1)\nnew = 2")
    said = notebook(f"{CHECK}\nprint(torch.rand(1).item(), new)")
    torch.manual_seed(1)
    asked = question("two_losses.one_update")
    for seed in (0, 1):  # what the check alone takes of the random numbers
        asked.observe(notebook.shell.user_ns["one_update"], asked.inputs(seed))
    assert "defined" not in said and said.splitlines()[-1] == f"{torch.rand(1).item()} 2"


def test_an_answer_cell_that_checks_another_answer(notebook):
    trunk = SOURCES[TRUNK]
    said = notebook(
        SET_UP, RIGHT, f"{CHECK}\n{trunk}", CHECK.replace("one_update", "trunk_gradients")
    )
    assert "all 7 properties right" in said and NOT not in said


def test_outside_a_notebook_there_is_nothing_to_say(capsys):
    names = {}
    exec(SET_UP.replace("%xmode Minimal", ""), names)
    exec(RIGHT, names)
    check("two_losses.one_update", names["one_update"])
    assert NOT not in capsys.readouterr().out
