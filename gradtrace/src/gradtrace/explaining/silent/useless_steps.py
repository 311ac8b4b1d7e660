"""Steps with gradients that are always zero, are not numbers, or belong to earlier steps, too."""

import contextlib
import itertools
import weakref
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
from gradtrace.watching.record import SCALED_TAG, Timeline, parameters_of

_STEPS = 4  # of one optimizer, between which its gradients were never cleared
# Nodes that return a gradient of zero for every input.
_FLAT = frozenset(
    f"{name}Backward{n}" for name in ("Ceil", "Floor", "Round", "Sign", "Trunc") for n in (0, 1)
)


def zero_derivatives(graph: PendingBackward) -> Iterator[Diagnosis]:
    """Yield a finding if parameters reach the loss only through operations of derivative zero."""
    flat = {i for i, node in enumerate(graph.live) if type(node).__name__ in _FLAT}
    if not flat:
        return
    roots = [i for i, users in enumerate(graph.users) if not users]
    receiving = reachable(graph.links, roots, flat)
    unreached = [leaf for i, leaf in graph.leaves.items() if i not in receiving]
    if untrained := Training(graph.timeline, graph.call.leaves).held(unreached):
        ids = set(map(id, untrained))
        cut_off = [i for i, leaf in graph.leaves.items() if id(leaf) in ids]
        # The node nearest to the parameters must change; one nearer to the loss need not.
        nearest = graph.live[max(flat & leading_to(cut_off, graph.users))]
        made_at = graph.timeline.line_of(_torch.sequence_nr(nearest))
        yield graph.finding("zero_derivative", made_at, carried_by=names_of(untrained))


def note_gradients(graph: PendingBackward) -> None:
    """Record the facts that :func:`in_gradients` needs after the next step.

    They are whether the loss is finite, the optimizers whose leaves in this graph have gradients of
    None or zeros only, whether an optimizer's last gradients were cleared unused, and the line of a
    ``torch.where()`` in the graph.
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
            if all(leaf.grad is None for leaf in own) and _wastes(graph, own):
                graph.call.discarded += (weakref.ref(optimizer),)
    if (read := graph.timeline.input_gradient) is not None:
        used = graph.timeline.cuts.used
        cuts = (cut for number in used.keys() & graph.numbers for cut in used[number])
        graph.call.follows_inputs = any(cut.number >= read.number for cut in cuts)
    branching = (node for node in graph.live if type(node).__name__ == "WhereBackward0")
    node = next(branching, None)
    graph.call.branch = node and graph.timeline.line_of(_torch.sequence_nr(node))


def _wastes(graph: PendingBackward, leaves: list[torch.Tensor]) -> bool:
    """Whether the same statement just computed gradients of these leaves that nothing used.

    No optimizer has stepped since, the leaves have not changed, and the program has read no
    gradient. Several losses of one graph may be compared by their gradients, autograd.grad returns
    them, a hook may read them, and a GradScaler skips steps.
    """
    timeline, call, storages = graph.timeline, graph.call, storages_in(leaves)
    stepped = timeline.steps[-1].last_call
    earlier = next(itertools.islice(reversed(timeline.calls), 1, None), call)
    return (
        max(stepped, timeline.last_read) < earlier.number < call.number
        and earlier.path == call.path
        and storages <= earlier.leaves
        and earlier.whole
        and not earlier.keeps_graph
        and SCALED_TAG not in graph.live[0].metadata
        and not any(map(_torch.has_hooks, leaves))
        and not any(any(timeline.edits_since(earlier.sequence_nr, storage)) for storage in storages)
    )


def in_gradients(timeline: Timeline, optimizer: torch.optim.Optimizer) -> Iterator[Diagnosis]:
    """Yield findings about the gradients that an optimizer's step has used."""
    steps = [step for step in timeline.steps if step.optimizer() is optimizer][-_STEPS:]
    numbers = [step.last_call for step in steps]
    pairs = [(p, p.grad) for p in parameters_of(optimizer) if p.grad is not None]
    storages = storages_in(parameter for parameter, _ in pairs)
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
    discarded = [call.discarded for call in timeline.calls if call.number in numbers[1:]]
    is_each = all(weakref.ref(optimizer) in optimizers for optimizers in discarded)
    place = steps[-1].location
    # A program may decide by its losses which ones to use.
    if len(discarded) == _STEPS - 1 and is_each and place and source.runs_at_intervals(place):
        names = names_of(parameter for parameter, _ in pairs)
        yield finding("gradients_discarded", place, calls[-1].location, names)
    if (
        len(steps) == _STEPS
        and timeline.cleared.get(optimizer, 0) <= numbers[0]
        and all(any(a < c.number <= b for c in calls) for a, b in itertools.pairwise(numbers))
        and not any(_is_written(timeline, g, steps[0].sequence_nr) for _, g in pairs)
    ):
        names = names_of(parameter for parameter, _ in pairs)
        yield finding("gradients_not_cleared", steps[-1].location, calls[-1].location, names)


def _is_written(timeline: Timeline, gradient: torch.Tensor, since: int) -> bool:
    """Whether a line of the program changed the gradient in place, as decay does."""
    edits = timeline.edits_since(since, storage_of(gradient)[0])
    return any(edit.location is not None and source.writes_at(edit.location) for edit in edits)
