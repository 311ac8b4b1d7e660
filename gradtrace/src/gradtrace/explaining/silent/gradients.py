"""Gradients that differ from those that the program needs."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from gradtrace import _torch
from gradtrace._torch import LiveNode
from gradtrace.autograd import source
from gradtrace.autograd.frames import namespace, place_of, reach, user_frame, user_frames
from gradtrace.autograd.nodes import ALIVE
from gradtrace.autograd.saved import describe
from gradtrace.autograd.tensors import storage_of
from gradtrace.autograd.traversal import roots_of, undisturbed, users_of, walk
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.evidence.training import Training, upstream
from gradtrace.explaining.silent.finding import finding
from gradtrace.explaining.silent.training import names_of
from gradtrace.watching.record import OF_SCALED_TAG, SCALED_TAG, BackwardCall, Timeline

_LOOKS_INSIDE = 20  # steps inside a backward that are looked at: an optimizer may make thousands
# Operations whose result is scaled as their input is.
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
    """Yield the terms of this loss that are computed from a gradient without a graph.

    Such a term trains nothing. It counts only if the gradient is of a tensor that depends on this
    loss's own parameters; another network's gradient may be meant as a number.
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
    """Yield the gradients of a scaled loss that enter this scaled loss without being unscaled."""
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
    """Whether every use of a gradient first divides or multiplies it by a number."""
    pending, visited = [*users[start]], set()
    for i in pending:
        if i in visited:
            continue
        visited.add(i)
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
    """Yield the custom functions whose backward uses values that their forward computed.

    Those values have no graph, so a second derivative through them is missing.
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


def stale_casts(
    timeline: Timeline, call: BackwardCall, live: Sequence[LiveNode], links: Sequence[Sequence[int]]
) -> Iterator[Diagnosis]:
    """Yield a finding if a weight's cast from before an optimizer step is used after the step.

    Autocast caches the casts of weights until its outermost block ends.
    """
    if not timeline.steps or not torch.is_autocast_cache_enabled():
        return
    users = users_of(links)
    for i, node in enumerate(live):
        if type(node).__name__ != "ToCopyBackward0":
            continue
        weight = next((live[j] for j in links[i] if isinstance(live[j], _torch.LEAF)), None)
        if weight is None:
            continue
        storage, cast_at = storage_of(weight.variable)[0], _torch.sequence_nr(node)
        edit = next(timeline.edits_since(cast_at, storage), None)
        if edit is not None and any(
            _torch.sequence_nr(live[j]) > edit.sequence_nr for j in users[i]
        ):
            frame = user_frame(sys._getframe(1))
            block = source.region_around(frame, r"\bautocast\b")
            yield finding("autocast_stale", call.location, block or edit.location)
            return


def leaking(
    timeline: Timeline, call: BackwardCall, live: Sequence[LiveNode], links: Sequence[Sequence[int]]
) -> Iterator[Diagnosis]:
    """Yield the gradients of another optimizer's loss to which this loss adds its own.

    This loss trains the parameters of one optimizer, whose inputs the other's parameters compute,
    as for a discriminator and a generator.
    """
    if len(timeline.optimizers) < 2 or not call.whole:
        return
    training = Training(timeline, call.leaves)
    leaves = [node.variable for node in live if isinstance(node, _torch.LEAF)]
    for optimizer, storages in training.optimizers:
        receivers = [p for p in leaves if p.grad is not None and storage_of(p)[0] in storages]
        if not any(bool(parameter.grad.detach().any()) for parameter in receivers):
            timeline.cleared[optimizer] = call.number
        elif len(training.optimizers) == 1:
            earlier = _other_loss(timeline, call, optimizer)
            if earlier is not None:
                place = earlier.location
                yield finding("gradient_leaks", call.location, place, names_of(receivers))
    call.fed_by = _fed_by(training, live, links)


def _other_loss(
    timeline: Timeline, call: BackwardCall, optimizer: torch.optim.Optimizer
) -> BackwardCall | None:
    """Return the call whose gradients another optimizer used since this one's were cleared."""
    cleared = timeline.cleared.get(optimizer, call.number)
    for earlier in timeline.calls:
        for feeding, fed in earlier.fed_by if cleared <= earlier.number < call.number else ():
            if fed() is optimizer and any(
                step.optimizer() is feeding() and step.last_call >= earlier.number
                for step in timeline.steps
            ):
                return earlier
    return None


def _fed_by(
    training: Training, live: Sequence[LiveNode], links: Sequence[Sequence[int]]
) -> tuple[tuple[Any, Any], ...]:
    """Return weak pairs of optimizers (a, b): b's parameters are applied to results of a's."""
    if len(training.optimizers) < 2:
        return ()
    owners = {
        i: {n for n, (_, storages) in enumerate(training.optimizers) if storage in storages}
        for i, node in enumerate(live)
        if isinstance(node, _torch.LEAF) and (storage := storage_of(node.variable)[0])
    }
    references = [weakref.ref(optimizer) for optimizer, _ in training.optimizers]
    return tuple((references[a], references[b]) for a, b in sorted(upstream(owners, links)))


def not_averaged(
    timeline: Timeline, call: BackwardCall, live: Sequence[LiveNode], links: Sequence[Sequence[int]]
) -> Iterator[Diagnosis]:
    """Yield a finding if backward runs again over a graph whose gradients DDP has averaged."""
    retaining = [c for c in timeline.calls if c.keeps_graph and c.whole and c is not call]
    if not retaining or not call.whole or not _torch.is_distributed():
        return
    averaged = {
        storage_of(variable.value)[0]
        for frame in user_frames(sys._getframe(1))
        for variable in reach(namespace(frame, forget=True))
        if any(map(_torch.is_averaged, variable.owners))
    }
    users = users_of(links)
    for i, node in enumerate(live):
        if not isinstance(node, _torch.LEAF) or storage_of(node.variable)[0] not in averaged:
            continue
        used = max(_torch.sequence_nr(live[j]) for j in users[i])
        storage = storage_of(node.variable)[0]
        for earlier in retaining:
            if used < earlier.sequence_nr and storage in earlier.leaves:
                yield finding("ddp_not_averaged", call.location, earlier.location)
                return


def in_step(timeline: Timeline) -> Iterator[Diagnosis]:
    """Yield a finding if an optimizer stepped during a backward pass that still needs the
    parameters that it changed."""
    if not timeline.running or timeline.looked_inside >= _LOOKS_INSIDE:
        return
    timeline.looked_inside += 1
    call, outputs = timeline.running[-1]
    if call.keeps_graph:  # nodes that have run cannot be distinguished from the others
        return
    step = timeline.steps[-1]
    with undisturbed():
        needed = _needs(outputs, step.storages or frozenset())
    if needed:
        yield finding("step_inside_backward", call.location, step.location)


def _needs(outputs: Any, storages: frozenset[int]) -> bool:
    """Whether a node that has not run yet saved one of these, past its version counter."""
    return any(
        saved.state == ALIVE and saved.storage in storages
        for node in describe(*walk(roots_of(outputs))).nodes
        for saved in node.saved
    )
