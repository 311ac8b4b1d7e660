"""The page of promises names code and tests that are there."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "book" / "promises.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and "`" in line
]
NAME = re.compile(r"`([\w.]+)`")


def names_in(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:40] for row in ROWS])
def test_what_keeps_and_what_attacks_a_promise_is_there(row):
    _, kept, attacked = row
    assert NAME.findall(kept) and NAME.findall(attacked)
    for name in NAME.findall(kept):
        found = importlib.import_module("backward_twice.grading")
        if name.startswith(".."):
            found, name = importlib.import_module("backward_twice"), name[2:]
        for part in name.split("."):
            if not hasattr(found, part):
                importlib.import_module(f"{found.__name__}.{part}")
            found = getattr(found, part)
    for name in NAME.findall(attacked):
        file, _, test = name.partition(".")
        assert test in names_in(ROOT / "tests" / f"{file}.py"), name


def test_there_are_promises():
    assert len(ROWS) > 20
