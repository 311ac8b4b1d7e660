"""Whether a repair is right: the run of a candidate, compared with runs of the program itself.

A repair is *proven* when

- the error is gone, and the program ran beyond the place where it failed;
- each loss up to that place has the value and the gradient that follow from the program's own
  statements: those of a reference run, in which every graph is retained and every saved tensor is a
  copy.  If weights have been updated since the forward pass, so that the loss is another one, its
  graph has no operations that the program's own graph lacks.  If the program failed before its
  backward call, the gradient may be unknown: then each parameter must get one, and a repair is
  unproven if the reference run lost a gradient;
- each backward call gives gradients to the parameters to which it gave them;
- at each optimizer's step, the gradient is that of the losses meant for its parameters, each taken
  alone;
- no gradient is of weights that have changed since the forward pass, no graph grows, and a strict
  watch has nothing to report.

Which losses are meant for an optimizer is read off the program (:mod:`~gradtrace.repair.intent`).
If that is undecided, if two repairs hold and train differently, or if a repair changes a loss that
the program did compute (:func:`~gradtrace.repair.own_losses.other_loss`), the reader decides.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gradtrace.repair import kinds, own_losses
from gradtrace.repair.intent import targets_of_calls
from gradtrace.repair.rule import RIGHT_GRADIENTS, Candidate
from gradtrace.repair.run.observations import (
    SAME,
    ZERO,
    Gradients,
    ObservedCall,
    ProgramRun,
    equal_gradients,
    equal_losses,
    growing_calls,
    is_multiple,
    last_of_equal_weights,
    noise_of,
    sum_of,
    trains_alike,
)

_ADDITIONS = (kinds.ADD_LOSSES, kinds.ADD_ROUNDS, kinds.TOTAL_ALONE)
_COUNTED_TWICE = (kinds.ADD_LOSSES, kinds.ADD_ROUNDS, kinds.RETAIN_GRAPH, kinds.FORWARD_AGAIN)
_DETACHED_AT_USE = (kinds.DETACH, kinds.DETACH_SHARED)
_ASKED_IF_CHANGED = (kinds.DETACH, kinds.CREATE_GRAPH)
_COMPUTED_AGAIN = (kinds.FORWARD_AGAIN, kinds.COMPUTE_AGAIN)
_SAME_GRADIENTS = ("graph_grows", "gradient_changed_in_backward")  # their repairs may train alike
_REPEATED = 2  # calls beyond the failing one that are compared, where the program's go on
PROVEN, OPEN, REJECTED, UNPROVEN = "proven", "open", "rejected", "unproven"


@dataclass
class Judgement:
    """The result for one candidate."""

    candidate: Candidate
    run: ProgramRun
    status: str  # "proven", "rejected", "unproven", or "open" until the reader answers
    reasons: list[str] = field(default_factory=list)  # to reject it, or what its proof lacks
    evidence: list[str] = field(default_factory=list)
    question: str | None = None


class Judge:
    """Compares runs of candidates with the run that failed, and with a usable reference run."""

    def __init__(self, original: ProgramRun, reference: ProgramRun | None = None):
        self.original = original
        self.failing_call = original.failing_call
        optimizers = original.optimizers or (reference or original).optimizers
        parameters = {key for optimizer in optimizers for key in optimizer.keys}
        # Without an optimizer, the parameters that the program itself updates; None if unknown.
        self.trained = parameters or original.updated_by_hand or None
        self.diagnosis = original.diagnosis or {}
        self.family, self.cause = self.diagnosis.get("family"), self.diagnosis.get("cause")
        self.facts = self.diagnosis.get("facts", ())
        self._is_silent = self.family == "silent"
        # The failing loss contains the gradient that freed its graph, which has no graph itself.
        began_at = self.diagnosis.get("began_at")
        self._lacks_second_order = any(
            finding["cause"] == "create_graph_missing" and finding["began_at"] == began_at
            for finding in original.findings
        )
        self._fails_before_call = len(original.calls) < self.failing_call and not self._is_silent
        self._has_reference = reference is not None and self._is_reference(reference)
        self._program = reference if reference and self._has_reference else original
        self._last_compared = self.failing_call
        self._loses_gradient = False
        if self._fails_before_call and self._has_reference:
            call = self._program.calls[self.failing_call - 1]
            self._last_compared += 0 if call.failed else _REPEATED
            self._loses_gradient = bool(call.loses_gradient)

    def _is_reference(self, run: ProgramRun) -> bool:
        """Whether a run repeats the losses of the original run, and gets past the failing call."""
        calls = run.calls[: self.failing_call]
        if len(calls) < self.failing_call:
            return False
        if self._fails_before_call and (calls[-1].failed or calls[-1].loses_gradient is not False):
            calls.pop().failed = True  # its gradient is unknown
        return not any(call.failed for call in calls) and all(
            map(equal_losses, self.original.calls, calls)
        )

    def judge(self, candidate: Candidate, run: ProgramRun) -> Judgement:
        """Judge one candidate alone; see also :meth:`compare`."""
        judgement = Judgement(candidate, run, REJECTED)
        if candidate.repair == kinds.REGISTER:  # the optimizer holds them in another order
            run.use_keys_of(self.original)
        if candidate.repair in _COMPUTED_AGAIN:
            run.leave_out_repeated(self._program)
        if run.status == "raised":
            is_same = run.error_line == self.original.error_line
            judgement.reasons = ["still raises the same error" if is_same else run.short_error]
            return judgement
        leaking, question = own_losses.leaks(self.original, run, candidate.repair in _ADDITIONS)
        findings = self._new_findings(run)
        unused = own_losses.unused_gradient(self.original, run)
        # If it is not used by a step, the program itself may read it.
        is_read = unused is not None and own_losses.reads_gradients(run)
        objections = (
            self._replaced_parameters(run),
            self._not_finite(run),
            self._unconnected(run),
            self._growing_graph(run),
            self._stale_gradient(run),
            self._counted_twice(candidate),
            own_losses.retained_too_long(candidate.repair, self.original, run),
            self._untrained(candidate, run),
            self._other_objective(candidate, run),
            None if is_read else unused,
            *map(self._warning, findings[:1]),
            leaking,
        )
        own_question = candidate.question or self._is_copy_meant(candidate, run)
        own_question = own_question or self._is_edit_meant()
        doubts = (
            self._unfinished(candidate, run),
            self._unreferenced(candidate, run, own_question),
            unused if is_read else None,
        )
        for judgement.status, reasons in (
            (REJECTED, objections),
            (REJECTED, (self._still_wrong(run),)),
            (UNPROVEN, doubts),
        ):
            runs = "runs, but " if judgement.status == REJECTED else ""
            judgement.reasons = [f"{runs}{reason}" for reason in reasons if reason]
            if judgement.reasons:
                return judgement
        own_question = own_question or self._is_cut_meant(candidate, run)
        if candidate.repair in _ASKED_IF_CHANGED and (
            self._lacks_second_order or not self._first_changed_gradient(candidate, run)
        ):
            own_question = None
        changed = self._changed_loss(run)
        question = question or own_losses.other_loss(candidate.repair, self._program, run, changed)
        if candidate.repair.cuts:
            question = question or own_losses.zero_by_chance(self._program, run, self.failing_call)
        own_question = candidate.doubt or own_question
        judgement.question = own_question or question or self._is_training_meant(candidate, run)
        judgement.status = OPEN if judgement.question else PROVEN
        judgement.evidence = self._evidence(candidate, run, judgement.question)
        return judgement

    def compare(self, judgements: list[Judgement]) -> None:
        """Reject each repair that does not train all parameters that repairs without a question do.

        Before that, what trains as a repair that holds does is judged as that repair is. Clearing a
        list needs no question if nothing else holds, and if the loss only adds its old entries.
        """
        if self.trained is None:
            return
        for repair in [j for j in judgements if j.evidence]:
            is_copy = repair.candidate.repair == kinds.CLONE_WRITTEN
            for judgement in judgements:
                changes = [reason.partition(" of ")[0] for reason in judgement.reasons]
                is_rejected = changes == ["runs, but changes the gradient"]
                # A new tensor takes the place of a copy that is written.
                is_new = is_copy and judgement.candidate.repair == kinds.OUT_OF_PLACE
                if not (is_rejected or is_new) or judgement.run.status == "raised":
                    continue
                if trains_alike(repair.run, judgement.run, self.trained):
                    judgement.status, judgement.question = repair.status, repair.question
                    judgement.reasons, judgement.evidence = [], repair.evidence
        for exact in (j for j in judgements if j.evidence and j.candidate.repair == kinds.NO_CACHE):
            for judgement in (j for j in judgements if j.evidence):
                if not trains_alike(exact.run, judgement.run, self.trained):
                    judgement.status = REJECTED
                    judgement.reasons = ["runs, but still uses casts of old weights"]
        holding = [judgement for judgement in judgements if judgement.status in (PROVEN, OPEN)]
        if {judgement.candidate.repair for judgement in holding} == {kinds.CLEAR}:
            for judgement in filter(self._drops_only_old_terms, holding):
                judgement.status, judgement.question = PROVEN, None
        # What detaches, and changes no loss, is the objective of the program's own statements.
        if any(
            j.candidate.repair in _DETACHED_AT_USE
            and not j.question
            and last_of_equal_weights(self._program, j.run) == len(j.run.calls)
            for j in holding
            if self._has_reference
        ):
            for judgement in holding:
                number = self._changed_loss(judgement.run)
                if number is not None and judgement.candidate.repair in _COMPUTED_AGAIN:
                    judgement.status = REJECTED
                    judgement.reasons = [
                        f"runs, but changes the loss of backward call {number}, which another "
                        "repair leaves as the program defines it"
                    ]
            holding = [judgement for judgement in holding if judgement.status != REJECTED]
        elif any(j.candidate.repair == kinds.DETACH for j in holding):
            for judgement in holding:
                if judgement.candidate.repair == kinds.COMPUTE_AGAIN:
                    judgement.status = OPEN
                    judgement.question = "is the value to follow the parameters in each iteration?"
            judgements.sort(key=lambda j: j.candidate.repair == kinds.COMPUTE_AGAIN)
        sure = (self._parameters_with_gradients(j.run) for j in holding if not j.question)
        trained = self.trained & set().union(*sure)
        for judgement in holding:
            if missing := trained - self._parameters_with_gradients(judgement.run):
                judgement.status = REJECTED
                judgement.reasons = [f"runs, but {self._listed(missing)} no longer trained"]

    # Where gradients arrive.

    def _parameters_with_gradients(self, run: ProgramRun) -> set[str]:
        """Return the parameters with non-zero gradients since the failing call, or else before."""
        if run.steps:
            samples = [step.gradients for step in run.last_steps_after(self.failing_call)]
        else:
            samples = [call.gradients for call in run.calls[self.failing_call - 1 :] or run.calls]
        pairs = [pair for gradients in samples for pair in gradients.items()]
        noise = noise_of(gradient for _, gradient in pairs)
        return {key for key, gradient in pairs if gradient.norm > noise}

    def _meant_keys(self, run: ProgramRun, call: ObservedCall, keys: Iterable[str]) -> set[str]:
        """Return which of ``keys`` the call's loss is meant to train; if undecided, all trained."""
        keys = self._of_trained(keys)
        targets = targets_of_calls(run).get(call.number)
        if targets is None:
            return keys
        return {key for key in keys if not run.owners(key) or run.owners(key) & targets}

    def _of_trained(self, keys: Iterable[str]) -> set[str]:
        """Return which of ``keys`` are trained, so no inputs; if that is unknown, all."""
        return set(keys) if self.trained is None else self.trained & set(keys)

    # Objections, or None: each completes the sentence "runs, but …".

    def _replaced_parameters(self, run: ProgramRun) -> str | None:
        new = {key for key, number in run.replaced.items() if number <= self.failing_call}
        new = self._of_trained(new - self.original.replaced.keys())
        return f"creates {self._listed(new, '')} again" if new else None

    def _not_finite(self, run: ProgramRun) -> str | None:
        original, repaired = (
            {key for call in r.calls for key, g in call.gradients.items() if not g.is_finite}
            for r in (self.original, run)
        )
        is_new = not repaired <= original
        return f"the gradient of {self._listed(repaired, '')} is NaN" if is_new else None

    def _unconnected(self, run: ProgramRun) -> str | None:
        """Return an objection to a gradient for tensors of which the loss depends on none."""
        earlier = {c.site for c in self.original.calls if c.unconnected and not c.failed}
        sites = (call.site for call in run.calls if call.unconnected and call.site not in earlier)
        texts = (
            f"the gradient at line {line.line} is of no tensor that its loss was computed from"
            for line, *_ in sites
        )
        return next(texts, None)

    def _growing_graph(self, run: ProgramRun) -> str | None:
        if any(finding["cause"] == "graph_grows" for finding in self._new_findings(run)):
            return "a graph grows with each iteration"
        for calls in growing_calls(run):
            sizes = ", ".join(str(call.operations.total()) for call in calls)
            return f"memory grows with each iteration: {sizes} nodes in the graph"
        return None

    def _stale_gradient(self, run: ProgramRun) -> str | None:
        calls = self.original.calls[: self.failing_call - 1]
        stale_before = {key for call in calls for key in call.stale_leaves}
        for call in run.calls:
            # It does not matter of a parameter that gets no gradient from this call.
            stale = self._of_trained((call.stale_leaves & call.gradients.keys()) - stale_before)
            if stale:
                return (
                    f"backward call {call.number} uses an old value of {self._listed(stale, '')}: "
                    "the gradient is not that of the present weights"
                )
        return None

    def _other_objective(self, candidate: Candidate, run: ProgramRun) -> str | None:
        """Return an objection to a loss whose value or gradient is not the program's own."""
        if candidate.repair in _ADDITIONS:
            return self._other_sum(candidate, run)
        changed = self._first_changed_gradient(candidate, run)
        for expected, call in self._pairs(run, self._is_compared_to_end(candidate)):
            if not equal_losses(expected, call):
                if self.cause == "autocast_stale":  # its values are those of old weights
                    return None
                if expected.number >= self.failing_call and self._may_change_loss(candidate):
                    return self._more_operations(candidate, expected, call)
                return f"changes the loss of backward call {call.number}"
            if call.number == changed:  # the weights differ from here on
                is_question = candidate.repair in _ASKED_IF_CHANGED and self.family == "freed"
                # A program that fails silently has wrong gradients, unless its graph only grows.
                is_wrong_before = self._lacks_second_order or (
                    self._is_silent and self.cause not in RIGHT_GRADIENTS
                )
                is_question |= candidate.repair == kinds.CLONE_WRITTEN
                is_late = expected.number >= self.failing_call
                if expected.stale_leaves and is_late and self._may_change_loss(candidate):
                    return self._more_operations(candidate, expected, call)  # of new weights
                if is_question or is_wrong_before:
                    return None
                return f"changes the gradient of backward call {changed}"
        return None

    def _is_compared_to_end(self, candidate: Candidate) -> bool:
        """Whether a candidate may change the gradients of calls after the failing one only."""
        # What is detached where it is used may be multiplied by zero at first, and a gradient is
        # differentiated by the loss that uses it.
        is_second_order = candidate.repair == kinds.CREATE_GRAPH and self.family == "freed"
        return is_second_order or candidate.repair in (kinds.LEAF, *_DETACHED_AT_USE)

    def _pairs(
        self, run: ProgramRun, to_the_end: bool = False
    ) -> list[tuple[ObservedCall, ObservedCall]]:
        """Return the pairs of calls, of the program and of a candidate, that should be equal."""
        # The weights are equal before each of these calls. The last is the failing call, or, if no
        # gradient is known before it, the second one after it: at the first, a weight that begins
        # at zero can hide that a gradient is missing.
        last = last_of_equal_weights(self._program, run)
        if not to_the_end or not self._has_reference:
            last = min(self._last_compared, last)
        return list(zip(self._program.calls[:last], run.calls, strict=False))

    def _changed_loss(self, run: ProgramRun) -> int | None:
        """Return the number of the first call whose loss differs from the program's own."""
        pairs = self._pairs(run)
        numbers = (call.number for expected, call in pairs if not equal_losses(expected, call))
        return next(numbers, None)

    def _drops_only_old_terms(self, judgement: Judgement) -> bool:
        """Whether the failing loss only loses terms, on which earlier calls ran backward."""
        number = self.failing_call
        if number > min(len(self.original.calls), len(judgement.run.calls)):
            return True  # the program has computed no such loss
        failing, repaired = (run.calls[number - 1] for run in (self._program, judgement.run))
        # If it combines old entries with new ones, its gradient has another direction without them.
        return is_multiple(repaired.gradients, failing.truncated or {})

    def _may_change_loss(self, candidate: Candidate) -> bool:
        """Whether the failing call's loss may have a different value than in the program."""
        if candidate.repair == kinds.FORWARD_AGAIN:  # the same, unless weights have been updated
            calls = self.original.calls[: self.failing_call]
            return any(call.stale_leaves for call in calls)
        return not candidate.repair.keeps

    def _first_changed_gradient(self, candidate: Candidate, run: ProgramRun) -> int | None:
        """Return the number of the first call with other gradients; None if a loss differs."""
        is_at_use = candidate.repair in _DETACHED_AT_USE
        for expected, call in self._pairs(run, self._is_compared_to_end(candidate)):
            if not equal_losses(expected, call):
                return None
            if expected.failed or call.failed:  # unknown, or the program catches its error
                continue
            keys = self._meant_keys(run, call, expected.gradients.keys() | call.gradients.keys())
            expectations = [expected.gradients]
            may_truncate = candidate.repair.cuts or not candidate.repair.keeps
            if expected.truncated is not None and may_truncate and not is_at_use:
                expectations.append(expected.truncated)
            if not any(equal_gradients(e, call.gradients, keys) for e in expectations):
                return call.number
        return None

    @staticmethod
    def _more_operations(
        candidate: Candidate, expected: ObservedCall, call: ObservedCall
    ) -> str | None:
        """Return an objection if repeated statements add to a loss, not compute it again."""
        additional = call.operations - expected.operations
        if candidate.repair != kinds.FORWARD_AGAIN or not additional:
            return None
        names = ", ".join(name.removesuffix("0") for name, _ in additional.most_common(2))
        return (
            f"the loss of backward call {call.number} has operations that the program's own loss "
            f"does not have ({names})"
        )

    def _other_sum(self, candidate: Candidate, run: ProgramRun) -> str | None:
        """Return an objection if a combined loss is not the losses' sum, in value and gradient."""
        program, new = ([c for c in r.calls if c.accumulates] for r in (self._program, run))
        pairs = enumerate(zip(program, new, strict=False))
        first = next((i for i, (a, b) in pairs if not equal_losses(a, b)), 0)
        if first >= len(new):
            return None
        total, calls, terms = new[first], program[first:], 2
        if candidate.repair == kinds.TOTAL_ALONE:  # the program's last loss is the sum
            calls, terms = self._program.calls[self.failing_call - 1 : self.failing_call], 1
        value, gradients = 0.0, Gradients()
        for count, call in enumerate(calls, 1):
            value += call.value
            gradients = sum_of(gradients, call.gradients)
            if count >= terms and abs(value - total.value) <= SAME * max(1.0, abs(value)):
                keys = self._meant_keys(run, total, gradients.keys() | total.gradients.keys())
                if call.failed or equal_gradients(gradients, total.gradients, keys):
                    return None
                return "the gradient of the new loss is not the sum of their gradients"
        return "the new loss is not the sum of the two losses"

    def _counted_twice(self, candidate: Candidate) -> str | None:
        """Return an objection if a gradient counts twice, because a loss contains another."""
        is_term = self.cause == "loss_accumulated" or "a_loss_is_added" in self.facts
        is_twice = is_term and candidate.repair in _COUNTED_TWICE
        return "the loss contains an earlier one: its gradient counts twice" if is_twice else None

    def _untrained(self, candidate: Candidate, run: ProgramRun) -> str | None:
        """Return an objection if parameters lose their gradient, or all gradients are zero."""
        trained_now = {key for call in run.calls for key in call.gradients}
        if self.cause == "never_trained":
            named = self.diagnosis["carried_by"].split(", ")
            missing = {key for key, name in self.original.names.items() if name in named}
            if missing := missing - trained_now:
                return f"{self._listed(missing, 'gets')} no gradient"
        is_sum = candidate.repair in _ADDITIONS  # see _other_sum
        if len(run.calls) < self.failing_call and not is_sum:
            return None  # see _unfinished
        missing = set()
        calls = [] if is_sum else self._program.calls[: self.failing_call]
        for expected, call in zip(calls, run.calls, strict=False):
            is_failing = expected.number == self.failing_call
            # A failed call has no gradients; of its repair, a gradient may be zero.
            keys = expected.leaves if is_failing else expected.gradients.keys()
            trained = call.leaves if is_failing else call.gradients.keys()
            missing |= self._meant_keys(run, call, keys) - trained
        # The loss that is meant for a parameter may come only after the failing call.
        trained_before = {key for call in self._program.calls for key in call.gradients}
        for step in run.steps:
            owned = set(run.optimizers[step.optimizer].keys)
            missing |= set() if owned & trained_now else owned & trained_before
        if missing and self.trained is not None:
            return f"{self._listed(missing)} no longer trained"
        late_calls = run.calls[self.failing_call - 1 :] or run.calls
        samples = [gradient for call in late_calls for gradient in call.gradients.values()]
        is_zero = not any(gradient.norm > ZERO for gradient in samples)
        is_used = bool(run.calls) and run.calls[-1].accumulates
        return "all gradients are zero" if is_zero and is_used else None

    def _still_wrong(self, run: ProgramRun) -> str | None:
        """Return an objection to a run that only hides a wrong gradient from the strict watch."""
        is_wrong = self._is_silent and self.cause not in _SAME_GRADIENTS
        if is_wrong and trains_alike(self.original, run, self.trained):
            return "each step uses the same gradients as before"
        return None

    def _new_findings(self, run: ProgramRun) -> list[dict[str, Any]]:
        """Return the strict watch's warnings, except those of other causes that the program has."""
        known_causes = {finding["cause"] for finding in self.original.findings}
        if self._is_silent:  # its own warning has to go
            known_causes.discard(self.cause)
        else:  # leaks() measures the share, or asks if it is meant
            known_causes.add("gradient_leaks")
        if self._lacks_second_order:
            known_causes.discard("create_graph_missing")
        return [finding for finding in run.findings if finding["cause"] not in known_causes]

    def _warning(self, finding: dict[str, Any]) -> str:
        if self._is_silent and finding["cause"] == self.cause:
            return "a strict watch still warns"
        return f"a strict watch warns: {finding['explanation']}"

    # Questions to the reader.

    def _is_copy_meant(self, candidate: Candidate, run: ProgramRun) -> str | None:
        """Return the question whether other uses of a tensor are to read its old value, or None."""
        # A function that writes into its argument changes what its caller reads afterwards.
        is_same = self._changed_loss(run) is None and not self._loses_gradient
        is_same &= self._is_silent or self._first_changed_gradient(candidate, run) is None
        if candidate.repair != kinds.CLONE_WRITTEN or is_same:
            return None
        return "are the other uses of the tensor, and later iterations, to read its old value?"

    def _is_edit_meant(self) -> str | None:
        """Return the question whether an edit that autograd does not see is meant, or None."""
        is_known = not {"a_leaf", "shares_memory"}.isdisjoint(self.facts)
        # A strict watch sees the saved tensors, not the factor that a gradient lacks.
        if self.cause != "data_edit_silent" or is_known:
            return None
        line = self.diagnosis["began_at"]["line"]
        return f"is the change at line {line} to have no gradient?"

    def _is_training_meant(self, candidate: Candidate, run: ProgramRun) -> str | None:
        """Return the question whether frozen parameters are to be trained, or None."""
        if candidate.repair != kinds.SWITCH_ON or self.trained is None:
            return None
        trained_before = {key for call in self.original.calls for key in call.gradients}
        new = self._parameters_with_gradients(run) & self.trained - trained_before
        leaves = {key for call in run.calls for key in call.leaves}
        # If the optimizer has only some of the leaves, it trains those.
        if not new or leaves - self.trained:
            return None
        return f"{'is' if len(new) == 1 else 'are'} {self._listed(new, '')} to be trained?"

    def _is_cut_meant(self, candidate: Candidate, run: ProgramRun) -> str | None:
        """Return a question about parameters that neither this loss nor a later step trains."""
        number = self.failing_call
        is_known = self._has_reference and number <= min(len(self._program.calls), len(run.calls))
        if not candidate.repair.cuts or not is_known:
            return None
        expected, call = (r.calls[number - 1].gradients.keys() for r in (self._program, run))
        # Where a later step uses them, the loss of another iteration trains them.
        stepping = {step.optimizer for step in run.steps_after(number)}
        owned = (key for key in expected - call if run.owners(key))
        lost = [key for key in owned if stepping.isdisjoint(run.owners(key))]
        return f"is this loss to leave {self._listed(lost, '')} untrained?" if lost else None

    # What is missing for a proof.

    def _unfinished(self, candidate: Candidate, run: ProgramRun) -> str | None:
        if run.status == "time":
            return "took too long"
        if self.original.status != "raised":
            return None
        if not run.calls:
            is_done = self.failing_call > len(self.original.calls) and run.status == "ended"
            return None if is_done else "no backward() call was observed"
        is_used = run.steps or any(c.accumulates for c in run.calls[self.failing_call - 1 :])
        if not is_used and not candidate.repair.keeps:
            return "no gradient was observed, because autograd.grad returns it"
        if run.status == "ended" and len(run.steps) == len(self.original.steps):
            return None  # an evaluation after the training
        has_steps = self.original.optimizers and (self.original.steps or run.steps)
        if has_steps and not run.steps_after(self.failing_call):
            return "no optimizer has stepped after the failing call"
        return None

    def _unreferenced(
        self, candidate: Candidate, run: ProgramRun, question: str | None
    ) -> str | None:
        """Return the doubt about a repair, if the program's own gradient is unknown, or None."""
        is_compared = candidate.repair.compared and self.failing_call <= len(run.calls)
        if self._fails_before_call and is_compared:
            if not self._has_reference:
                return "runs, but the program's own loss could not be computed to compare with"
            missing = (self.trained or set()) - self._parameters_with_gradients(run)
            is_meant = candidate.repair == kinds.NO_GRAD and "updates_a_parameter" in self.facts
            if missing and self._last_compared == self.failing_call and not is_meant:
                return f"runs, but {self._listed(missing, 'gets')} no gradient"
            if self._loses_gradient and not question and not is_meant:
                return (
                    "runs, but the program's own gradient is unknown, because its loss depends on "
                    "an operation that autograd refuses"
                )
        is_unknown = self.family in ("freed", "modified") and not self._has_reference
        if candidate.repair.cuts and is_unknown and self.original.status == "raised":
            return "runs, but the gradient of the program's own statements could not be computed"
        return None

    # Evidence, as it is printed.

    def _evidence(self, candidate: Candidate, run: ProgramRun, question: str | None) -> list[str]:
        beyond = len(run.calls) - self.failing_call
        extent = "to its end" if run.status == "ended" else f"{beyond} backward calls further"
        ending = f"the error is gone: the program ran {extent}"
        lines = ["a strict watch no longer warns about it" if self._is_silent else ending]
        is_sum = candidate.repair in _ADDITIONS
        compared = self.failing_call if candidate.repair.keeps else self.failing_call - 1
        compared = self._first_changed_gradient(candidate, run) or compared
        compared = min(compared, len(self._pairs(run)))
        if compared > 0 and not is_sum:
            losses = "loss is" if compared == 1 else f"{compared} losses are"
            lines.append(f"the first {losses} unchanged")
        if is_sum and len(self.original.calls) > len(run.calls) > 0:
            lines.append("its loss is the sum of the losses on which the program called backward()")
        keys = self._parameters_with_gradients(run)
        if self.trained is not None and len(self.trained & keys) > 1:
            all_ = "all " if self.trained <= keys else ""
            lines.append(f"{all_}{len(self.trained & keys)} parameters get a gradient")
        elif keys:
            lines.append(f"{self._listed(keys, 'gets')} a gradient")
        if len(run.optimizers) > 1 and run.steps and not question:
            lines.append("each step uses the gradient of its own losses only")
        if self._is_silent and run.findings:
            return [*lines, *(f"another fault remains: {f['explanation']}" for f in run.findings)]
        warnings = "nothing new" if run.findings else "nothing"
        return [*lines, f"no graph grows, and a strict watch finds {warnings}"]

    def _listed(self, keys: Iterable[str], verb: str = "is") -> str:
        names = [self._program.names.get(key, key) for key in sorted(keys)]
        plural = {"is": "are", "gets": "get"}.get(verb, verb)
        listed = ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
        return f"{listed} {verb if len(names) == 1 else plural}".rstrip()
