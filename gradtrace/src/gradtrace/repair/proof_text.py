"""A proof as text and as JSON: the best repair, why it holds, and why the others do not."""

import difflib
import os
from collections.abc import Callable, Iterator
from typing import Any

from gradtrace.repair.edits import Source
from gradtrace.repair.judge import OPEN, PROVEN, UNPROVEN, Judgement
from gradtrace.repair.kinds import RETAIN_GRAPH
from gradtrace.repair.proof import Proof
from gradtrace.repair.rule import Candidate, counted

SCHEMA = 1


def diff(candidate: Candidate) -> str:
    """Return the edit as a unified diff."""
    parts: list[str] = []
    for path, text in candidate.edits.items():
        name = os.path.relpath(path)
        old = Source(path).text.splitlines(keepends=True)
        new = text.splitlines(keepends=True)
        lines = difflib.unified_diff(old, new, name, name)
        parts += (line if line.endswith("\n") else line + "\n" for line in lines)
    return "".join(parts)


def text(
    proof: Proof,
    diff: Callable[[Candidate], str] = diff,
    rename: Callable[[str], str] = str,
) -> str:
    """Render the proof as text for the terminal; ``rename`` rewrites the lines of prose."""
    lines = _lines(proof)
    return "\n".join(diff(x) if isinstance(x, Candidate) else rename(x) for x in lines)


def outcome(proof: Proof) -> str:
    """Return ``"healthy"``, ``"proven"``, ``"question"`` (the reader decides) or ``"unproven"``."""
    if not proof.fails:
        return "unproven" if proof.original.status == "time" else "healthy"
    if not proof.accepted:
        return "unproven"
    is_decided = len(proof.accepted) == 1 and proof.accepted[0].status == PROVEN
    return "proven" if is_decided else "question"


def _lines(proof: Proof) -> Iterator[str | Candidate]:
    """Yield the lines of the text, and a candidate where its diff belongs."""
    result = outcome(proof)
    if result == "healthy":
        calls = counted(proof.original.calls, "backward call")
        yield f"No failure was found: {calls} raised no error, and a strict watch does not warn."
        return
    if proof.is_caught:
        yield "The program catches this error. If it is meant, there is nothing to repair."
    if result == "unproven":
        if not proof.fails:
            yield "The program did not fail within the time of one run: raise --seconds."
            return
        run = proof.original
        if run.status == "raised" and not run.is_explained and run.failing_call > len(run.calls):
            yield f"This is no error of backward(), so nothing can be proven: {run.error_line}"
        else:
            yield "No repair could be proven."
        if not proof.repeats:
            yield "Two runs of the program differ: seed its random numbers, so that runs compare."
    elif result == "question":
        count = len(proof.accepted)
        start = f"{count} repairs hold; which" if count > 1 else "One repair holds; whether it"
        yield f"{start} is right depends on the program's intention:"
    for number, judgement in enumerate(proof.accepted, 1):
        if result == "question":
            yield ""
        yield from _accepted(number, judgement, result)
    for judgement in proof.equivalent:
        if judgement.candidate.repair == RETAIN_GRAPH:
            yield f"  - {judgement.candidate.title}: the same gradients, but more memory"
    rejected = _others(proof)
    if rejected:
        yield ""
        yield "Rejected:"
        yield from _rejected(rejected)


def _others(proof: Proof) -> list[Judgement]:
    """Return the judgements of the candidates that do not hold."""
    return [judgement for judgement in proof.judgements if judgement.status not in (PROVEN, OPEN)]


def _accepted(number: int, judgement: Judgement, result: str) -> Iterator[str | Candidate]:
    candidate = judgement.candidate
    if result == "proven":
        yield f"Proven: {candidate.title}"
    else:
        yield f"{number}. {candidate.title}"
        question = judgement.question and f"the answer is yes: {judgement.question}"
        yield f"   right if {question or candidate.repair.when}"
    yield ""
    yield candidate
    for line in judgement.evidence:
        yield f"  - {line}"


def _rejected(judgements: list[Judgement]) -> Iterator[str]:
    """Yield a line for each rejected candidate, or for all of a kind that raise the same error."""
    raising: dict[tuple[str, str], list[str]] = {}
    for judgement in judgements:
        candidate, reason = judgement.candidate, judgement.reasons[0]
        if judgement.run.status == "raised":
            raising.setdefault((candidate.repair.name, reason), []).append(candidate.title)
        else:
            mark = " (unproven)" if judgement.status == UNPROVEN else ""
            yield f"  {candidate.title}: {reason}{mark}"
    for (_, reason), titles in raising.items():
        count = f" (and {len(titles) - 1} like it)" if len(titles) > 1 else ""
        yield f"  {titles[0]}{count}: {reason}"


def listing(proof: Proof) -> str:
    """Render the list of the candidates, none of which was run."""
    if not proof.fails:
        return text(proof)
    lines = [f"{counted(proof.listed, 'candidate')}, none of which was run:"]
    lines += [f"  {candidate.repair.name}: {candidate.title}" for candidate in proof.listed]
    return "\n".join(lines)


def data(proof: Proof) -> dict[str, Any]:
    """Return the proof as JSON data."""
    return {
        "schema": SCHEMA,
        "torch": proof.original.torch,
        "outcome": "listed" if proof.listed and not proof.judgements else outcome(proof),
        "error": proof.original.error,
        "diagnosis": proof.original.diagnosis,
        "repeats": proof.repeats,
        "candidates": [{"repair": c.repair.name, "title": c.title} for c in proof.listed],
        "repairs": [{**_described(j), "diff": diff(j.candidate)} for j in proof.accepted],
        "same": [_described(judgement) for judgement in proof.equivalent],
        "rejected": [_described(judgement) for judgement in _others(proof)],
    }


def _described(judgement: Judgement) -> dict[str, Any]:
    return {
        "repair": judgement.candidate.repair.name,
        "title": judgement.candidate.title,
        "status": judgement.status,
        "question": judgement.question,
        "right_if": judgement.candidate.repair.when,
        "evidence": judgement.evidence,
        "reasons": judgement.reasons,
    }
