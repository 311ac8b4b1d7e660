"""Wrong answers recognised: from which stored misconception the same comes out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from backward_twice import misconceptions
from backward_twice.checks.comparison import alike
from backward_twice.checks.plain import Plain, loads
from backward_twice.checks.question import Question

_STORED = Path(misconceptions.__file__).parent
_IMPORTS = """
import math
import torch
from torch import nn
from torch.autograd import Function
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from gradtrace import explain, snapshot, watch
"""
_MOST = 3


@dataclass(frozen=True)
class Misconception:
    """A belief about a question: its words, and the code of the answer that follows from it."""

    said: str
    code: tuple[CodeType, ...]

    def answer(self, name: str) -> Any:
        """What the answer cell defines under this name."""
        namespace: dict[str, Any] = {"__name__": "misconception"}
        for code in self.code:
            exec(code, namespace)
        return namespace[name]


@cache
def known(name: str) -> tuple[Misconception, ...]:
    """What is believed about the question ``"<exercise>.<question>"``, in the order of names."""
    exercise, _, asked = name.partition(".")
    given = _STORED / exercise / "given.py"
    before = [_IMPORTS, *([given.read_text("utf-8")] if given.exists() else [])]
    found = []
    for path in sorted((_STORED / exercise / asked).glob("*.py")):
        source = path.read_text(encoding="utf-8")
        code = tuple(compile(each, "<string>", "exec") for each in (*before, source))
        found.append(Misconception(source.partition("\n")[0].removeprefix("# "), code))
    return tuple(found)


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
    try:
        draws = [(loads(text), drawn) for text, drawn in zip(observed, inputs, strict=True)]
    except ValueError:
        return []
    with warnings.catch_warnings(action="ignore"):
        found = [b.said for b in known(name) if all(_same(b, asked, *draw) for draw in draws)]
    return found if len(found) <= _MOST else []


def _same(belief: Misconception, asked: Question, observed: Plain, inputs: str) -> bool:
    try:
        return alike(loads(asked.observe(belief.answer(asked.answer), inputs)), observed)
    except Exception:  # most beliefs end in an error, and so in nothing to compare
        return False
