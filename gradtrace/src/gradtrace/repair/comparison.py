"""Whether two runs of a program trained alike: their losses, and the gradients at each step."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from gradtrace.repair.run.observations import Call, Run, Sample, Stepped

SAME = 1e-4  # relative; float32 sums in another order differ by less
ZERO = 1e-7


def same_gradients(one: Run, other: Run, trained: set[str] | None = None) -> bool:
    """Whether two runs trained alike, as far as both ran: the gradients at each step.

    Where nothing stepped, those that are left at the end, of ``trained`` or of all leaves.
    """
    if not one.steps and not other.steps:
        mine, its = (
            {key: g for key, g in run.gradients.items() if trained is None or key in trained}
            for run in (one, other)
        )
        return alike(mine, its)
    if not one.steps or not other.steps:
        return False
    return all(
        mine.optimizer == its.optimizer and alike(mine.gradients, its.gradients)
        for mine, its in zip(_in_order(one), _in_order(other), strict=False)
    )


def _in_order(run: Run) -> list[Stepped]:
    """Each optimizer's steps, round by round: in which order they step is left to the program."""
    count: Counter[int] = Counter()
    placed = []
    for step in run.steps:
        count[step.optimizer] += 1
        placed.append((count[step.optimizer], step.optimizer, step))
    full = min(Counter(step.optimizer for step in run.steps).values())
    return [step for number, _, step in sorted(placed, key=lambda p: p[:2]) if number <= full]


def alike(mine: dict[str, Sample], its: dict[str, Sample]) -> bool:
    return all(
        key in mine and key in its and mine[key].distance(its[key]) < SAME
        if max(getattr(mine.get(key), "norm", 0), getattr(its.get(key), "norm", 0)) > ZERO
        else True
        for key in mine.keys() | its.keys()
    )


def losses_apart(mine: Sequence[Call], its: Sequence[Call]) -> int | None:
    """The number of the first call whose losses differ."""
    for one, other in zip(mine, its, strict=False):
        if len(one.losses) != len(other.losses) or any(
            a.distance(b) > SAME for a, b in zip(one.losses, other.losses, strict=True)
        ):
            return one.number
    return None


def deterministic(first: Run, second: Run) -> bool:
    """Whether two runs of the same program did the same."""
    return (
        (first.status, _without_addresses(first.error), len(first.calls))
        == (second.status, _without_addresses(second.error), len(second.calls))
        and losses_apart(first.calls, second.calls) is None
        and same_gradients(first, second)
    )


def _without_addresses(text: str | None) -> str:
    """Those of objects differ from run to run."""
    return re.sub(r"0x[0-9a-f]+", "0x", text or "")
