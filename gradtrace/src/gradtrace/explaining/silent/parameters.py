"""Parameters that never get a gradient, or that no optimizer steps."""

import itertools
import re
import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType

import torch

from gradtrace import _torch
from gradtrace.autograd import frames, source
from gradtrace.autograd.frames import Found, Location, names_of, user_variables
from gradtrace.autograd.tensors import storage_of
from gradtrace.autograd.traversal import upstream
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.evidence import carriers
from gradtrace.explaining.evidence.optimizers import Training, is_cleared, storages_of
from gradtrace.explaining.silent.pending import PendingBackward, finding
from gradtrace.watching.cuts import Cut
from gradtrace.watching.record import OptimizerStep, Stray, Timeline, Untrained, parameters_of

_FEW, _LATEST = 2, 8  # the first and last step at which missing gradients are examined
_MAX_STRAYS = 10_000
_REMADE = 4  # backward calls that reach parameters which one line has made
_GROWN = 2  # times that a gradient has grown without being cleared
_COPIES = re.compile(r"\b(deepcopy|(load_)?state_dict)\b")


def untrained(timeline: Timeline, optimizer: torch.optim.Optimizer) -> Iterator[Diagnosis]:
    """Yield findings about an optimizer's parameters that had no gradient in its first steps.

    Either no variable reaches them any more, or a cut separates them from the loss; parameters that
    no loss uses do not count. A computation in ``no_grad()``, or a tensor detached outside of a
    module's forward, may be intended, for a while or until the end: see :func:`never_trained`.
    """
    parameters = parameters_of(optimizer)
    entry = timeline.untrained.get(id(optimizer))
    if entry is None or entry.optimizer() is not optimizer:  # another one had this address
        places = [*range(len(parameters))]
        entry = timeline.untrained[id(optimizer)] = Untrained(weakref.ref(optimizer), places)
    if not entry.places and not entry.doubtful:
        return
    entry.steps += 1
    entry.last_step = timeline.steps[-1].location
    entry.places = _without_gradient(entry.places, parameters)
    for cause, (places, _) in [*entry.doubtful.items()]:
        if _without_gradient(places, parameters) != places:
            del entry.doubtful[cause]
    if entry.steps == _FEW:
        yield from _replaced(timeline, optimizer, entry)
    elif entry.steps > _FEW:
        yield from _cut_off(timeline, entry, parameters)


def note_leaf(graph: PendingBackward) -> None:
    """Record the line that made this loss if it is a leaf, so that backward() trains nothing."""
    if not graph.numbers and isinstance(graph.outputs[0], torch.Tensor):
        graph.call.made_of_numbers_at = _assigned_at(graph.outputs[0], sys._getframe(1))


def in_no_optimizer(graph: PendingBackward) -> Iterator[Diagnosis]:
    """Yield findings about parameters that get gradients but that no optimizer steps.

    They are in a list or dict of a module whose other parameters an optimizer steps, or they have
    replaced a parameter that it still steps, or were unfrozen, or are last in such a module, and
    their gradients grow and are never cleared. Another network that is not trained, but was never
    frozen either, is not reported.
    Leaves that the program itself updates are reported if their gradients are never cleared.
    """
    timeline = graph.timeline
    if not graph.call.whole:
        return
    stepped = {id(p) for optimizer in timeline.optimizers for p in parameters_of(optimizer)}
    if len(timeline.strays) > _MAX_STRAYS:
        timeline.strays.clear()
    grown, updated = [], []
    # The gradients that a step has used must have grown since.
    has_stepped = bool(timeline.steps) and timeline.steps[0].last_call < graph.call.number - 1
    for leaf in graph.leaves.values():
        if id(leaf) in stepped:
            continue
        gradient, stray = leaf.grad, timeline.strays.setdefault(id(leaf), Stray(graph.call.number))
        identity = (0, 0) if gradient is None else (id(gradient), _torch.version_of(gradient) or 0)
        # gradient.data.zero_() clears a gradient and leaves its version counter as it is.
        is_growing = identity == (stray.gradient, stray.version + 1) and not is_cleared(leaf)
        stray.gradient, stray.version = identity
        stray.count = stray.count + 1 if is_growing and has_stepped else 0
        if stray.count == _GROWN:
            grown.append(leaf)
        is_updated = is_growing and stray.is_read and _is_changed(timeline, leaf, stray)
        stray.updates = stray.updates + 1 if is_updated else 0
        stray.storage, stray.is_read = storage_of(leaf)[0], False
        if stray.updates == _GROWN:
            updated.append(leaf)
    if grown:
        yield from _strays(graph, grown, stepped)
    if updated:
        place, names = graph.call.location, names_of(updated)
        yield graph.finding("gradients_not_cleared", place, carried_by=names, facts=("by_hand",))


