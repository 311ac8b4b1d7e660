"""Steps with gradients that are zero, missing, not numbers, or belong to earlier steps, too."""

import contextlib
import itertools
from collections.abc import Iterator

import torch

from gradtrace import _torch
from gradtrace.autograd import source
from gradtrace.autograd.frames import names_of, parting
from gradtrace.autograd.tensors import storage_of, storages_in
from gradtrace.autograd.traversal import leading_to, reachable
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.evidence.optimizers import Training, is_cleared
from gradtrace.explaining.silent.pending import PendingBackward, call_at, finding, optimizer_at
from gradtrace.watching.record import BackwardCall, OptimizerStep, Timeline, parameters_of

_STEPS = 4  # of one optimizer, between which its gradients were never cleared
# Nodes that return a gradient of zero for every input.
_FLAT = frozenset(
    f"{name}Backward{n}" for name in ("Ceil", "Floor", "Round", "Sign", "Trunc") for n in (0, 1)
)


def zero_derivatives(graph: PendingBackward) -> Iterator[Diagnosis]:
    """Yield findings if parameters reach the loss only where its derivative is zero."""
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
    """Record the facts that :func:`in_gradients` needs after the next step."""
    # The tensors of a compiler, and those inside torch.func, have no values that may be read.
    with contextlib.suppress(RuntimeError):
        graph.call.is_finite = all(
            type(output) is torch.Tensor and bool(output.detach().isfinite().all())
            for output in graph.outputs
        )
    leaves, cleared = [*graph.leaves.values()], set[int]()
    for optimizer in graph.timeline.optimizers:
        ids = set(map(id, parameters_of(optimizer)))
        own = [leaf for leaf in leaves if id(leaf) in ids]
        if own and all(map(is_cleared, own)):
            graph.timeline.cleared[optimizer] = graph.call.number
            cleared |= ids
    graph.call.starts_cleared = cleared.issuperset(map(id, leaves))
    hooked = graph.timeline.hooks_are_set or any(map(_torch.has_hooks, leaves))
    graph.call.is_used = hooked or any(isinstance(node, _torch.CUSTOM) for node in graph.live)
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
        last = [call for call in calls if call.number > numbers[-2]]
        others = [s.last_call for s in timeline.steps if s.optimizer() is not optimizer]
        before = max((n for n in others if last[0].number <= n < last[-1].number), default=0)
        # After the step of another loss's optimizer come the calls for this one.
        call = next(c for c in last if c.number > before) if before else last[-1]
        yield finding(
            "gradients_not_cleared",
            steps[-1].location,
            call.location,
            names_of(parameter for parameter, _ in pairs),
            facts=("of_another_loss",) if before else (),
            optimizer=optimizer_at(steps[-1]),
            call=call_at(call),
        )
    elif (
        timeline.cleared.get(optimizer, 0) > numbers[-2]  # its own parameters were reached
        and all(step.is_empty for step in all_steps)
        and all(_is_zeroed(timeline, gradient, calls[-1]) for _, gradient in pairs)
        and type(optimizer).__module__.startswith("torch.")  # it reads only .grad
        and not any(map(_torch.has_hooks, parameters_of(optimizer)))  # they may have stepped
    ):
        yield finding("gradients_cleared_early", steps[-1].location, calls[-1].location)
    elif calls[-1].starts_cleared and _use_one_of_several(timeline, steps, calls[-1]):
        place, names = calls[-1].location, names_of(parameter for parameter, _ in pairs)
        files = (code.co_filename for code in reversed(calls[-1].path))
        cleared_at = source.only_line(files, r".*\.zero_grad\(.*\)|.*\.grad = None")
        began_at, name = cleared_at or place, optimizer_at(steps[-1])
        yield finding("gradients_discarded", steps[-1].location, began_at, names, optimizer=name)


def _use_one_of_several(timeline: Timeline, steps: list[OptimizerStep], last: BackwardCall) -> bool:
    """Whether each of these steps used the last one of as many calls of the same line.

    The gradients of the others were cleared unused, and the weights were the same for all.
    """
    of_this_line = [c for c in timeline.calls if (c.path, c.leaves) == (last.path, last.leaves)]
    groups = [
        [call for call in of_this_line if a.last_call < call.number <= b.last_call]
        for a, b in itertools.pairwise(steps)
    ]
    if len({*map(len, groups)}) > 1 or not groups[0][1:] or not last.whole:
        return False
    edits = (e.last_call for storage in last.leaves for e in timeline.edits_since(-1, storage))
    (_, way), (_, called) = parting(steps[-1].path, last.path), parting(last.path, steps[-1].path)
    return (
        all(call.starts_cleared for group in groups for call in group[1:])
        and all(call.is_finite and not call.is_used for group in groups for call in group[:-1])
        and not any(group[0].number <= n < group[-1].number for n in edits for group in groups)
        and source.repeats_before(way, called[-1])
    )


def _is_zeroed(timeline: Timeline, gradient: torch.Tensor, call: BackwardCall) -> bool:
    """Whether a line such as ``zero_grad()`` has changed a gradient in place after this call."""
    edits = timeline.edits_since(call.sequence_nr - 1, storage_of(gradient)[0])
    later = (edit.location for edit in edits if edit.last_call >= call.number)
    return any(location is not None and "zero" in location.text for location in later)


def _is_written(timeline: Timeline, gradient: torch.Tensor, since: int) -> bool:
    """Whether a line of the program changed the gradient in place, as decay does."""
    edits = timeline.edits_since(since, storage_of(gradient)[0])
    return any(edit.location is not None and source.writes_at(edit.location) for edit in edits)
