"""Steps with gradients that are zero, missing, not numbers, or belong to earlier steps, too."""

import contextlib
import itertools
from collections.abc import Iterator

import torch

from gradtrace import _torch
from gradtrace.autograd import source
from gradtrace.autograd.frames import names_of
from gradtrace.autograd.tensors import storage_of, storages_in
from gradtrace.autograd.traversal import leading_to, reachable
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.evidence.optimizers import Training
from gradtrace.explaining.silent.pending import PendingBackward, finding
from gradtrace.watching.record import BackwardCall, Timeline, parameters_of

_STEPS = 4  # of one optimizer, between which its gradients were never cleared
# Nodes that return a gradient of zero for every input.
_FLAT = frozenset(
    f"{name}Backward{n}" for name in ("Ceil", "Floor", "Round", "Sign", "Trunc") for n in (0, 1)
)


def zero_derivatives(graph: PendingBackward) -> Iterator[Diagnosis]:
    """Yield findings if parameters reach the loss only where its derivative is zero.

    That is so for the input of an operation such as ``round()``, and for x in ``x + (y - x)``.
    """
    flat = {i for i, node in enumerate(graph.live) if type(node).__name__ in _FLAT}
    remaining = _without_cancelled(graph)
    reported: set[int] = set()
    for zero, changed, facts in ((flat, {}, ()), ({*remaining}, remaining, ("cancels",))):
        if not zero:
            continue
        roots = [i for i, users in enumerate(graph.users) if not users]
        links = [changed.get(i, successors) for i, successors in enumerate(graph.links)]
        receiving = reachable(links, roots, flat)
        unreached = [leaf for i, leaf in graph.leaves.items() if i not in receiving]
        untrained = Training(graph.timeline, graph.call.leaves).held(unreached)
        ids = set(map(id, untrained)) - reported
        if ids:
            reported |= ids
            cut_off = [i for i, leaf in graph.leaves.items() if id(leaf) in ids]
            # The node nearest to the parameters must change; one nearer to the loss need not.
            nearest = graph.live[max(zero & leading_to(cut_off, graph.users))]
            made_at = graph.timeline.line_of(_torch.sequence_nr(nearest))
            names = names_of(leaf for leaf in untrained if id(leaf) in ids)
            yield graph.finding("zero_derivative", made_at, carried_by=names, facts=facts)


def _without_cancelled(graph: PendingBackward) -> dict[int, list[int]]:
    """Return the links of sums such as ``x + (y - x)`` without those to x, which cancel."""
    links = {}
    sums = {i for i, node in enumerate(graph.live) if type(node).__name__ in _torch.SUMS}
    single = ((i, graph.users[i][0]) for i in sums if len(graph.users[i]) == 1)
    for i, user in single:
        if user not in sums:
            continue
        inner = _torch.summands(graph.live[i])
        outer = dict(_torch.summands(graph.live[user]))
        sign = outer.pop((graph.live[i], 0), 0)
        for edge, factor in outer.items():
            if sign and factor + sign * sum(f for e, f in inner if e == edge) == 0:
                for j in (user, i):
                    edges = [e for e in _torch.edges_of(graph.live[j]) if e[0] is not None]
                    pairs = zip(edges, graph.links[j], strict=True)
                    links[j] = [successor for e, successor in pairs if e != edge]
    return links


def note_gradients(graph: PendingBackward) -> None:
    """Record the facts that :func:`in_gradients` needs after the next step.

    They are whether the loss is finite, the optimizers whose leaves in this graph have gradients of
    None or zeros only, and the line of a ``torch.where()`` in the graph.
    """
    # The tensors of a compiler, and those inside torch.func, have no values that may be read.
    with contextlib.suppress(RuntimeError):
        graph.call.is_finite = all(
            type(output) is torch.Tensor and bool(output.detach().isfinite().all())
            for output in graph.outputs
        )
    for optimizer in graph.timeline.optimizers:
        ids = set(map(id, parameters_of(optimizer)))
        own = [leaf for leaf in graph.leaves.values() if id(leaf) in ids]
        if own and not any(leaf.grad is not None and bool(leaf.grad.any()) for leaf in own):
            graph.timeline.cleared[optimizer] = graph.call.number
    branching = (node for node in graph.live if type(node).__name__ == "WhereBackward0")
    node = next(branching, None)
    graph.call.branch = node and graph.timeline.line_of(_torch.sequence_nr(node))


def in_gradients(timeline: Timeline, optimizer: torch.optim.Optimizer) -> Iterator[Diagnosis]:
    """Yield findings about the gradients that an optimizer's step has used."""
    all_steps = [step for step in timeline.steps if step.optimizer() is optimizer]
    steps = all_steps[-_STEPS:]
    numbers = [step.last_call for step in steps]
    pairs = [(p, p.grad) for p in parameters_of(optimizer) if p.grad is not None]
    storages = storages_in([parameter for parameter, _ in pairs] or parameters_of(optimizer))
    since = timeline.calls_since(numbers[0] if len(steps) == _STEPS else 0)
    calls = [call for call in since if call.leaves & storages]
    if not calls:
        return
    # A GradScaler calls the step of a fused optimizer, which then ignores such gradients.
    if calls[-1].is_finite and getattr(optimizer, "found_inf", None) is None:
        bad = [parameter for parameter, gradient in pairs if bool(gradient.isnan().any())]
        if bad:
            place = calls[-1].branch or calls[-1].location
            yield finding("gradient_nan", steps[-1].location, place, names_of(bad))
    if len(steps) < _STEPS or not all(
        any(a < c.number <= b and (pairs or c.whole) for c in calls)
        for a, b in itertools.pairwise(numbers)
    ):
        return
    if (
        timeline.cleared.get(optimizer, 0) <= numbers[0]
        and len({step.gradients for step in steps}) == 1  # the program has replaced none
        and not any(_is_written(timeline, g, steps[0].sequence_nr) for _, g in pairs)
    ):
        names = names_of(parameter for parameter, _ in pairs)
        yield finding("gradients_not_cleared", steps[-1].location, calls[-1].location, names)
    elif (
        timeline.cleared.get(optimizer, 0) > numbers[-2]  # its own parameters were reached
        and all(step.is_empty for step in all_steps)
        and all(_is_zeroed(timeline, gradient, calls[-1]) for _, gradient in pairs)
        and type(optimizer).__module__.startswith("torch.")  # it reads only .grad
        and not any(map(_torch.has_hooks, parameters_of(optimizer)))  # they may have stepped
    ):
        yield finding("gradients_cleared_early", steps[-1].location, calls[-1].location)


def _is_zeroed(timeline: Timeline, gradient: torch.Tensor, call: BackwardCall) -> bool:
    """Whether a line such as ``zero_grad()`` has changed a gradient in place after this call."""
    edits = timeline.edits_since(call.sequence_nr - 1, storage_of(gradient)[0])
    later = (edit.location for edit in edits if edit.last_call >= call.number)
    return any(location is not None and "zero" in location.text for location in later)


def _is_written(timeline: Timeline, gradient: torch.Tensor, since: int) -> bool:
    """Whether a line of the program changed the gradient in place, as decay does."""
    edits = timeline.edits_since(since, storage_of(gradient)[0])
    return any(edit.location is not None and source.writes_at(edit.location) for edit in edits)
