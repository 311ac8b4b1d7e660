"""The judge of ``make wild`` sees each kind of difference; no library is needed for that."""

import ast
from dataclasses import replace

import pytest
import run

DRIVERS = [path for path in run.DRIVERS.glob("*.py") if path.stem != "trial"]
PLAIN = run.Outcome(
    0, "loss 1\nparameters ab\n", "a warning\n", {"out": b"1"}, [], {"seconds": 2.0}
)


def judged(watched: run.Outcome, plain: run.Outcome = PLAIN) -> list[str]:
    return run.judge([{"plain": plain, "watched": watched}])


def test_the_same_outcome_has_no_problem():
    assert judged(replace(PLAIN, stderr="a warning\n100%|###| 5/5 [00:01, 4.21it/s]\n")) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"code": 1}, "exit code 0 → 1"),
        ({"code": None}, "exit code 0 → None"),
        ({"stdout": "loss 1\nparameters cd\n"}, "stdout: +parameters cd"),
        ({"stderr": ""}, "stderr: -a warning"),
        ({"files": {"out": b"1", "more": b""}}, "files: more"),
        ({"files": {"out": b"2"}}, "files: out"),
        ({"findings": [{"cause": "graph_grows"}]}, "false alarm"),
    ],
)
def test_each_difference_is_seen(change, word):
    assert any(word in problem for problem in judged(replace(PLAIN, **change)))


def test_a_driver_that_fails_by_itself_is_wrong():
    failed = replace(PLAIN, code=1, stderr="ValueError: no\n")
    assert judged(failed, plain=failed) == ["fails by itself: ValueError: no"]


def test_plain_runs_that_differ_are_seen():
    rounds = [{"plain": PLAIN}, {"plain": replace(PLAIN, stdout="loss 2\n")}]
    assert any("plain: stdout" in problem for problem in run.judge(rounds))


def test_costs_are_ratios_of_medians():
    slow = [{"plain": PLAIN, "strict": replace(PLAIN, measures={"seconds": s})} for s in (3, 5, 90)]
    assert run.ratio(slow, "strict", "seconds") == "2.50"
    assert (
        run.ratio([{"plain": PLAIN, "strict": replace(PLAIN, measures={})}], "strict", "seconds")
        == "–"
    )


def test_a_driver_says_what_it_needs_and_is_measured(subtests):
    for driver in DRIVERS:
        with subtests.test(driver=driver.stem):
            packages, alone = run.needed(driver)
            assert packages or alone
            tree = ast.parse(driver.read_text(encoding="utf-8"))
            assert ast.get_docstring(tree)
            calls = [
                node.func.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "trial"
            ]
            assert calls.count("begin") == calls.count("training") == calls.count("end") == 1
