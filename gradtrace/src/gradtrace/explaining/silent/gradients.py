"""Gradients that are another thing than the program takes them for."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gradtrace import _torch
from gradtrace._torch import LiveNode
from gradtrace.autograd.frames import namespace, place_of, reach, user_frames
from gradtrace.autograd.nodes import ALIVE
from gradtrace.autograd.saved import describe
from gradtrace.autograd.tensors import storage_of
from gradtrace.autograd.traversal import roots_of, undisturbed, users_of, walk
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.silent.finding import finding
from gradtrace.watching.record import OF_SCALED_TAG, SCALED_TAG, BackwardCall, Timeline

_LOOKS_INSIDE = 20  # steps inside a backward that are looked at: an optimizer may make thousands
# What hands a scale on as it is.
_LINEAR = frozenset(
    f"{name}Backward0"
    for name in (
        "Add", "Cat", "Clone", "Expand", "Mean", "Neg", "Permute", "Reshape", "Select", "Slice",
        "Squeeze", "Stack", "Sub", "Sum", "T", "ToCopy", "Transpose", "UnsafeView", "Unsqueeze",
        "View",
    )
)  # fmt: skip


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


def still_scaled(
    call: BackwardCall, live: Sequence[LiveNode], links: Sequence[Sequence[int]]
) -> Iterator[Diagnosis]:
    """A scaled loss is made of the gradient of a scaled loss, which was not unscaled."""
    if not any(SCALED_TAG in node.metadata for node in live[:1]):
        return
    users = users_of(links)
    for i, node in enumerate(live):
        made_at = None if isinstance(node, _torch.LEAF) else node.metadata.get(OF_SCALED_TAG)
        if made_at is not None and not _is_unscaled(i, live, links, users):
            yield finding("gradient_still_scaled", call.location, made_at)


def _is_unscaled(
    start: int,
    live: Sequence[LiveNode],
    links: Sequence[Sequence[int]],
    users: Sequence[Sequence[int]],
) -> bool:
    """Whether all that uses a gradient divides it by a number first, or multiplies it."""
    pending, seen = [*users[start]], set()
    for i in pending:
        if i in seen:
            continue
        seen.add(i)
        name = type(live[i]).__name__
        by_a_number = name in ("MulBackward0", "DivBackward0") and len(links[i]) == 1
        if name in _LINEAR:
            pending += users[i]
        elif not by_a_number or SCALED_TAG in live[i].metadata:
            return False
    return True


def saved_intermediates(
    timeline: Timeline, call: BackwardCall, live: Sequence[LiveNode]
) -> Iterator[Diagnosis]:
    """A backward that is to be differentiated uses what a custom function computed in forward.

    That has no graph: the derivative through it is left out.
    """
    if not call.creates_graph or not len(timeline.cuts):
        return
    for node in live:
        function = _torch.function_of(node)
        if function is None or _torch.is_once_differentiable(function):
            continue
        for saved in _torch.saved_by_function(node):
            cut = None if saved.requires_grad else timeline.cuts.get(saved)
            if cut is not None and cut.intermediate and saved.is_floating_point():
                name = place_of(function, "forward")
                yield finding("intermediate_saved", call.location, cut.location, name)


def not_averaged(
    timeline: Timeline, call: BackwardCall, live: Sequence[LiveNode], links: Sequence[Sequence[int]]
) -> Iterator[Diagnosis]:
    """A backward runs again over a forward pass whose gradients were averaged between processes."""
    kept = [one for one in timeline.calls if one.keeps_graph and one.whole and one is not call]
    if not kept or not call.whole or not _torch.is_distributed():
        return
    averaged = {
        storage_of(found.value)[0]
        for frame in user_frames(sys._getframe(1))
        for found in reach(namespace(frame, forget=True))
        if any(map(_torch.is_averaged, found.owners))
    }
    users = users_of(links)
    for i, node in enumerate(live):
        if not isinstance(node, _torch.LEAF) or storage_of(node.variable)[0] not in averaged:
            continue
        used = max(_torch.sequence_nr(live[j]) for j in users[i])
        storage = storage_of(node.variable)[0]
        for earlier in kept:
            if used < earlier.sequence_nr and storage in earlier.leaves:
                yield finding("ddp_not_averaged", call.location, earlier.location)
                return


def in_step(timeline: Timeline) -> Iterator[Diagnosis]:
    """An optimizer made a step while a backward runs, and a part that is still to run needs what it
    changed."""
    if not timeline.running or timeline.looked_inside >= _LOOKS_INSIDE:
        return
    timeline.looked_inside += 1
    call, outputs = timeline.running[-1]
    if call.keeps_graph:  # what has run looks like what has not
        return
    step = timeline.steps[-1]
    with undisturbed():
        found = _needs(outputs, step.storages or frozenset())
    if found:
        yield finding("step_inside_backward", call.location, step.location)


def _needs(outputs: Any, storages: frozenset[int]) -> bool:
    """Whether a node that has not run saved any of these, and the change was not noticed."""
    return any(
        saved.state == ALIVE and saved.storage in storages
        for node in describe(*walk(roots_of(outputs))).nodes
        for saved in node.saved
    )
