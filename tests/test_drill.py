"""The drill's stored programs are those that the generator draws, and go wrong as they say."""

import json

import pytest
import torch
from test_submissions import CHECKOUT

from backward_twice import drill

STORED = json.loads((CHECKOUT / drill.PATH).read_text(encoding="utf-8"))


def raised_at(lines):
    """The number of the line that raises the course's error; None if nothing does."""
    names = {"torch": torch}
    for number, line in enumerate(lines, 1):
        try:
            exec(line, names)
        except RuntimeError as error:
            assert "backward through the graph a second time" in str(error)
            return number
    return None


def test_they_are_what_is_drawn():
    assert drill.drawn() == STORED, "run `python -m backward_twice.drill`"


@pytest.mark.parametrize("program", STORED, ids=range(1, len(STORED) + 1))
def test_one_line_alone_is_to_blame(program):
    lines = program["lines"]
    assert raised_at(lines) == len(lines)
    to_blame = []
    for number, line in enumerate(lines[:-1], 1):
        kept = [*lines]
        kept[number - 1] = line.replace(".backward()", ".backward(retain_graph=True)")
        if kept != lines and raised_at(kept) is None:
            to_blame.append(number)
    assert to_blame == [program["freed"]]