def _is_changed(timeline: Timeline, leaf: torch.Tensor, stray: Stray) -> bool:
    """Whether a line has changed the leaf, or given it other memory, since the previous call."""
    storage, previous = storage_of(leaf)[0], timeline.calls[-2]
    edits = timeline.edits_since(previous.sequence_nr - 1, storage)
    return storage != stray.storage or any(e.last_call == previous.number for e in edits)


def made_in_forward(graph: PendingBackward) -> Iterator[Diagnosis]:
    """Yield findings about parameters that each forward pass creates, so that no step uses them."""
    timeline = graph.timeline
    new, timeline.made_in_forward = timeline.made_in_forward, {}
    if not new or not graph.call.whole:
        return
    leaves = [leaf for leaf in graph.leaves.values() if id(leaf) in new]
    timeline.made_and_reached = {id(leaf): new[id(leaf)][0] for leaf in leaves}
    for place in {*timeline.made_and_reached.values()}:
        timeline.calls_of_made[place] += 1
        # A parameter made of computed values cuts those off, which never_trained() reports.
        made_here = (leaf for leaf in leaves if new[id(leaf)] == (place, False))
        created = [leaf for leaf in made_here if not _torch.has_hooks(leaf)]
        is_due = timeline.calls_of_made[place] == _REMADE and bool(timeline.steps)
        if is_due and created and not Training(timeline, graph.call.leaves).held(created):
            yield graph.finding("made_in_forward", place, carried_by=names_of(created))


