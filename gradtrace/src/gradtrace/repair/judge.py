"""Is a repair right?  What its run did, held against the program as it was.

A repair is *proven* when

- the error is gone, and the program went on beyond the place where it failed;
- every loss before that place, and where the repair keeps the mathematics that of the backward that
  failed, is what it was;
- each backward gives gradients to the parameters it gave them to, and reaches all operations of its
  iteration: nothing that was trained is cut off;
- at each optimizer's step, the gradient is that of the losses meant for its parameters, each taken
  alone;
- no gradient is of weights that have changed since the forward pass, no graph grows, and a strict
  watch has nothing to say.

Which losses are meant for an optimizer is read off the program: those whose backward follows its
``zero_grad``, or precedes its step; else by their names.  Where that does not tell, or where two
repairs hold and give different gradients, the question that decides is left to the reader.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradtrace.explaining.causes import family_of
from gradtrace.repair.comparison import SAME, ZERO, alike, losses_apart
from gradtrace.repair.intent import loss_name, meanings, meant_for
from gradtrace.repair.repairs import (
    ADD_LOSSES,
    ADD_ROUNDS,
    DETACH,
    FORWARD_AGAIN,
    RETAIN_GRAPH,
    SWITCH_ON,
)
from gradtrace.repair.rule import Candidate
from gradtrace.repair.run.observations import Call, Place, Run, Sample, Stepped

_ACROSS_ITERATIONS = (
    "computed_once_outside_loop", "hidden_state_carried", "loss_accumulated", "replay_keeps_graph",
    "dataset_tensor_has_graph", "buffer_has_graph",
)  # fmt: skip
_ADDS = (ADD_LOSSES, ADD_ROUNDS)
PROVEN, OPEN, REJECTED, UNPROVEN = "proven", "open", "rejected", "unproven"


@dataclass
class Verdict:
    """What came of one candidate.

    ``status`` is ``"proven"``; ``"open"``: it holds if the answer to ``question`` is yes;
    ``"rejected"`` for the ``reasons``; ``"unproven"`` where they say what is missing.
    """

    candidate: Candidate
    run: Run
    status: str
    reasons: list[str] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    question: str | None = None


class Judge:
    """Knows the program as it is: ``original``, its first run."""

    def __init__(self, original: Run):
        self.original = original
        self.failing = original.failing
        self.trained = self._trained()
        self.family = (original.diagnosis or {}).get("family")
        self._is_silent = self.family == "silent"

    def _trained(self) -> set[str] | None:
        """The parameters that are trained: an optimizer's, or what the program itself writes.

        None where that cannot be told: the program has no optimizer, and writes to none.
        """
        held = {key for one in self.original.optimizers for key in one.keys}
        return held or self.original.written or None

    def verdict(self, candidate: Candidate, run: Run) -> Verdict:
        """Of one candidate alone; see :meth:`together`."""
        found = Verdict(candidate, run, REJECTED)
        if run.status == "raised":
            same = _first_line(run.error) == _first_line(self.original.error)
            found.reasons = ["still raises the same error" if same else _raises(run.error or "")]
            return found
        checks = (
            self._remade(run),
            self._not_finite(run),
            self._grows(run),
            self._stale(run),
            self._twice(candidate),
            self._kept_too_long(candidate),
            self._untrained(candidate, run),
            self._cut(candidate, run),
            self._changed_losses(candidate, run),
            self._wasted(run),
            self._silent(run),
        )
        found.reasons = [reason for reason in checks if reason]
        leaks, question = self._leaks(candidate, run)
        found.reasons += leaks
        if found.reasons:
            return found
        missing = (self._unfinished(candidate, run), candidate.doubt)
        found.reasons = [reason for reason in missing if reason]
        if found.reasons:
            found.status = UNPROVEN
            return found
        found.question = (
            candidate.question or question or self._chosen(candidate, run) or self._untold(run)
        )
        if candidate.repair == DETACH and (
            self._changed_gradient(run) is not None or self._lost_operations(run)
        ):
            what = candidate.title.removeprefix("detach ")
            found.question = f"is {what} not to be trained?"
        found.status = OPEN if found.question else PROVEN
        found.evidence = self._evidence(candidate, run, found.question)
        return found

    def together(self, verdicts: Iterable[Verdict]) -> None:
        """Reject what trains less than another repair that holds does."""
        sound = [one for one in verdicts if one.status in (PROVEN, OPEN)]
        if self.trained is None:
            return
        reached: dict[str, Verdict] = {}
        for one in sound:
            if not one.question:
                for key in self._gets_gradients(one.run) & self.trained:
                    reached.setdefault(key, one)
        for one in sound:
            missing = sorted(reached.keys() - self._gets_gradients(one.run))
            if missing:
                one.status = REJECTED
                one.reasons = [f"runs, but {self._listed(missing)} no longer trained"]

    def _gets_gradients(self, run: Run) -> set[str]:
        """Beyond the place where the program failed."""
        if run.steps:
            late = self._last_steps(run)
            return {k for s in late for k, g in s.gradients.items() if g.norm > ZERO}
        return {
            key
            for call in run.calls[self.failing - 1 :] or run.calls
            for key, gradient in call.contributed.items()
            if gradient.norm > ZERO
        }

    def _late_steps(self, run: Run) -> list[Stepped]:
        calls, late = 0, []
        for event in run.events:
            if isinstance(event, Call):
                calls += 1
            elif isinstance(event, Stepped) and calls >= min(self.failing, len(run.calls)):
                late.append(event)
        return late

    def _last_steps(self, run: Run) -> list[Stepped]:
        """The steps beyond that place; of an optimizer that has none, its last one."""
        late = self._late_steps(run)
        seen = {step.optimizer for step in late}
        last = {step.optimizer: step for step in run.steps if step.optimizer not in seen}
        return [*late, *last.values()]

    # Reasons against it.

    def _remade(self, run: Run) -> str | None:
        new = sorted(
            key
            for key, number in run.remade.items()
            if number <= self.failing and key not in self.original.remade
        )
        return f"runs, but makes {self._listed(new, '')} anew" if new else None

    def _not_finite(self, run: Run) -> str | None:
        was, now = (
            {key for call in one.calls for key, g in call.contributed.items() if not g.is_finite}
            for one in (self.original, run)
        )
        return (
            f"runs, but {self._listed(sorted(now), '')} get gradients of NaN" if now - was else None
        )

    def _grows(self, run: Run) -> str | None:
        if any(found["cause"] == "graph_grows" for found in self._new_findings(run)):
            return "runs, but a graph grows with each iteration"
        at: dict[tuple[Place, ...], list[Call]] = {}
        for call in run.calls:
            at.setdefault(call.site, []).append(call)
        for calls in at.values():
            last = calls[-4:]
            pairs = list(itertools.pairwise(last))
            if pairs and all(a.size < b.size and a.oldest == b.oldest for a, b in pairs):
                sizes = ", ".join(str(call.size) for call in last)
                held = ", ".join(_bytes(call.held) for call in last)
                return (
                    "runs, but memory grows with each iteration: "
                    f"{sizes} nodes in the graph, {held} held"
                )
        return None

    def _stale(self, run: Run) -> str | None:
        before = {key for call in self.original.calls[: self.failing - 1] for key in call.stale}
        for call in run.calls:
            # Of a parameter that gets nothing from this call it does not matter.
            found = sorted(key for key in call.stale & call.contributed.keys() if key not in before)
            if self.trained is not None:
                found = [key for key in found if key in self.trained]
            if found:
                names = self._listed(found, "")
                return (
                    f"runs, but backward {call.number} uses {names} as it was before it was "
                    "updated: the gradient is not that of the present weights"
                )
        return None

    def _changed_losses(self, candidate: Candidate, run: Run) -> str | None:
        if candidate.repair in _ADDS:
            return self._changed_sum(run) if candidate.repair == ADD_LOSSES else None
        ran = self.original.calls[: self.failing - 1]
        if candidate.repair.keeps:
            ran = self.original.calls[: self.failing]
        if candidate.repair == FORWARD_AGAIN:
            ran = self.original.calls[: self.failing]
            if any(call.stale for call in ran):  # else it computes the same again
                ran = ran[:-1]
        other = self._changed_gradient(run)
        if self._was_wrong:
            ran = ran[: self._other_gradient(run)]
        elif other is not None and candidate.repair != DETACH:
            return f"runs, but changes the gradient of backward {other}"
        apart = losses_apart(ran[:other], run.calls)  # behind that one the weights differ
        if apart is not None:
            return f"runs, but changes the loss of backward {apart}"
        return None

    def _changed_gradient(self, run: Run) -> int | None:
        """:meth:`_other_gradient`; none where the gradient is to be another one."""
        return None if self._was_wrong else self._other_gradient(run)

    @property
    def _was_wrong(self) -> bool:
        """Whether the program's gradients were wrong, and nothing raised."""
        return self._is_silent and (self.original.diagnosis or {}).get("cause") != "graph_grows"

    def _other_gradient(self, run: Run) -> int | None:
        """The first backward before the one that failed which gives what it is meant to train
        another gradient than it gave."""
        for call, its in zip(self.original.calls[: self.failing - 1], run.calls, strict=False):
            if call.losses and its.losses and call.losses[0].distance(its.losses[0]) > SAME:
                return None
            keys = self._meant_keys(run, its, call.contributed.keys() | its.contributed.keys())
            if self.trained is not None:
                keys &= self.trained
            was, now = (
                {key: one.contributed[key] for key in keys & one.contributed.keys()}
                for one in (call, its)
            )
            if not alike(was, now):
                return call.number
        return None

    def _changed_sum(self, run: Run) -> str | None:
        """Whether the one loss is the sum of some that the program took one after the other."""
        # The calls before the sum are what they were: of another optimizer's loss, say.
        first = (losses_apart(self.original.calls, run.calls) or 1) - 1
        known = [call.losses[0].values[0] for call in self.original.calls[first:] if call.losses]
        if first >= len(run.calls) or not run.calls[first].losses:
            return None
        total = run.calls[first].losses[0].values[0]
        sums = list(itertools.accumulate(known))[1:]
        if any(abs(part - total) <= SAME * max(1.0, abs(total)) for part in sums):
            return None
        return "runs, but the one loss is not the sum of the two"

    def _kept_too_long(self, candidate: Candidate) -> str | None:
        """A retained part that a step made stale, or that each iteration would use again."""
        if candidate.repair != RETAIN_GRAPH:
            return None
        if (self.original.diagnosis or {}).get("cause") in _ACROSS_ITERATIONS:
            return "runs, but every iteration would use the graph of the first one"
        freed_at = (self.original.diagnosis or {}).get("began_at") or {}
        between: list[Stepped] = []
        for event in self.original.events:
            if isinstance(event, Stepped):
                between.append(event)
            elif (
                isinstance(event, Call)
                and any(
                    (place.file, place.line) == (freed_at.get("file"), freed_at.get("line"))
                    for place in event.site
                )
                and not event.failed
            ):
                between = []
        if between:
            return "runs, but an optimizer steps between the two calls that use the retained graph"
        return None

    def _twice(self, candidate: Candidate) -> str | None:
        """A loss that is a part of the next one counts again with it."""
        calls = self.original.calls
        if candidate.repair not in (*_ADDS, RETAIN_GRAPH) or self.failing > len(calls):
            return None
        inside = [n for n in calls[self.failing - 1].contains if calls[n - 1].accumulates]
        if not inside:
            return None
        return (
            f"runs, but the loss of backward {max(inside)} is a part of that of backward "
            f"{self.failing}: its gradient counts twice"
        )

    def _untrained(self, candidate: Candidate, run: Run) -> str | None:
        """Parameters that got gradients, or would have in the backward that failed."""
        missing: set[str] = set()
        ordered = len(run.calls) >= self.failing
        for call in self.original.calls:
            if call.number > len(run.calls) or not ordered:
                break
            its = run.calls[call.number - 1]
            wanted = self._meant_keys(
                run, its, call.reached if call.failed else call.contributed.keys()
            )
            missing |= {
                key for key in wanted if key not in its.contributed and self._lost(call, its, key)
            }
        if not ordered and candidate.repair not in _ADDS:
            return None  # it has not come so far: see _unfinished
        if self.trained is not None:
            missing &= self.trained
            if missing:
                return f"runs, but {self._listed(sorted(missing))} no longer trained"
        if run.calls[-1:] and run.calls[-1].accumulates and not self._gets_gradients(run):
            return "runs, but all gradients are zero"
        return None

    @staticmethod
    def _lost(call: Call, its: Call, key: str) -> bool:
        """A gradient that was never seen may be zero in truth; one not reached is lost.

        ``autograd.grad`` adds to none.
        """
        if not call.accumulates:
            return key not in its.reached
        return key not in its.reached or not call.failed or not its.contributed

    def _meant_keys(self, run: Run, call: Call, keys: Iterable[str]) -> set[str]:
        """Those whose optimizers the call is meant for."""
        meant = meanings(run).get(call.number)
        if meant is None:
            return set(keys)
        return {key for key in keys if not run.owners(key) or run.owners(key) & meant}

    def _cut(self, candidate: Candidate, run: Run) -> str | None:
        """Whether a repair that cuts takes a part of the iteration that failed out of the graph.

        Of a freed graph, that part may be meant as a number: then it is a question.
        """
        if not candidate.repair.cuts or self.original.status != "raised":
            return None
        if candidate.repair == DETACH and self.family == "freed":
            return None
        lost = self._lost_operations(run)
        if not lost:
            return None
        was, now = (one.calls[self.failing - 1] for one in (self.original, run))
        if self.trained is None and was.reached - now.reached:
            return None  # see _untold
        most = ", ".join(name.removesuffix("0") for name, _ in lost.most_common(2))
        return (
            f"runs, but cuts {sum(lost.values())} of the {sum(was.operations.values())} operations "
            f"of this iteration out of the graph ({most})"
        )

    def _lost_operations(self, run: Run) -> Counter[str]:
        """Operations of the iteration that failed which its backward no longer runs over."""
        if self.failing > min(len(self.original.calls), len(run.calls)):
            return Counter()
        was, now = (one.calls[self.failing - 1].operations for one in (self.original, run))
        return was - now

    def _wasted(self, run: Run) -> str | None:
        """A loss whose gradient is cleared before its optimizer steps."""
        if any(step.closure for step in run.steps):  # it may run many, and steps by the last
            return None
        used = {n for step in run.steps for numbers in step.held.values() for n in numbers}
        was = {n for step in self.original.steps for numbers in step.held.values() for n in numbers}
        meant = meanings(run)
        for place, call in enumerate(run.events):
            if not isinstance(call, Call) or call.number in used or not call.contributed:
                continue
            later = {e.optimizer for e in run.events[place:] if isinstance(e, Stepped)}
            failed_here = (
                call.number >= self.failing and call.site == run.calls[self.failing - 1].site
            )
            if later & meant.get(call.number, set()) and (call.number in was or failed_here):
                return (
                    f"runs, but the gradient of {loss_name(call)} is cleared before a step uses it"
                )
        return None

    def _silent(self, run: Run) -> str | None:
        found = self._new_findings(run)
        if not found:
            return None
        return f"runs, but a strict watch warns: {found[0]['explanation']}"

    def _new_findings(self, run: Run) -> list[dict[str, Any]]:
        """What a strict watch said, less what it said of the program before it failed."""
        if self._is_silent:
            return run.findings
        known = {found["cause"] for found in self.original.findings}
        return [found for found in run.findings if found["cause"] not in known]

    def _leaks(self, candidate: Candidate, run: Run) -> tuple[list[str], str | None]:
        """Steps whose gradient has something of a loss that is meant for other parameters."""
        if len(run.optimizers) < 2:
            return [], None
        summed = candidate.repair in _ADDS  # what was meant shows before that
        meant = meanings(self.original if summed else run)
        calls = {call.number: call for call in (self.original if summed else run).calls}
        question = None
        for step in run.steps:
            for key, numbers in step.held.items():
                for number in calls if summed else numbers:
                    if number not in meant or step.optimizer in meant[number]:
                        continue
                    own = step.gradients[key]
                    part = calls[number].contributed.get(key)
                    if calls[number].failed and key in calls[number].reached:
                        part = own.minus(_sum_of(key, (calls[n] for n in calls if n != number)))
                    if part is None or part.norm <= SAME * own.norm:
                        continue
                    loss = loss_name(calls[number])
                    optimizer = self._optimizer(run, step.optimizer)
                    rest = own.minus(part)
                    upstream = {(step.optimizer, y) for y in meant[number]} & calls[number].upstream
                    if upstream and not _opposed(part, rest):
                        question = f"should {loss} also train the parameters of {optimizer}?"
                        continue
                    share = 100 * part.norm / rest.norm if rest.norm > ZERO else 100.0
                    return [
                        f"runs, but the gradient of {loss} leaks into {optimizer}: "
                        f"{self.original.names.get(key, key)} is {share:.0f} % off"
                    ], None
        return [], question

    def _optimizer(self, run: Run, index: int) -> str:
        return run.optimizers[index].name or f"optimizer {index + 1}"

    def _chosen(self, candidate: Candidate, run: Run) -> str | None:
        """What was off may be meant so, unless it was trained before, or an optimizer has a choice.

        An optimizer that was given all that there is says nothing of what is to be trained.
        """
        if candidate.repair != SWITCH_ON or self.trained is None:
            return None
        before = {key for call in self.original.calls for key in call.contributed}
        new = sorted(self._gets_gradients(run) & self.trained - before)
        reached = {key for call in run.calls for key in call.reached}
        if not new or reached - self.trained:
            return None
        return f"{'is' if len(new) == 1 else 'are'} {self._listed(new, '')} to be trained?"

    def _untold(self, run: Run) -> str | None:
        """What the program did not say: whether a leaf that gets no gradient is meant to get one.

        Without an optimizer it is not known what is to be trained; and of a loss that had no graph,
        not what it was to reach.
        """
        if self.trained is not None and self.family not in ("freed", "modified", "silent"):
            idle = sorted(self.trained - self._gets_gradients(run))
            return f"is it right that {self._listed(idle)} not trained?" if idle else None
        if self.trained is not None or self.failing > len(self.original.calls):
            return None
        if not self.original.calls[-1].accumulates:
            return None
        was = {key for call in self.original.calls for key in call.reached}
        gets = {key for call in run.calls for key in call.contributed}
        gets_late = self._gets_gradients(run)
        last = self.original.calls[-1].reached
        missing = sorted((was - gets) | (last - gets_late - (was - last)))
        missing = [key for key in missing if not key.startswith("a leaf of shape")]
        return f"is it right that {self._listed(missing)} not trained?" if missing else None

    # What is missing.

    def _unfinished(self, candidate: Candidate, run: Run) -> str | None:
        if run.status == "time":
            return "took too long"
        if self.original.status != "raised":
            return None
        if self.failing > len(self.original.calls) and not run.calls:
            return None if run.status == "ended" else "no backward was seen"
        if not run.calls:
            return "no backward was seen"
        if not run.calls[-1].accumulates and not run.steps and not candidate.repair.keeps:
            return "no gradient was seen: autograd.grad returns it"
        stepped = {step.optimizer for step in self.original.steps}
        if self.original.optimizers and not self._late_steps(run):
            return "no optimizer has stepped since" if stepped or run.steps else None
        return None

    # What speaks for it.

    def _evidence(self, candidate: Candidate, run: Run, question: str | None) -> list[str]:
        lines = []
        beyond = len(run.calls) - self.failing
        where = "to its end" if run.status == "ended" else f"{beyond} backward calls further"
        if self._is_silent:
            lines.append("a strict watch no longer warns")
        else:
            lines.append(f"the error is gone: the program ran {where}")
        compared = self.failing if candidate.repair.keeps else self.failing - 1
        compared = self._changed_gradient(run) or compared
        compared = min(compared, len(self.original.calls))
        if compared > 0 and candidate.repair not in _ADDS:
            what = (
                "loss is what it was" if compared == 1 else f"{compared} losses are what they were"
            )
            lines.append(f"the first {what}")
        if candidate.repair in _ADDS and len(self.original.calls) > len(run.calls) > 0:
            lines.append("its one loss is the sum of those that the program took one by one")
        gets = self._gets_gradients(run)
        if self.trained is not None and self.trained & gets:
            all_ = "all " if self.trained <= gets else ""
            lines.append(f"{all_}{len(self.trained & gets)} parameters get a gradient")
        elif gets:
            verb = "gets" if len(gets) == 1 else "get"
            lines.append(f"{self._listed(sorted(gets), '')} {verb} a gradient")
        if len(run.optimizers) > 1 and run.steps and not question:
            pairs = meant_for(run)
            if pairs:
                lines.append("each step has the gradient of its own losses alone: " + pairs)
        lines.append("no graph grows, and a strict watch finds nothing")
        return lines

    def _listed(self, keys: Sequence[str], verb: str = "is") -> str:
        names = [self.original.names.get(key, key) for key in keys]
        many = {"is": "are"}.get(verb, verb)
        shown = ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
        return f"{shown} {verb if len(names) == 1 else many}".rstrip()


def _sum_of(key: str, calls: Iterable[Call]) -> Sample | None:
    """What these calls added to the gradient of one parameter."""
    parts = [call.contributed[key].values for call in calls if key in call.contributed]
    total = tuple(map(sum, zip(*parts, strict=True)))
    return Sample(math.hypot(*total), total) if parts else None


def _opposed(part: Sample, rest: Sample) -> bool:
    """Whether two gradients undo each other, as those of adversaries do."""
    product = sum(a * b for a, b in zip(part.values, rest.values, strict=True))
    return product < -0.5 * math.hypot(*part.values) * math.hypot(*rest.values)


_INSTEAD = {
    "freed": "raises: a graph that it needs has been freed",
    "modified": "raises: what backward needs was changed in place",
    "no_graph": "raises: the loss has no graph any more",
}


def _raises(error: str) -> str:
    """What is raised instead: PyTorch's longest texts in a few words."""
    return _INSTEAD.get(family_of(error)[0] or "", f"raises {_first_line(error)}")


def _first_line(error: str | None) -> str:
    line = (error or "").splitlines()[0] if error else ""
    return line if len(line) < 120 else line[:117] + "…"


def _bytes(count: int) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count //= 1000
    return f"{count} GB"
