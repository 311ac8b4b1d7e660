"""The whole of it: run, edit, run each candidate, judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gradtrace.repair.comparison import deterministic, same_gradients
from gradtrace.repair.judge import (
    OPEN,
    PROVEN,
    UNPROVEN,
    Judge,
    Verdict,
)
from gradtrace.repair.rule import Candidate
from gradtrace.repair.rules import candidates
from gradtrace.repair.run.observations import Limits, Run
from gradtrace.repair.run.worker import Worker


@dataclass
class Proof:
    """What came of it.

    ``sound`` are the repairs that hold, the best first, one for each way to train: where there are
    more than one, the reader decides.  ``same`` are those that train exactly as one of these does;
    what is in neither, and not rejected, answers the same question as one of these in another way.
    """

    original: Run
    printed: str
    repeats: bool = True
    listed: list[Candidate] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    sound: list[Verdict] = field(default_factory=list)
    same: list[Verdict] = field(default_factory=list)

    @property
    def fails(self) -> bool:
        """Whether there is anything to repair: an error, or what a strict watch warned about."""
        return self.original.status == "raised" or bool(self.original.findings)


def prove(
    worker: Worker,
    limits: Limits,
    say: Callable[[str], None] = lambda text: None,
    count: Callable[[int, int], None] = lambda number, count: None,
    only_list: bool = False,
) -> Proof:
    """Find the repairs of the worker's program that hold."""
    original, printed = worker.run({}, limits._replace(failing=None))
    proof = Proof(original, printed)
    calls = f"{len(original.calls)} backward calls, {original.seconds:.1f} s"
    error = (original.error or "").partition("\n")[0] or "no error"
    say(f"as it is: {error if len(error) < 90 else error[:87] + '…'} ({calls})")
    if original.explanation:
        say(original.explanation.removeprefix("gradtrace: "))
    if not proof.fails:
        return proof
    proof.listed = candidates(original, say)
    if only_list or not proof.listed:
        return proof
    if original.touched:
        say(f"it wrote or called: {', '.join(original.touched)}")
    say(f"{len(proof.listed)} candidates, each in a process of its own")
    again, _ = worker.run({}, limits._replace(failing=None))
    proof.repeats = deterministic(original, again)
    judge = Judge(original)
    # A slower machine must not reject what is right: several times what the program itself took.
    seconds = min(limits.seconds, 30 + 5 * original.seconds)
    for number, candidate in enumerate(proof.listed, 1):
        count(number, len(proof.listed))
        run, _ = worker.run(candidate.edits, Limits(judge.failing, limits.beyond, seconds))
        proof.verdicts.append(judge.verdict(candidate, run))
    judge.together(proof.verdicts)
    if not proof.repeats:
        for one in proof.verdicts:
            if one.run.status != "raised":
                one.status = UNPROVEN
                one.reasons = [
                    "runs; but two runs of the program itself differ: nothing to compare"
                ]
    _classes(proof, judge)
    return proof


# Kinds of which one that holds is enough: they differ in where they do the same.
_ALIKE = ({"forward_again"}, {"detach_state", "detach_stored"}, {"reset_state"}, {"clone_written"})


def _classes(proof: Proof, judge: Judge) -> None:
    """One repair for each way to train: proven ones first, then those that leave a question.

    Where it is not known what is to be trained, the order of the candidates says more.
    """
    holding = [one for one in proof.verdicts if one.status in (PROVEN, OPEN)]
    if judge.trained is not None:
        holding.sort(key=lambda one: one.status == OPEN)
    for one in holding:
        if any(same_gradients(one.run, other.run, judge.trained) for other in proof.sound):
            proof.same.append(one)
        elif not any(_answers_the_same(one, other) for other in proof.sound):
            proof.sound.append(one)


def _answers_the_same(one: Verdict, other: Verdict) -> bool:
    kinds = {one.candidate.repair.name, other.candidate.repair.name}
    if one.question or other.question:
        return one.question == other.question
    return any(kinds <= alike for alike in _ALIKE)
