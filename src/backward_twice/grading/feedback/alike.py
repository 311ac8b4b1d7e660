"""Answers that are more alike than the exercise makes them.

Two answers are compared as Python's tokens: names are all one, comments and layout are nothing, so
a copy with other names is still a copy.  RapidFuzz measures how many tokens they share in order.
What stands near the solution or the code that the exercise begins with is left out: there the
exercise has led everybody.  Nothing of this says who copied, or whether anybody did.
"""

from __future__ import annotations

import io
import keyword
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rapidfuzz import process
from rapidfuzz.distance import Indel

ALIKE = 0.9
"""From what share of tokens in common on two answers are shown."""
_LED = 0.9
_SHORTEST = 30  # tokens
_MOST_ANSWERS = 2_000
_IGNORED = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENDMARKER, tokenize.ENCODING, tokenize.ERRORTOKEN),
}


@dataclass(frozen=True)
class Pair:
    """Two students whose answers share this part of their tokens, 0 to 1."""

    one: str
    other: str
    share: float


def tokens(source: str) -> list[str]:
    """A source's tokens, with all names but attributes and keywords the same.

    >>> tokens("def f(x):  # twice\\n    return 2 * x.sin()")
    ['def', 'name', '(', 'name', ')', ':', 'return', '0', '*', 'name', '.', 'sin', '(', ')']
    """
    found: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in _IGNORED:
                continue
            if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
                attribute = found and found[-1] == "."
                found.append(token.string if attribute else "name")
            elif token.type == tokenize.NUMBER:
                found.append("0")
            elif token.type == tokenize.STRING:
                found.append("''")
            else:
                found.append(token.string)
    except (tokenize.TokenError, SyntaxError):  # what was read until there counts
        pass
    return found


def alike(answers: Mapping[str, str], led: Sequence[str]) -> list[Pair]:
    """The pairs of students whose answers are alike, those most alike first.

    Args:
        answers: each student's answer to one question.
        led: the solution, and what the exercise begins with.
    """
    shown = [tokens(source) for source in led]
    read = {student: tokens(source) for student, source in answers.items()}
    students = [
        student
        for student, found in read.items()
        if len(found) >= _SHORTEST
        and all(Indel.normalized_similarity(found, each) < _LED for each in shown)
    ][:_MOST_ANSWERS]
    sequences = [read[student] for student in students]
    shares = process.cdist(
        sequences, sequences, scorer=Indel.normalized_similarity, score_cutoff=ALIKE
    )
    pairs = [
        Pair(students[i], students[k], float(shares[i][k]))
        for i in range(len(students))
        for k in range(i + 1, len(students))
        if shares[i][k] >= ALIKE
    ]
    return sorted(pairs, key=lambda pair: -pair.share)
