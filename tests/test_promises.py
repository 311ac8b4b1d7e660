"""Each promise to teachers has its code and its tests, and all of them are there."""

import ast
import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINES = (ROOT / "book" / "promises.md").read_text(encoding="utf-8").splitlines()
TABLES = LINES.count("| promise | kept by | attacked by |")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in LINES
    if line.startswith("|") and "`" in line
]
NAME = re.compile(r"`([\w.]+)`")


def found(name):
    """What a dotted name below the grading package stands for, or after two dots beside it."""
    below = "backward_twice" if name.startswith("..") else "backward_twice.grading"
    parts = f"{below}.{name.removeprefix('..')}".split(".")
    for length in range(len(parts) - 1, 1, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            value = getattr(value, attribute)
        return value
    raise AssertionError(name)


def names_in(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_what_keeps_and_what_attacks_a_promise_is_there(subtests):
    for promise, kept, attacked in ROWS:
        with subtests.test(promise=promise):
            assert NAME.findall(kept) and NAME.findall(attacked)
            for name in NAME.findall(kept):
                assert found(name), name
            for name in NAME.findall(attacked):
                file, _, test = name.partition(".")
                assert test in names_in(ROOT / "tests" / f"{file}.py"), name


def test_there_are_promises():
    assert len(ROWS) > 40
    assert len([line for line in LINES if line.startswith("| ")]) == len(ROWS) + TABLES
