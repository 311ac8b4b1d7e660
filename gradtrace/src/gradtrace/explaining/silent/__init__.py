"""Failures that raise nothing: wrong gradients, growing graphs, or untrained parameters.

Each detector reads the record of a strict watch: before a backward call, with its graph; after an
optimizer's step; or at the program's end. It yields findings and keeps no state of its own.
"""

from collections.abc import Iterator

import torch

from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.silent.growth import growing, leaks, unused_sums
from gradtrace.explaining.silent.parameters import (
    in_no_optimizer,
    made_in_forward,
    never_trained,
    untrained,
)
from gradtrace.explaining.silent.pending import PendingBackward, finding
from gradtrace.explaining.silent.unnoticed_changes import changed_unnoticed
from gradtrace.explaining.silent.useless_steps import in_gradients, note_gradients, zero_derivatives
from gradtrace.explaining.silent.wrong_gradients import (
    constant_terms,
    in_step,
    leaking,
    note_optimizers,
    saved_intermediates,
    stale_casts,
    still_scaled,
    used_without_graph,
)
from gradtrace.watching.record import Timeline

__all__ = ["PendingBackward", "after_step", "finding", "in_backward", "leaks", "never_trained"]


def in_backward(graph: PendingBackward) -> Iterator[Diagnosis]:
    """Yield findings about the backward pass that is about to run."""
    timeline = graph.timeline
    yield from used_without_graph(graph)
    yield from constant_terms(graph)
    yield from still_scaled(graph)
    yield from saved_intermediates(graph)
    note_optimizers(graph)
    timeline.note_loss(graph.numbers, graph.leaves.values())
    note_gradients(graph)
    yield from changed_unnoticed(graph)
    yield from stale_casts(graph)
    yield from in_no_optimizer(graph)
    yield from made_in_forward(graph)
    yield from zero_derivatives(graph)
    yield from growing(graph)
    if len(timeline.sums):
        alive = timeline.sums.alive()
        for sequence_nr in alive.keys() & graph.numbers:
            timeline.sums.used(alive[sequence_nr])
    yield from unused_sums(timeline)


def after_step(timeline: Timeline, optimizer: torch.optim.Optimizer) -> Iterator[Diagnosis]:
    """Yield findings about the step that an optimizer has just made."""
    yield from in_step(timeline)
    yield from leaking(timeline, optimizer)
    yield from in_gradients(timeline, optimizer)
    yield from untrained(timeline, optimizer)
