"""Each promise to teachers has its code and its test, and both are there."""

import ast
import importlib
import re

import pytest
from test_submissions import CHECKOUT

PROMISES = CHECKOUT / "src" / "backward_twice" / "grading" / "PROMISES.md"
ROWS = re.findall(
    r"^\| (?!promise|---)(.+?) \| `(.+?)` \| `(.+?)` \|$", PROMISES.read_text("utf-8"), re.M
)


def found(name):
    """What a dotted name below the grading package, or from the top, stands for."""
    if not name.startswith("backward_twice."):
        name = f"backward_twice.grading.{name}"
    parts = name.split(".")
    for length in range(len(parts), 1, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            value = getattr(value, attribute)
        return value
    raise AssertionError(name)


def test_there_are_promises():
    assert len(ROWS) >= 30
    lines = [line for line in PROMISES.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert len(lines) == len(ROWS) + 3  # the three headings


@pytest.mark.parametrize(("promise", "code", "test"), ROWS, ids=[row[0] for row in ROWS])
def test_a_promise_has_its_code_and_its_test(promise, code, test):
    assert callable(found(code)), promise
    module, name = test.split(".")
    tree = ast.parse((CHECKOUT / "tests" / f"{module}.py").read_text("utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, promise