def _strays(
    graph: PendingBackward, grown: list[torch.Tensor], stepped: set[int]
) -> Iterator[Diagnosis]:
    """Yield a finding for each line that hid or unfroze these parameters, or replaced others."""
    variables = {id(variable.value): variable for variable in user_variables(sys._getframe(1))}
    strays = graph.timeline.strays
    began = min(strays[id(leaf)].first_call for leaf in grown)
    steps = [step for step in graph.timeline.steps if step.last_call >= began]
    replaced = {
        parameter: optimizer
        for optimizer in {step.optimizer() for step in steps}
        if optimizer is not None
        for parameter in parameters_of(optimizer)
        if id(parameter) not in variables and storage_of(parameter)[0] not in graph.call.leaves
    }
    training = Training(graph.timeline, graph.call.leaves)
    if replaced and not training.held([*graph.leaves.values()]):  # nothing of this loss is trained
        yield _stale(next(iter(replaced.values())), steps[-1])
        return
    places: dict[Location | None, list[torch.Tensor]] = {}
    containers: dict[Location | None, dict[int, Found]] = {}
    unfrozen: dict[Location, list[torch.Tensor]] = {}
    last: list[torch.Tensor] = []
    trained = {id(leaf) for leaf in training.held(grown)}
    for leaf in grown:
        if id(leaf) in trained:  # by an optimizer that has not stepped yet
            continue
        variable, unfrozen_at = variables.get(id(leaf)), strays[id(leaf)].unfrozen_at
        container = None if variable is None else _hiding(variable, stepped)
        # The program may itself update a parameter that belongs to no module.
        owners = () if variable is None else variable.owners
        is_part = any(isinstance(owner, torch.nn.Module) for owner in owners)
        if unfrozen_at is not None and steps and is_part and container is None:
            unfrozen.setdefault(unfrozen_at, []).append(leaf)
        elif container is not None:
            place = carriers.filled_at(container, first=True)
            places.setdefault(place, []).append(leaf)
            containers.setdefault(place, {})[id(container.value)] = container
        elif variable is not None and replaced:
            places.setdefault(carriers.filled_at(variable), []).append(leaf)
        elif variable is not None and _is_trained_in_part(variable, stepped):
            last.append(leaf)
    if last and steps and _follow_the_trained(graph, stepped):
        created, names = _created_at(steps[-1], sys._getframe(1)), names_of(last)
        yield graph.finding("in_no_optimizer", created, carried_by=names, facts=("left_out",))
    for unfrozen_at, leaves in unfrozen.items():
        names = names_of(leaves)
        yield graph.finding("in_no_optimizer", unfrozen_at, carried_by=names, facts=("unfrozen",))
    shapes = {parameter.shape for parameter in replaced}
    for place, leaves in places.items():
        began_at = place or graph.call.location
        is_reshaped = any(leaf.shape not in shapes for leaf in leaves)
        facts = ("replaced", "reshaped")[: 1 + is_reshaped] if replaced else ()
        lists = map(_registered, containers.get(place, {}).values())
        texts = {"carried_by": names_of(leaves), "registered": " and ".join(filter(None, lists))}
        yield graph.finding("in_no_optimizer", began_at, facts=facts, **texts)


def _is_trained_in_part(variable: Found, stepped: set[int]) -> bool:
    """Whether an optimizer steps others of the outermost module, and all modules are training."""
    modules = [owner for owner in variable.owners if isinstance(owner, torch.nn.Module)]
    parameters = modules[0].parameters() if modules else ()
    return any(id(p) in stepped for p in parameters) and all(m.training for m in modules)


def _follow_the_trained(graph: PendingBackward, stepped: set[int]) -> bool:
    """Whether the loss reaches the trained leaves through the others, which are fewer elements.

    The others may be a head that the optimizer was not given. A backbone that comes before the
    trained leaves, or is larger, was rather not frozen, which does no harm.
    """
    owners = {i: {id(leaf) in stepped} for i, leaf in graph.leaves.items()}
    sizes = Counter[bool]()
    for leaf in graph.leaves.values():
        sizes[id(leaf) in stepped] += leaf.numel()
    pairs = upstream(owners, graph.links)
    return (True, False) in pairs and (False, True) not in pairs and sizes[False] < sizes[True]


def _hiding(variable: Found, stepped: set[int]) -> Found | None:
    """Return the plain container that hides a parameter from a module whose others are stepped."""
    outermost = next((o for o in variable.owners if isinstance(o, torch.nn.Module)), None)
    for i, (module, container) in enumerate(itertools.pairwise(variable.owners), 1):
        if isinstance(module, torch.nn.Module) and isinstance(container, (list, tuple, dict)):
            registered = any(container is known for known in _torch.registered_by(module))
            parameters = () if outermost is None else outermost.parameters()
            is_hidden = not registered and any(id(p) in stepped for p in parameters)
            name = "".join(carriers.parts_of(variable.name)[: i + 1])
            return Found(name, container, variable.owners[:i]) if is_hidden else None
    return None


def _registered(container: Found) -> str | None:
    """Return a text for a container of modules, or parameters, that a module searches."""
    entries = container.value
    kind = "Dict" if isinstance(entries, dict) else "List"
    values = [*(entries.values() if isinstance(entries, dict) else entries)]
    for entry in (torch.nn.Module, torch.nn.Parameter):
        if all(isinstance(value, entry) for value in values):
            return f"make {container.name} an nn.{entry.__name__}{kind}"
    return None


