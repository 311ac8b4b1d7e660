"""The whole procedure: run the program, edit it, run each candidate, and judge."""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gradtrace.repair.judge import OPEN, PROVEN, REJECTED, UNPROVEN, Judge, Judgement
from gradtrace.repair.kinds import Repair
from gradtrace.repair.rule import Candidate, counted
from gradtrace.repair.rules import candidates
from gradtrace.repair.run.observations import ProgramRun, RunLimits, is_repeated, trains_alike
from gradtrace.repair.run.processes import Launcher

_REPORT_AFTER = 10  # seconds between two lines about the progress
_REFERENCE_CALLS = 50  # beyond the failing one: the losses of a loop, added up
_MAX_PAIRS = 24  # of edits, which are run if no single one holds
_ORDER = (PROVEN, OPEN, UNPROVEN, REJECTED)  # from better to worse


@dataclass
class Proof:
    """The result for a program: its first run, the candidates, and the judgements of those run."""

    original: ProgramRun
    repeats: bool = True  # whether a second run did the same
    is_caught: bool = False  # whether the program itself catches the error
    listed: list[Candidate] = field(default_factory=list)
    judgements: list[Judgement] = field(default_factory=list)
    # The repairs that hold: the best one of each way to train, and others that train alike.
    accepted: list[Judgement] = field(default_factory=list)
    equivalent: list[Judgement] = field(default_factory=list)

    @property
    def fails(self) -> bool:
        """Whether the program raised an error, or a strict watch warned about it."""
        return self.original.status == "raised" or bool(self.original.findings)


def prove(
    launcher: Launcher,
    limits: RunLimits,
    report: Callable[[str], None] = lambda text: None,
    only_list: bool = False,
) -> Proof:
    """Find the repairs of the launcher's program that hold; ``limits`` name no failing call."""
    start = time.monotonic()
    first = original = launcher.run({}, limits)
    # An error that ends the program comes before one that the program catches, perhaps on purpose.
    if any(call.failed for call in original.calls) and not original.is_explained:
        limits = limits._replace(stops_if_caught=True)
        original = launcher.run({}, limits)
    proof = Proof(original, is_caught=original is not first and first.status != "raised")
    calls = f"{counted(original.calls, 'backward call')}, {original.seconds:.1f} s"
    error = (original.error or "").partition("\n")[0] or "no error"
    report(f"as it is: {error if len(error) < 90 else error[:87] + '…'} ({calls})")
    if original.explanation:
        report(original.explanation.removeprefix("gradtrace: "))
    if not proof.fails:
        return proof
    proof.listed = candidates(original, {}, report)
    if only_list or not proof.listed:
        return proof
    report(f"{counted(proof.listed, 'candidate')}, each in a process of its own")
    # A slower machine must not reject a right repair: allow several times the program's own time.
    seconds = min(limits.seconds, 30 + 5 * original.seconds)
    repetition = launcher.run({}, limits)
    limits = limits._replace(failing_call=original.failing_call, seconds=seconds)
    proof.repeats = is_repeated(original, repetition)
    reference = None
    if original.status == "raised":
        reference = _reference(launcher, original, limits._replace(beyond=_REFERENCE_CALLS))
    judge = Judge(original, reference)
    reported = time.monotonic()

    def judge_all(listed: list[Candidate]) -> None:
        nonlocal reported
        for number, candidate in enumerate(listed):
            if time.monotonic() - reported > _REPORT_AFTER:
                reported = time.monotonic()
                report(f"{number} of {len(listed)} candidates, {reported - start:.0f} s")
            run = launcher.run(candidate.edits, limits)
            if not is_senseless(candidate, run):
                proof.judgements.append(_judged(judge, candidate, run))

    judge_all(proof.listed)
    if not any(judgement.status in (PROVEN, OPEN) for judgement in proof.judgements):
        judge_all([*itertools.islice(_pairs(proof, report), _MAX_PAIRS)])
    proof.listed = [judgement.candidate for judgement in proof.judgements]
    judge.compare(proof.judgements)
    if not proof.repeats:
        for judgement in proof.judgements:
            if judgement.run.status != "raised":
                judgement.status = UNPROVEN
                judgement.reasons = [
                    "runs, but two runs of the unchanged program differ, so no run can be compared"
                ]
    _classify(proof, judge)
    return proof


