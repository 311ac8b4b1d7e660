"""Gradients that differ from those that the program needs."""

import itertools
import sys
import weakref
from collections.abc import Iterator

import torch

from gradtrace import _torch
from gradtrace.autograd import source
from gradtrace.autograd.frames import Location, module_of, names_of, place_of, user_frame
from gradtrace.autograd.matching_names import named_like
from gradtrace.autograd.nodes import ALIVE
from gradtrace.autograd.saved import describe
from gradtrace.autograd.tensors import storage_of
from gradtrace.autograd.traversal import roots_of, upstream, walk
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.evidence.optimizers import Training, storages_of
from gradtrace.explaining.silent.pending import PendingBackward, call_at, finding, optimizer_at
from gradtrace.watching import record
from gradtrace.watching.cuts import Cut, elements_of
from gradtrace.watching.operation_kinds import LINEAR_NODES
from gradtrace.watching.record import SCALED_TAG, BackwardCall, Timeline, parameters_of
from gradtrace.watching.running_sums import with_scaled

_NEVER = 2**63  # a call that no program reaches
_MOST_OPTIMIZERS = 8  # whose losses are compared in pairs
_LOOKS_INSIDE = 20  # steps inside a backward that are looked at: an optimizer may make thousands


def used_without_graph(graph: PendingBackward) -> Iterator[Diagnosis]:
    """Yield findings about terms of this loss that are computed from a gradient without a graph.

    The gradient counts if it depends on this loss's parameters; any other may be meant as a number.
    """
    first_order = graph.timeline.first_order
    for sequence_nr in first_order.keys() & graph.numbers if first_order else ():
        cut = first_order.pop(sequence_nr)
        is_term = _is_linear(graph.numbers[sequence_nr], graph)
        through = cut.through if is_term else cut.through - cut.of
        if through & graph.call.leaves:
            yield graph.finding("create_graph_missing", cut.location)


def written_without_graph(graph: PendingBackward) -> Iterator[Diagnosis]:
    """Yield a finding if trained parameters of this loss were written from a gradient with a graph.

    ``create_graph=True`` requested that graph, but no call has used it, and this loss cannot.
    """
    timeline, call = graph.timeline, graph.call
    if timeline.creates_graph and record.tagged(graph.live, record.CREATED_TAG):
        timeline.creates_graph, timeline.written = False, {}
    elif call.whole and not timeline.written.keys().isdisjoint(call.leaves):
        leaves = [x for x in graph.leaves.values() if storage_of(x)[0] in timeline.written]
        if written := Training(timeline, call.leaves).held(leaves):
            place = timeline.written[storage_of(written[0])[0]]
            yield graph.finding("written_without_graph", place, carried_by=names_of(written))
    timeline.creates_graph |= call.creates_graph


def constant_terms(graph: PendingBackward) -> Iterator[Diagnosis]:
    """Yield findings about terms of this loss that were detached, or read, before they were added.

    So were new leaves that were made of such values, whose gradient the program does not read.
    They would train parameters of this loss, and no other call has used their graph in two
    iterations. Values of earlier iterations do not count, nor do the parts of
    ``soft + (hard - soft).detach()`` or ``x / 2 + (x / 2).detach()``, which are meant. A loss from
    which the program subtracts a detached value, such as a baseline, uses such values on purpose:
    it is not reported.
    """
    timeline, terms = graph.timeline, graph.timeline.terms
    leaves = _new_leaves(graph)
    if not len(terms) or terms.subtracted.keys() & graph.numbers:
        return
    trained = frozenset().union(*map(storages_of, timeline.optimizers)) & graph.call.leaves
    retaining = [c.leaves for c in timeline.calls if c.keeps_graph and c is not graph.call]
    for place, value in terms.detached.items():
        # A leaf that requires grad is meant to be trained, also beside the graph of its value.
        is_used = value is not None and value.roots & graph.numbers.keys()
        if is_used and place not in {*terms.reached.values(), *terms.of_integers}:
            terms.calls[place] = _NEVER
    added = terms.added.keys() & graph.numbers
    for i, cut in (*((graph.numbers[n], terms.added.pop(n)) for n in added), *leaves.items()):
        line = cut.location
        assert line is not None  # note_addition() and note_leaf() store no other cut
        value = terms.detached.setdefault(line, None)
        if value is None or cut.number < value.first or not value.leaves & trained:
            continue
        is_chosen = line not in terms.of_integers and source.is_conditional(line)
        if is_chosen or not _is_linear(i, graph):
            continue
        summands = (with_scaled(graph.live[j])[-1] for j in graph.links[i])
        is_meant = not value.numbers.isdisjoint(map(_torch.sequence_nr, summands))
        if is_meant or any(c >= value.leaves for c in retaining):
            continue
        first = terms.calls.setdefault(line, graph.call.number)
        if i in leaves and not _is_remade(graph.leaves[i], line, graph):
            continue
        if any(first <= step.last_call < graph.call.number for step in timeline.steps):
            terms.calls[line] = _NEVER
            is_copied = cut.how == "copy" and cut.shape is None  # into a tensor, not by item()
            facts = {"new_leaf": i in leaves, "of_integers": line in terms.of_integers}
            facts["cut_by_copy"] = is_copied and not any(facts.values())
            yield graph.finding("constant_term", line, facts=[f for f in facts if facts[f]])


