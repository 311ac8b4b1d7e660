"""Failures that raise nothing: a gradient that will be wrong, a graph that grows.

Each detector reads the record of a strict watch and the graph of the backward call that is about to
run. It yields findings and keeps no state of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtrace import _torch
from gradtrace._torch import LiveNode
from gradtrace.autograd.traversal import undisturbed
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.silent.finding import finding
from gradtrace.explaining.silent.gradients import (
    in_step,
    leaking,
    not_averaged,
    saved_intermediates,
    stale_casts,
    still_scaled,
    used_without_graph,
)
from gradtrace.explaining.silent.growth import growing, leaks, unused_sums
from gradtrace.explaining.silent.memory import changed_unnoticed
from gradtrace.explaining.silent.training import in_no_optimizer, never_trained, untrained
from gradtrace.watching.record import BackwardCall, Timeline

__all__ = ["finding", "in_backward", "in_step", "leaks", "never_trained", "untrained"]


def in_backward(
    timeline: Timeline, call: BackwardCall, live: Sequence[LiveNode], links: Sequence[Sequence[int]]
) -> Iterator[Diagnosis]:
    """Yield what the backward call that is about to run over the nodes ``live`` will get wrong."""
    numbers = [_torch.sequence_nr(node) for node in live if not isinstance(node, _torch.LEAF)]
    oldest = min(numbers, default=0)
    if timeline.has_exports or timeline.last_write > oldest:
        with undisturbed():
            findings = list(changed_unnoticed(timeline, call, live, links))
        yield from findings
    yield from used_without_graph(timeline, call, numbers)
    yield from still_scaled(call, live, links)
    yield from saved_intermediates(timeline, call, live)
    yield from not_averaged(timeline, call, live, links)
    with undisturbed():
        findings = [
            *stale_casts(timeline, call, live, links),
            *leaking(timeline, call, live, links),
            *in_no_optimizer(timeline, call, live),
        ]
    yield from findings
    yield from growing(timeline, call, len(live), oldest)
    if len(timeline.sums):
        alive = timeline.sums.alive()
        for sequence_nr in alive.keys() & set(numbers):
            timeline.sums.used(alive[sequence_nr])
    yield from unused_sums(timeline)