def _reference(launcher: Launcher, original: ProgramRun, limits: RunLimits) -> ProgramRun:
    """Run the program with its failure suppressed; discount lost gradients that no loss uses."""
    failed_in_backward = original.calls and original.calls[-1].failed
    reference = launcher.run({}, limits, "retained" if failed_in_backward else "allowed")
    losing = [call for call in reference.calls if call.loses_gradient]
    if losing:
        run = launcher.run({}, limits, "nan")
        samples = [s for call in run.calls for s in (*call.losses, *call.gradients.values())]
        ends_alike = (run.status, len(run.calls)) == (reference.status, len(reference.calls))
        for call in losing:
            call.loses_gradient = not (ends_alike and all(s.is_finite for s in samples))
    return reference


def _pairs(proof: Proof, report: Callable[[str], None]) -> Iterator[Candidate]:
    """Yield pairs of edits: the second is for the other error that the first one leaves."""
    for judgement in [*proof.judgements]:
        first, run = judgement.candidate, judgement.run
        is_other = run.is_explained and run.error_line != proof.original.error_line
        if is_other and run.failing_call >= proof.original.failing_call:
            for second in candidates(run, first.edits, report):
                a, b = first.repair, second.repair
                both = Repair(f"{a.name}, {b.name}", b.rank, f"{a.when}, and {b.when}")
                edits = {**first.edits, **second.edits}
                title = f"{first.title}; {second.title}"
                yield Candidate(both, title, edits, parts=(first, second))


def _judged(judge: Judge, candidate: Candidate, run: ProgramRun) -> Judgement:
    """Judge the run of a pair as one of each of its edits: the worse judgement counts."""
    judgements = [judge.judge(part, run) for part in candidate.parts or (candidate,)]
    worst = max(judgements, key=lambda judgement: _ORDER.index(judgement.status))
    questions = dict.fromkeys(j.question for j in judgements if j.question)
    worst.candidate, worst.question = candidate, " ".join(questions) or None
    return worst


def is_senseless(candidate: Candidate, run: ProgramRun) -> bool:
    """Whether an edited line raises an AttributeError, a TypeError or a NameError."""
    if not run.raised_at or not run.error_line.startswith(("Attribute", "Type", "Name")):
        return False
    path, number, _ = run.raised_at[0]
    lines = candidate.edits.get(path, "").splitlines()
    original = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    return number <= len(lines) and lines[number - 1] not in original


# Kinds whose candidates differ in where they do the same: one of them is enough.
_SAME_IDEA = ("forward_again", "detach_state", "reset_state", "clone_written")


def _classify(proof: Proof, judge: Judge) -> None:
    """Accept one repair per way to train, and prefer proven repairs to those with a question."""
    holding = [j for j in proof.judgements if j.status in (PROVEN, OPEN)]
    if judge.trained is not None:
        holding.sort(key=lambda judgement: judgement.status == OPEN)
    for judgement in holding:
        run = judgement.run
        if any(trains_alike(run, repair.run, judge.trained) for repair in proof.accepted):
            proof.equivalent.append(judgement)
        elif not any(_is_same_idea(judgement, repair) for repair in proof.accepted):
            proof.accepted.append(judgement)


def _is_same_idea(first: Judgement, second: Judgement) -> bool:
    repair, question = first.candidate.repair, first.question or second.question
    is_same = first.question == second.question if question else repair.name in _SAME_IDEA
    return repair == second.candidate.repair and is_same