def _new_leaves(graph: PendingBackward) -> dict[int, Cut]:
    """Return the leaves that were made since the last call of values without a graph."""
    terms = graph.timeline.terms
    made, terms.leaves = terms.leaves, {}
    terms.reached.clear()
    leaves = {}
    for i, leaf in graph.leaves.items() if made else ():
        cut = made.get(_torch.tensor_identity(leaf))
        if cut is not None and cut.location is not None:
            leaves[i], terms.reached[id(leaf)] = cut, cut.location
            terms.detached.setdefault(cut.location, None)
    return leaves


def _is_remade(leaf: torch.Tensor, line: Location, graph: PendingBackward) -> bool:
    """Whether the leaves of a line differ in their values, and no code reads their gradients.

    A value that never changes may not depend on the parameters.
    """
    terms, values = graph.timeline.terms, elements_of(leaf)
    if terms.of_leaves.setdefault(line, values) == values or line in terms.used:
        return False
    return not Training(graph.timeline, graph.call.leaves).held([leaf])


def still_scaled(graph: PendingBackward) -> Iterator[Diagnosis]:
    """Yield findings about gradients of a scaled loss that enter this loss while still scaled."""
    graph.call.is_scaled = record.tagged(graph.live[:1], SCALED_TAG)
    if not graph.call.is_scaled:
        return
    for i, node in enumerate(graph.live):
        made_at = None if i in graph.leaves else node.metadata.get(record.OF_SCALED_TAG)
        if made_at is not None and not _is_linear(i, graph, ends_at_factor=True):
            yield graph.finding("gradient_still_scaled", made_at)


def _is_linear(start: int, graph: PendingBackward, ends_at_factor: bool = False) -> bool:
    """Whether the loss is a sum, with factors, in which the result of a node is a summand.

    ``ends_at_factor`` asks only whether each use is such a sum up to a first factor, a number.
    """
    pending, visited = [*graph.users[start]], set()
    for i in pending:
        if i in visited:
            continue
        visited.add(i)
        name = type(graph.live[i]).__name__
        is_factor = name in ("MulBackward0", "DivBackward0") and len(graph.links[i]) == 1
        if name.partition("Backward")[0] in LINEAR_NODES or (is_factor and not ends_at_factor):
            pending += graph.users[i]
        elif not is_factor or SCALED_TAG in graph.live[i].metadata:
            return False
    return True


def saved_intermediates(graph: PendingBackward) -> Iterator[Diagnosis]:
    """Yield findings about custom functions whose second derivative lacks terms.

    Their forward computed a value, which therefore has no graph; an earlier backward pass used it
    as a constant, and this pass differentiates the earlier one's gradients.
    """
    call, kept = graph.call, graph.timeline.intermediates
    for name, (location, earlier) in [*kept.items()]:
        numbers = range(earlier.sequence_nr, earlier.ended_at)
        if earlier.on_accelerator or any(number in numbers for number in graph.numbers):
            del kept[name]
            yield graph.finding("intermediate_saved", location, carried_by=name)
    for node in graph.live if call.creates_graph and len(graph.timeline.cuts) else ():
        function = _torch.function_of(node)
        if function is None or _torch.is_once_differentiable(function):
            continue
        cuts = map(graph.timeline.cuts.get, _torch.kept_by_function(node))
        cut = next((cut for cut in cuts if cut is not None and cut.intermediate), None)
        if cut is not None:
            kept[place_of(function, "forward")] = cut.location, call


def stale_casts(graph: PendingBackward) -> Iterator[Diagnosis]:
    """Yield a finding if a weight's cast from before an optimizer step is used after the step."""
    # Autocast caches the casts of weights until its outermost block ends.
    if not graph.timeline.steps or not torch.is_autocast_cache_enabled():
        return
    for i, node in enumerate(graph.live):
        if type(node).__name__ != "ToCopyBackward0":
            continue
        weight = next((graph.leaves[j] for j in graph.links[i] if j in graph.leaves), None)
        if weight is None:
            continue
        edits = [*graph.timeline.edits_since(_torch.sequence_nr(node), storage_of(weight)[0])]
        users = (_torch.sequence_nr(graph.live[j]) for j in graph.users[i])
        if edits and any(number > edits[0].sequence_nr for number in users):
            block = source.region_around(user_frame(sys._getframe(1)), r"\bautocast\b")
            facts = () if all(edit.by_optimizer for edit in edits) else ("changed_directly",)
            yield graph.finding("autocast_stale", block or edits[0].location, facts=facts)
            return


