"""Answers that are more alike than the exercise makes them.

Two answers are compared as Python's tokens: names are all one, comments and layout are nothing, so
a copy with other names is still a copy.  RapidFuzz measures how many tokens they share in order.
What stands near the solution or the code that the exercise begins with is left out: there the
exercise has led everybody.  Nothing of this says who copied, or whether anybody did.

A student's answer is cut into tokens, and drawn beside another, in a process with limits
(:mod:`backward_twice.grading.intake.limited`).
"""

from __future__ import annotations

import io
import keyword
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import HtmlDiff
from functools import partial

from rapidfuzz import process
from rapidfuzz.distance import Indel

from backward_twice.grading.intake.limited import Limited
from backward_twice.grading.intake.submissions import Rejected

ALIKE = 0.9
"""From what share of tokens in common on two answers are shown."""
_LED = 0.9
_SHORTEST = 30  # tokens
_MOST_ANSWERS = 2_000
_MOST_TOKENS = 2_000
_MOST_LINES = 500
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
    """A source's first tokens, with all names but attributes and keywords the same.

    >>> tokens("def f(x):  # twice\\n    return 2 * x.sin()")
    ['def', 'name', '(', 'name', ')', ':', 'return', '0', '*', 'name', '.', 'sin', '(', ')']
    """
    found: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in _IGNORED:
                continue
            if len(found) == _MOST_TOKENS:
                break
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


def read(answers: Mapping[str, str], limited: Limited) -> tuple[dict[str, list[str]], list[str]]:
    """Each student's answer as tokens, and the students whose answers cannot be read so."""
    found, unread = {}, []
    for student, source in answers.items():
        try:
            found[student] = limited.call(partial(tokens, source))
        except Rejected:
            unread.append(student)
    return found, unread


def alike(answers: Mapping[str, Sequence[str]], led: Sequence[str]) -> list[Pair]:
    """The pairs of students whose answers are alike, those most alike first.

    Args:
        answers: each student's answer to one question, as :func:`tokens`.
        led: the solution, and what the exercise begins with.
    """
    shown = [tokens(source) for source in led]
    students = [
        student
        for student, found in answers.items()
        if len(found) >= _SHORTEST
        and all(Indel.normalized_similarity(found, each) < _LED for each in shown)
    ][:_MOST_ANSWERS]
    sequences = [answers[student] for student in students]
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


@dataclass(frozen=True)
class Group:
    """Students whose answers are alike, each to one of the others at least; the nearest pair."""

    students: tuple[str, ...]
    nearest: Pair


def grouped(pairs: Sequence[Pair]) -> list[Group]:
    """The pairs, those that share a student together: twelve that share one answer are one group.

    Args:
        pairs: those most alike first, and so are the groups.
    """
    of: dict[str, set[str]] = {}
    for pair in pairs:
        if pair.other not in of.get(pair.one, ()):
            joined = {pair.one, pair.other, *of.get(pair.one, ()), *of.get(pair.other, ())}
            of |= dict.fromkeys(joined, joined)
    nearest: dict[int, Pair] = {}
    for pair in pairs:
        nearest.setdefault(id(of[pair.one]), pair)
    return [Group(tuple(sorted(of[pair.one])), pair) for pair in nearest.values()]


def side_by_side(one: str, other: str) -> str:
    """Two sources next to each other, as a table of HTML; what is HTML in them is escaped.

    Raises:
        Rejected: they are too long.
    """
    lines = one.splitlines(), other.splitlines()
    if max(map(len, lines)) > _MOST_LINES:
        raise Rejected(f"more than {_MOST_LINES} lines")
    return HtmlDiff(tabsize=4, wrapcolumn=70).make_table(*lines)