def _without_gradient(places: Iterable[int], parameters: Sequence[torch.Tensor]) -> list[int]:
    valid = (i for i in places if i < len(parameters))
    return [i for i in valid if parameters[i].requires_grad and parameters[i].grad is None]


def never_trained(timeline: Timeline) -> Iterator[Diagnosis]:
    """Yield findings about parameters that never got a gradient, by a cut that may be intended."""
    for entry in timeline.untrained.values():
        for (location, fact), (_, names) in entry.doubtful.items():
            yield finding("never_trained", entry.last_step, location, names, facts=(fact,))
        entry.doubtful = {}


def _replaced(
    timeline: Timeline, optimizer: torch.optim.Optimizer, entry: Untrained
) -> Iterator[Diagnosis]:
    """Yield a finding if no variable reaches some parameters now; the others become suspects."""
    frame, parameters = sys._getframe(1), parameters_of(optimizer)
    variables = [*user_variables(frame)]
    lists = _given_to_optimizer(variables, parameters)
    if lists:
        variables = [*user_variables(frame, lists)]
    reachable = {id(variable.value) for variable in variables}
    replaced = [i for i in entry.places if id(parameters[i]) not in reachable]
    entry.places = [i for i in entry.places if id(parameters[i]) in reachable]
    timeline.suspects.update((_torch.tensor_identity(parameters[i]), {}) for i in entry.places)
    # If all are out of reach, they may still be trained.
    in_use = any(id(parameter) in reachable for parameter in parameters)
    # If optimizers hold all leaves of the loss, the new parameters are trained, too.
    leaves = next((call.leaves for call in reversed(timeline.calls) if call.whole), frozenset())
    untrained = leaves.difference(*map(storages_of, timeline.optimizers))
    if max(timeline.calls_of_made.values(), default=0) >= _FEW:
        return  # the forward pass replaces them, so a later optimizer would not hold them either
    if replaced and untrained and (in_use or untrained == leaves):
        yield _stale(optimizer, timeline.steps[-1])


def _stale(optimizer: torch.optim.Optimizer, step: OptimizerStep) -> Diagnosis:
    """Return the finding about an optimizer of replaced parameters, at the last step."""
    created = _assigned_at(optimizer, sys._getframe(1))
    return finding("optimizer_holds_replaced", step.location, created or step.location)


def _given_to_optimizer(variables: list[Found], parameters: list[torch.Tensor]) -> set[int]:
    """Return the lists, by identity, from which an optimizer of a module's parameters was made."""
    modules = {id(o): o for v in variables for o in v.owners if isinstance(o, torch.nn.Module)}
    registered = {id(p) for module in modules.values() for p in module.parameters()}
    module_parameters = registered & set(map(id, parameters))
    lists = (v.owners[-1] for v in variables if v.owners and isinstance(v.owners[-1], list))
    return {id(entries) for entries in lists if module_parameters & set(map(id, entries))}


def _assigned_at(value: object, frame: FrameType | None) -> Location | None:
    """Return the line that assigned the innermost user variable with this value."""
    places = (
        Location(user_frame.f_code.co_filename, line)
        for user_frame in frames.user_frames(frame)
        for name, local in frames.namespace(user_frame, forget=True).items()
        if local is value and (line := source.assigned_at(user_frame, name)) is not None
    )
    return next(places, None)


def _created_at(step: OptimizerStep, frame: FrameType | None) -> Location | None:
    """Return the line that assigned the optimizer to a variable, or to an attribute."""
    name = source.receiver_at(step.location, "step")
    files = (user_frame.f_code.co_filename for user_frame in frames.user_frames(frame))
    attribute = source.only_line(files, rf"{re.escape(name)} = .*") if name else None
    return _assigned_at(step.optimizer(), frame) or attribute