def leaking(timeline: Timeline, optimizer: torch.optim.Optimizer) -> Iterator[Diagnosis]:
    """Yield findings about a step that also uses the gradient of another optimizer's loss.

    An example is a generator that feeds a discriminator. A step of the other optimizer between the
    calls of both losses, or their names, show which optimizer each loss is meant for. If it is the
    discriminator's loss that leaks, both must show it, and an earlier gradient of the discriminator
    must have been cleared unused.
    """
    if optimizer not in timeline.cleared:
        return
    storages = storages_of(optimizer)
    since = timeline.calls_since(timeline.cleared[optimizer])
    followed = [call for call in since if call.leaves & storages]
    links = [
        (call, partner, end is downstream, is_fed)
        for call in since
        for upstream, downstream, is_fed in call.links
        for end, opposite in ((downstream, upstream), (upstream, downstream))
        if end() is optimizer and (partner := opposite()) is not None
    ]
    for foreign_call, partner, is_downstream, is_fed in links:
        other_calls = [call for call in followed if call is not foreign_call]
        if not other_calls:
            continue
        foreign = storages_of(partner)
        numbers = [s.last_call for s in timeline.steps if s.optimizer() is partner]
        names = {o: names_of(parameters_of(o)) or "" for o in (optimizer, partner)}
        steps = {s.optimizer(): s.location.text for s in timeline.steps if s.location is not None}
        described = {o: f"{name} {steps.get(o)}" for o, name in names.items()}
        for loss_call in other_calls:
            # A loss that compares two networks may be meant for both.
            between = range(foreign_call.number, loss_call.number)
            has_stepped = is_fed and any(number in between for number in numbers)
            places = loss_call.location, foreign_call.location
            lines = [place.text if place else "" for place in places]
            named = [named_like(line, described) for line in lines] == [optimizer, partner]
            if not is_downstream:
                leaks = has_stepped and named and _is_discarded(timeline, loss_call, partner)
            else:
                leaks = (has_stepped or named) and not loss_call.leaves & foreign
            if leaks:
                adds_up = [c.location for c in followed].count(loss_call.location) > 1
                facts = ("adds_up",) if adds_up else () if has_stepped else ("together",)
                yield finding(
                    "gradient_leaks",
                    *places,
                    carried_by=names[optimizer],
                    facts=facts,
                    own=module_of(parameters_of(partner), parameters_of(optimizer)),
                    optimizer=optimizer_at(timeline.steps[-1]),
                    call=call_at(loss_call),
                )


def _is_discarded(timeline: Timeline, call: BackwardCall, optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer's gradients from an earlier call of this line were cleared unused."""
    storages, cleared = storages_of(optimizer), timeline.cleared.get(optimizer, 0)
    same_line = (c for c in timeline.calls if c.location == call.location and c.leaves & storages)
    earlier = [c.number for c in same_line if c.number < cleared]
    steps = (s.last_call for s in timeline.steps if s.optimizer() is optimizer)
    return bool(earlier) and not any(earlier[-1] <= number < cleared for number in steps)


def note_optimizers(graph: PendingBackward) -> None:
    """Record how the leaves of several optimizers are linked in this graph."""
    timeline, call = graph.timeline, graph.call
    if len(timeline.optimizers) < 2 or not call.whole:
        return
    owners = ((optimizer, storages_of(optimizer)) for optimizer in timeline.optimizers)
    optimizers = [(o, storages) for o, storages in owners if storages & call.leaves]
    # One for each layer or parameter: they belong to one loss.
    if 1 < len(optimizers) <= _MOST_OPTIMIZERS:
        owners_of = {
            i: {n for n, (_, storages) in enumerate(optimizers) if storage_of(leaf)[0] in storages}
            for i, leaf in graph.leaves.items()
        }
        references = [weakref.ref(optimizer) for optimizer, _ in optimizers]
        fed = upstream(owners_of, graph.links)
        pairs = itertools.permutations(range(len(optimizers)), 2)
        call.links = tuple(
            (references[a], references[b], (a, b) in fed)
            for a, b in sorted(pairs, key=lambda pair: pair not in fed)
            if (a, b) in fed or (b, a) not in fed
        )


def in_step(timeline: Timeline) -> Iterator[Diagnosis]:
    """Yield a finding if a step inside a backward pass changed a tensor that it uses, unnoticed."""
    if not timeline.running or timeline.looked_inside >= _LOOKS_INSIDE:
        return
    timeline.looked_inside += 1
    call, outputs = timeline.running[-1]
    if call.keeps_graph:  # nodes that have run cannot be distinguished from the others
        return
    step = timeline.steps[-1]
    nodes = describe(*walk(roots_of(outputs)))
    alive = (saved for node in nodes for saved in node.saved if saved.state == ALIVE)
    if any(saved.storage in (step.storages or ()) for saved in alive):
        yield finding("step_inside_backward", call.location, step.location)
