"""What learners believe and what it computes: a wrong answer for each, and the words that say it.

``<exercise>/<question>/<belief>.py`` is an answer cell as somebody with this belief writes it; its
first line says the belief, quoted where it is a saying, and what becomes of it.  No check may give
it a point (``tests/test_exercises.py``), and an answer from which the same comes out is told so.
``<exercise>/given.py`` has what the exercise's own cells give its answers.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backward_twice.checks.plain import loads
from backward_twice.checks.question import Finding, Question, compare

_HERE = Path(__file__).parent
_IMPORTS = """
import math
import torch
from torch import nn
from torch.autograd import Function
from torch.nn import functional as F
from gradtrace import explain, snapshot, watch
"""
_MOST = 3


@dataclass(frozen=True)
class Misconception:
    """A belief about a question: its words, and the source of the answer that follows from it."""

    said: str
    source: str
    given: str

    def answer(self, name: str) -> Any:
        """What the answer cell defines under this name."""
        namespace: dict[str, Any] = {"__name__": "misconception"}
        for source in (_IMPORTS, self.given, self.source):
            exec(source, namespace)
        return namespace[name]


def known(name: str) -> Iterator[Misconception]:
    """What is believed about the question ``"<exercise>.<question>"``, in the order of names."""
    exercise, _, asked = name.partition(".")
    given = _HERE / exercise / "given.py"
    for path in sorted((_HERE / exercise / asked).glob("*.py")):
        source = path.read_text(encoding="utf-8")
        said = source.partition("\n")[0].removeprefix("# ")
        yield Misconception(said, source, given.read_text("utf-8") if given.exists() else "")


def recognised(
    name: str, asked: Question, observed: Sequence[str], inputs: Sequence[str]
) -> list[str]:
    """What is believed by those from whose answers the same comes out, in words.

    Args:
        name: the question's name, ``"<exercise>.<question>"``.
        observed: what came out of an answer, the text of plain data for each of ``inputs``.

    Returns:
        nothing where no stored belief fits, or so many that none of them says anything.
    """
    draws = list(zip(observed, inputs, strict=True))
    with warnings.catch_warnings(action="ignore"):
        found = [b.said for b in known(name) if all(_same(b, asked, *draw) for draw in draws)]
    return found if len(found) <= _MOST else []


def _same(belief: Misconception, asked: Question, observed: str, inputs: str) -> bool:
    try:
        came_out = loads(asked.observe(belief.answer(asked.answer), inputs))
        findings: list[Finding] = compare(came_out, loads(observed))
    except Exception:  # most beliefs end in an error, and so in nothing to compare
        return False
    return bool(findings) and all(finding.passed for finding in findings)
