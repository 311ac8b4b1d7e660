"""What is said of a proof: the diff of the best repair, why it holds, why the others do not."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator
from typing import Any

from gradtrace.repair.edits import Source
from gradtrace.repair.judge import OPEN, UNPROVEN, Verdict
from gradtrace.repair.proof import Proof
from gradtrace.repair.repairs import RETAIN_GRAPH
from gradtrace.repair.rule import Candidate

SCHEMA = 1
_ALIKE = 2  # rejected candidates of one kind that raise are one line from so many on


def diff(candidate: Candidate) -> str:
    """The edit as a unified diff."""
    parts: list[str] = []
    for path, text in candidate.edits.items():
        name = os.path.relpath(path)
        before = Source(path).text.splitlines(keepends=True)
        after = text.splitlines(keepends=True)
        for line in difflib.unified_diff(before, after, name, name):
            parts.append(line if line.endswith("\n") else line + "\n")
    return "".join(parts)


class _Diff(str):
    """A diff among lines of prose."""


def text(
    proof: Proof,
    diff: Callable[[Candidate], str] = diff,
    rename: Callable[[str], str] = str,
) -> str:
    """For a person.

    Args:
        diff: draws the edit of a candidate.
        rename: rewrites the places in a line of prose, such as the lines of a notebook's cells.
    """
    lines = _lines(proof, diff)
    return "\n".join(line if isinstance(line, _Diff) else rename(line) for line in lines)


def outcome(proof: Proof) -> str:
    """``"healthy"``, ``"proven"``, ``"question"`` (the reader decides) or ``"unproven"``."""
    if not proof.fails:
        return "unproven" if proof.original.status == "time" else "healthy"
    if not proof.sound:
        return "unproven"
    alone = len(proof.sound) == 1 and proof.sound[0].status != OPEN
    return "proven" if alone else "question"


def _lines(proof: Proof, diff: Callable[[Candidate], str]) -> Iterator[str]:
    found = outcome(proof)
    if found == "healthy":
        yield "There is nothing to repair: no error, and a strict watch has nothing to say."
        return
    if found == "unproven":
        if not proof.fails:
            yield "It has not failed in the time that one run has: --seconds gives it more."
            return
        yield "No repair could be proven."
        if not proof.repeats:
            yield (
                "The program does something else each time it runs: there is nothing to compare. "
                "Seed what it draws from."
            )
    elif found == "question":
        count = len(proof.sound)
        if count == 1:
            yield "One repair holds; whether it is right depends on what is meant:"
        else:
            yield f"{count} repairs hold; which is right depends on what is meant:"
    for number, one in enumerate(proof.sound, 1):
        if found == "question":
            yield ""
        yield from _holding(number, one, found, diff)
    for one in proof.same:
        if one.candidate.repair == RETAIN_GRAPH:
            kept = max((call.held for call in one.run.calls), default=0)
            title = one.candidate.title
            yield f"  - {title}: the same gradients here, but it keeps {kept} bytes longer"
    rejected = [one for one in proof.verdicts if one.status not in ("proven", OPEN)]
    if rejected:
        yield ""
        yield "Rejected:"
        yield from _rejected(rejected)


def _holding(
    number: int, one: Verdict, found: str, diff: Callable[[Candidate], str]
) -> Iterator[str]:
    if found == "proven":
        yield f"Proven: {one.candidate.title}"
    else:
        yield f"{number}. {one.candidate.title}"
        if one.question:
            yield f"   right if you say yes: {one.question}"
        else:
            yield f"   right if {one.candidate.repair.when}"
    yield ""
    yield _Diff(diff(one.candidate))
    for line in one.evidence:
        yield f"  - {line}"


def _rejected(verdicts: list[Verdict]) -> Iterator[str]:
    """Those that ran, one by one; of those that raise, each kind once."""
    raising: dict[tuple[str, str], list[Verdict]] = {}
    for one in verdicts:
        if one.run.status == "raised":
            raising.setdefault((one.candidate.repair.name, one.reasons[0]), []).append(one)
        else:
            mark = " (unproven)" if one.status == UNPROVEN else ""
            yield f"  {one.candidate.title}: {one.reasons[0]}{mark}"
    for (_, reason), alike in raising.items():
        more = f" (and {len(alike) - 1} like it)" if len(alike) >= _ALIKE else ""
        yield f"  {alike[0].candidate.title}{more}: {reason}"


def listing(proof: Proof) -> str:
    """The candidates, none of which was run."""
    if not proof.fails:
        return text(proof)
    lines = [f"{len(proof.listed)} candidates, none of them run:"]
    lines += [f"  {one.repair.name}: {one.title}" for one in proof.listed]
    return "\n".join(lines)


def data(proof: Proof) -> dict[str, Any]:
    """For a program."""
    return {
        "schema": SCHEMA,
        "torch": proof.original.torch,
        "outcome": outcome(proof) if proof.verdicts or not proof.fails else "listed",
        "error": proof.original.error,
        "diagnosis": proof.original.diagnosis,
        "repeats": proof.repeats,
        "candidates": [{"repair": c.repair.name, "title": c.title} for c in proof.listed],
        "repairs": [{**_described(one), "diff": diff(one.candidate)} for one in proof.sound],
        "same": [_described(one) for one in proof.same],
        "rejected": [
            _described(one) for one in proof.verdicts if one.status not in ("proven", OPEN)
        ],
    }


def _described(one: Verdict) -> dict[str, Any]:
    return {
        "repair": one.candidate.repair.name,
        "title": one.candidate.title,
        "status": one.status,
        "question": one.question,
        "right_if": one.candidate.repair.when,
        "evidence": one.evidence,
        "reasons": one.reasons,
    }
