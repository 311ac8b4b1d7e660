"""Which losses are meant for which optimizer: read off the program's own order of calls."""

from __future__ import annotations

import re

from gradtrace.repair.code_names import named_like
from gradtrace.repair.run.observations import Call, Cleared, Run, Stepped


def meant_for(run: Run) -> str:
    """Which loss is for which optimizer, in words."""
    calls = {call.number: call for call in run.calls}
    pairs = set()
    for number, optimizers in meanings(run).items():
        for index in optimizers:
            name = run.optimizers[index].name or f"optimizer {index + 1}"
            pairs.add(f"{loss_name(calls[number])} for {name}")
    return ", ".join(sorted(pairs)[:4])


def meanings(run: Run) -> dict[int, set[int]]:
    """For each backward call, by its number, the optimizers that its loss is meant for.

    The only one there is; else the one cleared just before it; else the one that steps before the
    next backward; else the one whose name or parameters are called like the loss; else all that
    were cleared, if they step together.  Where none of these tells, the call is not in the result.
    """
    found: dict[int, set[int]] = {}
    cleared: set[int] = set()
    stepped: set[int] = set()  # since the last backward
    for place, event in enumerate(run.events):
        if isinstance(event, Cleared):
            if not event.optimizers <= stepped:  # else it tidies up behind its own step
                cleared |= event.optimizers
        elif isinstance(event, Stepped):
            stepped.add(event.optimizer)
        else:
            following = set()
            for later in run.events[place + 1 :]:
                if isinstance(later, Call):
                    break
                if isinstance(later, Stepped):
                    following.add(later.optimizer)
            named = _named_like(run, event, cleared or following)
            if len(run.optimizers) == 1:
                found[event.number] = {0}
            elif len(cleared) == 1:
                found[event.number] = cleared
            elif len(following) == 1:
                found[event.number] = following
            elif named is not None:
                found[event.number] = {named}
            elif cleared and cleared == following:
                found[event.number] = cleared
            cleared, stepped = set(), set()
    return found


def _named_like(run: Run, call: Call, among: set[int]) -> int | None:
    names = {}
    for index in among or range(len(run.optimizers)):
        one = run.optimizers[index]
        owners = {run.names.get(key, "").partition(".")[0] for key in one.keys}
        names[index] = " ".join([one.name, *owners])
    return named_like(loss_name(call), names)


def loss_name(call: Call) -> str:
    """What backward was called on, as the program writes it."""
    found = re.search(r"([\w.\[\]'\"()+ -]+?)\.backward\(", call.text)
    if found:
        name = found[1].strip()
        return name if name.count("(") == name.count(")") else name.lstrip("(")
    return f"backward {call.number}"
