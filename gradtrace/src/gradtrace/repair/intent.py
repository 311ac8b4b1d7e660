"""Infer from the order of the program's calls which optimizer each loss is meant for."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gradtrace.autograd.matching_names import named_like
from gradtrace.repair.run.observations import GradientsCleared, ObservedCall, ProgramRun, StepTaken


class TrainingAction(NamedTuple):
    """A backward call on a loss, or a ``step`` or ``zero_grad`` of optimizers."""

    kind: str  # "backward", "step" or "zero_grad"
    optimizers: frozenset[str] = frozenset()  # of a call, those whose parameters it reaches
    loss: str = ""


def assign_losses(
    actions: Sequence[TrainingAction], optimizers: Mapping[str, str]
) -> dict[int, frozenset[str]]:
    """Return, for the position of each backward call, the optimizers that its loss is meant for.

    That is the only optimizer; else the only one cleared since the previous call, except after its
    own step, unless only others step before the next call; else the only one that steps before the
    next call; else the one whose description has a word of the loss's name, among those cleared, or
    else those that step, or else all; else all those cleared, if they are those that step.  A call
    for which none of these holds is left out.  An optimizer's description is its variable, with the
    names of its parameters.
    """
    targets: dict[int, frozenset[str]] = {}
    cleared: frozenset[str] = frozenset()
    stepped: frozenset[str] = frozenset()  # since the last backward
    for position, action in enumerate(actions):
        if action.kind == "zero_grad":
            if not action.optimizers <= stepped:  # else it only clears after its own step
                cleared |= action.optimizers
            continue
        if action.kind == "step":
            stepped |= action.optimizers
            continue
        later = itertools.takewhile(lambda a: a.kind != "backward", actions[position + 1 :])
        following = frozenset().union(*(a.optimizers for a in later if a.kind == "step"))
        following &= action.optimizers or following  # others use the gradients of earlier calls
        if cleared.isdisjoint(following) and following:
            cleared = frozenset()  # for a later loss
        candidates = cleared or following or frozenset(optimizers)
        like = named_like(action.loss, {name: optimizers[name] for name in sorted(candidates)})
        named = frozenset() if like is None else frozenset({like})
        signs = (frozenset(optimizers), cleared, following, named)
        both = cleared if cleared == following else frozenset()
        if target := next((sign for sign in signs if len(sign) == 1), both):
            targets[position] = target
        cleared, stepped = frozenset(), frozenset()
    return targets


def targets_of_calls(run: ProgramRun) -> dict[int, set[int]]:
    """Return the optimizers that each loss is meant for, by the number of its backward call."""
    actions = []
    for event in run.events:
        if isinstance(event, GradientsCleared):
            action = TrainingAction("zero_grad", frozenset(map(str, event.optimizers)))
        elif isinstance(event, StepTaken):
            action = TrainingAction("step", frozenset({str(event.optimizer)}))
        else:
            indices = (i for i, o in enumerate(run.optimizers) if event.leaves & {*o.keys})
            action = TrainingAction("backward", frozenset(map(str, indices)), loss_name(event))
        actions.append(action)
    descriptions = {}
    for i, optimizer in enumerate(run.optimizers):
        modules = {run.names.get(key, "").partition(".")[0] for key in optimizer.keys}
        descriptions[str(i)] = " ".join([optimizer.name, *modules])
    targets = {
        event.number: set(map(int, optimizers))
        for position, optimizers in assign_losses(actions, descriptions).items()
        if isinstance(event := run.events[position], ObservedCall)
    }
    # Without a sign of its own, as at the end of a run, a call is like the others of its line.
    decided = {(c.site, frozenset(targets[c.number])) for c in run.calls if c.number in targets}
    for call in run.calls:
        alike = [optimizers for site, optimizers in decided if site == call.site]
        if call.number not in targets and len(alike) == 1:
            targets[call.number] = {*alike[0]}
    return targets


def optimizer_name(run: ProgramRun, index: int) -> str:
    return run.optimizers[index].name or f"optimizer {index + 1}"


def loss_name(call: ObservedCall) -> str:
    """Return the expression on which backward was called, or a text with the call's number."""
    match = re.search(r"([\w.\[\]'\"()+ */-]+?)\.backward\(", call.text)
    if match:
        name = match[1].strip()
        return name if name.count("(") == name.count(")") else name.lstrip("(")
    return f"backward call {call.number}"
