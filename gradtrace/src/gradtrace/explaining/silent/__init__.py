"""Failures that raise nothing: wrong gradients, growing graphs, or untrained parameters.

Each detector reads the record of a strict watch, yields findings, and keeps no state of its own.
"""

from collections.abc import Iterator
from itertools import islice

import torch

from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.silent import (
    growth,
    parameters,
    unnoticed_changes,
    useless_steps,
    wrong_gradients,
)
from gradtrace.explaining.silent.pending import PendingBackward
from gradtrace.watching.record import Timeline


def in_backward(graph: PendingBackward) -> Iterator[Diagnosis]:
    """Yield findings about the backward pass that is about to run."""
    timeline = graph.timeline
    yield from wrong_gradients.used_without_graph(graph)
    yield from wrong_gradients.written_without_graph(graph)
    yield from wrong_gradients.constant_terms(graph)
    yield from wrong_gradients.still_scaled(graph)
    yield from wrong_gradients.saved_intermediates(graph)
    wrong_gradients.note_optimizers(graph)
    timeline.note_loss(graph.numbers, graph.leaves.values())
    useless_steps.note_gradients(graph)
    parameters.note_leaf(graph)
    yield from unnoticed_changes.changed_unnoticed(graph)
    yield from wrong_gradients.stale_casts(graph)
    yield from parameters.in_no_optimizer(graph)
    yield from parameters.made_in_forward(graph)
    yield from useless_steps.zero_derivatives(graph)
    yield from growth.growing(graph)
    timeline.sums.used(graph.numbers)
    yield from growth.unused_sums(timeline)


def after_step(timeline: Timeline, optimizer: torch.optim.Optimizer) -> Iterator[Diagnosis]:
    """Yield findings about the step that an optimizer has just made."""
    yield from wrong_gradients.in_step(timeline)
    yield from islice(wrong_gradients.leaking(timeline, optimizer), 1)  # it may find one twice
    yield from useless_steps.in_gradients(timeline, optimizer)
    yield from parameters.untrained(timeline, optimizer)