def _cut_off(
    timeline: Timeline, entry: Untrained, parameters: list[torch.Tensor]
) -> Iterator[Diagnosis]:
    """Yield findings about parameters that a cut separates from the loss; store doubtful ones."""
    if not entry.places:
        return
    in_vain = entry.steps > _FEW + 1 and all(parameter.grad is None for parameter in parameters)
    groups: dict[tuple[Location, str, bool], list[int]] = {}
    # A loss that was made of numbers, and requires grad, is a leaf.
    made_at = timeline.calls[-1].made_of_numbers_at if timeline.calls else None
    is_leaf = all(call.made_of_numbers_at is not None for call in timeline.calls)
    without_graph = Cut("copy", made_at) if is_leaf else None
    for i in entry.places:
        suspect = timeline.suspects.get(_torch.tensor_identity(parameters[i]), {})
        # What a program detaches on purpose may be a target of its loss.
        cuts = {
            cut: (cut not in timeline.fed, meant, cut.how == "operation")
            for cut, meant in suspect.items()
            if (cut in timeline.fed and (cut.feeds or not meant))
            or (_may_be_used(cut) and not meant)
        }
        cut = min(cuts, key=cuts.__getitem__, default=without_graph if in_vain else None)
        if cut is None or cut.location is None:
            continue
        if cut.how != "checkpoint" and source.is_conditional(cut.location):
            continue  # the program decides when the parameter is trained
        if _is_trained_elsewhere(timeline, entry, parameters[i]):
            continue
        if not _is_changed_otherwise(timeline, parameters[i]):
            # What chose indices may be trained later, by another loss.
            sure = not suspect.get(cut) or (in_vain and cut.how != "region")
            sure = sure and not cut.to_integers
            groups.setdefault((cut.location, _fact_of(cut), sure), []).append(i)
    entry.doubtful = {}
    for (location, fact, sure), places in groups.items():
        names = names_of(parameters[i] for i in places)
        if sure:
            step = timeline.steps[-1].location
            yield finding("never_trained", step, location, names, facts=(fact,))
        elif fact in ("to_integers", "region") or in_vain or entry.steps > _LATEST:
            entry.doubtful[location, fact] = places, names
    if entry.steps > _LATEST or any(sure for *_, sure in groups):
        for i in entry.places:
            timeline.suspects.pop(_torch.tensor_identity(parameters[i]), None)
        entry.places = []


def _may_be_used(cut: Cut) -> bool:
    """Whether a loss may use a value that Python read in a forward pass or stored in a variable."""
    text = "" if cut.location is None else cut.location.text
    return cut.shape is not None and (cut.feeds or re.match(r"[\w.]+ *[-+*/]?= ", text) is not None)


def _fact_of(cut: Cut) -> str:
    """Return the fact about a cut that decides the advice."""
    if cut.to_integers:
        return "to_integers"
    if cut.location is not None and _COPIES.search(cut.location.text):
        return "copied"
    if cut.location is not None and source.has_straight_through(cut.location):
        return "straight_through"
    return {"checkpoint": "in_a_checkpoint", "copy": "cut_by_copy"}.get(cut.how, cut.how)


def _is_trained_elsewhere(timeline: Timeline, entry: Untrained, parameter: torch.Tensor) -> bool:
    """Whether another optimizer has made steps with a gradient of this parameter."""
    storage = storage_of(parameter)[0]
    others = (s for s in tuple(timeline.steps) if s.optimizer() is not entry.optimizer())
    return any(storage in (step.storages or ()) for step in others)


def _is_changed_otherwise(timeline: Timeline, parameter: torch.Tensor) -> bool:
    """Whether the parameter was changed, except by optimizers, or its module is in eval mode."""
    edits = timeline.edits_since(-1, storage_of(parameter)[0])
    # Before the first backward call, an edit is an initialization.
    if any(edit.last_call and not edit.by_optimizer for edit in edits):
        return True
    holders = (v for v in user_variables(sys._getframe(1)) if v.value is parameter and v.owners)
    owners = (variable.owners[-1] for variable in holders)
    return any(isinstance(owner, torch.nn.Module) and not owner.training for owner in owners)
