"""Gradients that are another thing than the program takes them for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gradtrace.diagnosis import Diagnosis
from gradtrace.record import BackwardCall, Timeline
from gradtrace.silent.finding import finding


def used_without_graph(
    timeline: Timeline, call: BackwardCall, numbers: Iterable[int]
) -> Iterator[Diagnosis]:
    """What is made of a gradient without a graph is added to this loss, and trains nothing.

    Where it comes from what this loss trains.  Another network's gradient may be meant as a number.
    """
    if not timeline.first_order:
        return
    for sequence_nr in set(numbers) & timeline.first_order.keys():
        cut = timeline.first_order.pop(sequence_nr)
        if (cut.through - cut.of) & call.leaves:
            yield finding("create_graph_missing", call.location, cut.location)
