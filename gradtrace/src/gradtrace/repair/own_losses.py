"""Whether each step of an optimizer uses the gradient of its own losses, and only of these."""

import itertools
import re
from collections import defaultdict
from linecache import getlines

from gradtrace.repair.intent import loss_name, optimizer_name, targets_of_calls
from gradtrace.repair.kinds import COMPUTE_AGAIN, NEW_SUM, RESET_STATE, RETAIN_GRAPH, Repair
from gradtrace.repair.run.observations import (
    SAME,
    ZERO,
    GradientsCleared,
    ObservedCall,
    ProgramRun,
    StepTaken,
    equal_gradients,
    equal_losses,
    is_sum_of,
)


def unused_gradient(original: ProgramRun, run: ProgramRun) -> str | None:
    """Return an objection to a loss whose gradient is cleared before its step, or None."""
    if any(step.closure for step in run.steps):  # it may run many calls, and use the last one
        return None
    used, used_originally = (
        {n for step in r.steps for numbers in step.calls.values() for n in numbers}
        for r in (run, original)
    )
    clearings = [i for i, e in enumerate(original.events) if isinstance(e, GradientsCleared)]
    past_events = original.events[: max(clearings, default=0)]
    cleared = {e.number for e in past_events if isinstance(e, ObservedCall)} - used_originally
    # An edit shifts the numbers of lines, not their texts.
    texts = {c.number: c.text for c in original.calls}
    dropped = {texts[n] for n in cleared} - {texts[n] for n in used_originally}
    targets = targets_of_calls(run)
    for position, call in enumerate(run.events):
        if not isinstance(call, ObservedCall) or call.number in used or call.text in dropped:
            continue
        owners = {optimizer for key in call.gradients for optimizer in run.owners(key)}
        later = {e.optimizer for e in run.events[position:] if isinstance(e, StepTaken)}
        # If the original program does not use it either, only the failing line counts.
        is_repaired = (
            call.number >= original.failing_call
            and call.site == run.calls[original.failing_call - 1].site
        )
        if later & owners & targets.get(call.number, set()) and (
            call.number in used_originally or is_repaired
        ):
            return f"the gradient of {loss_name(call)} is cleared before a step uses it"
    return None


def reads_gradients(run: ProgramRun) -> bool:
    """Whether the program itself reads gradients, and does not only clear them."""
    reading = re.compile(r"^[^#]*\.grad\b(?!\(| *=(?!=)| is\b|\.(data\.)?(zero|detach)_)")
    return any(reading.search(line) for file in run.files for line in getlines(file))


def retained_too_long(repair: Repair, original: ProgramRun, run: ProgramRun) -> str | None:
    """Return an objection to a retained graph that a step makes stale or iterations share."""
    if repair != RETAIN_GRAPH or original.failing_call > len(original.calls):
        return None
    site = original.calls[original.failing_call - 1].site
    uses: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for number, calls in enumerate(run.iterations):
        for call in (call for call in calls if call.site == site and call.accumulates):
            uses[call.oldest_node].add((number, call.operations.total()))
    # Between two steps, several losses may share a part that does not grow.
    if any(len(uses_of_graph) > 1 for uses_of_graph in uses.values()):
        return "later iterations would use the graph of an earlier iteration"
    freed_at = (original.diagnosis or {}).get("began_at") or {}
    freeing_line = freed_at.get("file"), freed_at.get("line")
    has_stepped = False  # since the call that freed the graph
    for event in original.events:
        if isinstance(event, StepTaken):
            has_stepped = True
        elif isinstance(event, ObservedCall) and not event.failed:
            has_stepped &= not any(line[:2] == freeing_line for line in event.site)
    text = "an optimizer steps between the two calls that use the retained graph"
    return text if has_stepped else None


def other_loss(
    repair: Repair, program: ProgramRun, run: ProgramRun, number: int | None
) -> str | None:
    """Return the question whether the loss of a call, known and now another, is to change, or None.

    It need not be asked if only an earlier loss, on which backward has run, is no longer added, or
    if the program computed it from old weights, and the repair does from the present ones: by the
    same operations, unless the repair computes a value again.
    """
    if number is None or repair not in (RESET_STATE, NEW_SUM, COMPUTE_AGAIN):
        return None
    original_call, call = (r.calls[number - 1] for r in (program, run))
    is_same = repair == COMPUTE_AGAIN or original_call.operations == call.operations
    is_of_new_weights = original_call.stale_leaves and is_same
    earlier = program.calls[: number - 1]
    if is_of_new_weights or any(is_sum_of(original_call, call, old) for old in earlier):
        return None
    return f"is the loss of backward call {number} to change, because {repair.when}?"


def leaks(original: ProgramRun, run: ProgramRun, is_sum: bool) -> tuple[str | None, str | None]:
    """Return an objection to a step whose gradient contains a part of another optimizer's loss.

    If the parameters feed that loss, the part may be intended, unless it opposes the rest of the
    gradient: then the second value is a question instead. Both are None if there is no such part.
    """
    if len(run.optimizers) < 2:
        return None, None
    program = original if is_sum else run
    targets = targets_of_calls(program)
    calls = {call.number: call for call in program.calls}
    summed = _summed(original, run) if is_sum else {}
    question = None
    for step in run.steps:
        for key, numbers in step.calls.items():
            for number in itertools.chain(*(summed.get(number, [number]) for number in numbers)):
                if number not in targets or step.optimizer in targets[number]:
                    continue
                gradient = step.gradients[key]
                part = calls[number].gradients.get(key)
                if calls[number].failed and key in calls[number].leaves:
                    part = gradient
                    for call in calls.values():
                        part = part.minus(call.gradients.get(key))
                if part is None or part.norm <= SAME * gradient.norm:
                    continue
                own_part = gradient.minus(part)
                upstream = calls[number].upstream
                is_upstream = any((step.optimizer, y) in upstream for y in targets[number])
                loss, optimizer = loss_name(calls[number]), optimizer_name(run, step.optimizer)
                if is_upstream and not part.opposes(own_part):
                    question = f"should {loss} also train the parameters of {optimizer}?"
                    continue
                share = 100 * part.norm / own_part.norm if own_part.norm > ZERO else 100.0
                return (
                    f"the gradient of {loss} leaks into {optimizer}: the gradient of "
                    f"{original.names.get(key, key)} is {share:.0f} % off"
                ), None
    return None, question


def _summed(original: ProgramRun, run: ProgramRun) -> dict[int, list[int]]:
    """Return the original calls whose losses a call adds, by its number; later calls add none."""
    pairs = zip(original.calls, run.calls, strict=False)
    total = next((a.number for a, b in pairs if not equal_losses(a, b)), len(run.calls) + 1)
    later: dict[int, list[int]] = {call.number: [] for call in run.calls[total:]}
    return {**later, total: [call.number for call in original.calls[total - 1 :]]}


def zero_by_chance(program: ProgramRun, run: ProgramRun, failing_call: int) -> str | None:
    """Return a question about a gradient that a repair removes, but that was zero anyway."""
    for expected, call in zip(program.calls[: failing_call - 1], run.calls, strict=False):
        keys = expected.gradients.keys() | call.gradients.keys()
        is_equal = equal_gradients(expected.gradients, call.gradients, keys)
        if call.edges < expected.edges and is_equal and keys:
            line = call.site[0].line
            return f"is the loss at line {line} to have no gradient there? In this run it was 0"
    return None
