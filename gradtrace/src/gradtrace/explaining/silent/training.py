"""Parameters of an optimizer that never get a gradient."""

from __future__ import annotations

import itertools
import re
import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence

import torch

from gradtrace import _torch
from gradtrace.autograd import source
from gradtrace.autograd.frames import (
    Found,
    Location,
    belongs_to_user,
    namespace,
    reach,
    user_frames,
)
from gradtrace.autograd.tensors import storage_of
from gradtrace.autograd.traversal import undisturbed
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.silent.finding import finding
from gradtrace.watching.record import BackwardCall, Stray, Timeline, Untrained

_FEW, _LATEST = 3, 8  # steps of an optimizer: after so many, what has no gradient is looked at
_MAX_STRAYS = 10_000
_GROWN = 2  # times that a gradient has grown without being cleared
_NAMES = 4  # shown


def untrained(timeline: Timeline, optimizer: torch.optim.Optimizer) -> Iterator[Diagnosis]:
    """What the optimizer holds and never gets a gradient, after its first steps.

    Either the parameters were replaced and nothing leads to them any more, or a cut lies between
    them and the loss: that is looked for in the steps after these.  What no loss uses is left out.
    What runs in ``no_grad()``, or is detached outside of a module's forward, may be meant so, for a
    while or for ever: see :func:`never_trained`.
    """
    known = timeline.untrained.get(id(optimizer))
    if known is not None and known.optimizer() is not optimizer:
        known = None  # of another one, that had this address
    if known is not None and not known.places and not known.doubtful:
        return  # as mostly
    held = [one for group in optimizer.param_groups for one in group["params"]]
    if known is None:
        known = timeline.untrained[id(optimizer)] = Untrained(
            weakref.ref(optimizer), [*range(len(held))]
        )
    known.steps += 1
    known.last_step = timeline.steps[-1].location
    with _torch.no_torch_function(), undisturbed():
        known.places = _without_gradient(known.places, held)
        known.doubtful = {
            location: (places, names)
            for location, (places, names) in known.doubtful.items()
            if _without_gradient(places, held) == places
        }
        if known.steps == _FEW:
            yield from _replaced(timeline, optimizer, known, held)
        elif known.steps > _FEW:
            yield from _cut_off(timeline, known, held)


def in_no_optimizer(
    timeline: Timeline, call: BackwardCall, live: Sequence[_torch.LiveNode]
) -> Iterator[Diagnosis]:
    """Parameters that get gradients, and that no optimizer steps, though it was meant to.

    They are in a list or dict of a module whose other parameters an optimizer holds, or they have
    replaced one that it still holds.  Their gradients grow and are never cleared.  A network that
    somebody forgot to freeze is neither.
    """
    if not timeline.steps or not call.whole:
        return
    held = {id(p) for o in timeline.optimizers for group in o.param_groups for p in group["params"]}
    if len(timeline.strays) > _MAX_STRAYS:
        timeline.strays.clear()
    grown = []
    for node in live:
        if not isinstance(node, _torch.LEAF) or id(leaf := node.variable) in held:
            continue
        gradient, stray = leaf.grad, timeline.strays.setdefault(id(leaf), Stray())
        seen = (0, 0) if gradient is None else (id(gradient), gradient._version)
        is_growing = seen == (stray.gradient, stray.version + 1)
        stray.gradient, stray.version = seen
        stray.count = stray.count + 1 if is_growing else 0
        if stray.count == _GROWN:
            grown.append(leaf)
    if grown:
        with undisturbed():
            yield from _strays(timeline, call, grown, held)


def _strays(
    timeline: Timeline, call: BackwardCall, grown: list[torch.Tensor], held: set[int]
) -> Iterator[Diagnosis]:
    spaces = (namespace(frame, forget=True) for frame in user_frames(sys._getframe(1)))
    reached = {id(one.value): one for space in spaces for one in reach(space)}
    lost = [
        parameter
        for optimizer in timeline.optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
        if id(parameter) not in reached and storage_of(parameter)[0] not in call.leaves
    ]
    places: dict[Location | None, list[torch.Tensor]] = {}
    for leaf in grown:
        variable = reached.get(id(leaf))
        hidden = variable is not None and _is_hidden(variable, held)
        if variable is not None and (hidden or lost):
            places.setdefault(_assigned_at(variable, hidden), []).append(leaf)
    evidence = ("replaced",) if lost else ()
    for place, leaves in places.items():
        names = names_of(leaves)
        yield finding(
            "in_no_optimizer", call.location, place or call.location, names, evidence=evidence
        )


def _is_hidden(variable: Found, held: set[int]) -> bool:
    """Whether it is in a container of a module, so that module.parameters() lacks it."""
    for module, inside in itertools.pairwise(variable.owners):
        if isinstance(module, torch.nn.Module) and isinstance(inside, (list, tuple, dict)):
            registered = inside in (module._parameters, module._modules, module._buffers)
            others = next(iter(_roots(variable)), module).parameters()
            return not registered and any(id(one) in held for one in others)
    return False


def _roots(variable: Found) -> list[torch.nn.Module]:
    return [one for one in variable.owners if isinstance(one, torch.nn.Module)]


def _assigned_at(variable: Found, hidden: bool) -> Location | None:
    """The line that assigned it, or the container it is in, to an attribute of a module."""
    for name in reversed(re.findall(r"\.([A-Za-z_]\w*)", variable.name)):
        for owner in reversed(variable.owners):
            if name not in dir(owner) or not belongs_to_user(type(owner)):
                continue
            file = sys.modules[type(owner).__module__].__file__ or ""
            lines = source.assignments_of(file, name, in_init=hidden)
            if lines:
                return Location(file, lines[-1 if not hidden else 0])
    return None


def _without_gradient(places: Iterable[int], held: Sequence[torch.Tensor]) -> list[int]:
    off = (i for i in places if i < len(held))
    return [i for i in off if held[i].requires_grad and held[i].grad is None]


def never_trained(timeline: Timeline) -> Iterator[Diagnosis]:
    """What was cut off where it may have been meant, and never got a gradient until the end."""
    for known in timeline.untrained.values():
        for location, (_, names) in known.doubtful.items():
            yield finding("never_trained", known.last_step, location, names)
        known.doubtful = {}


def _replaced(
    timeline: Timeline,
    optimizer: torch.optim.Optimizer,
    known: Untrained,
    held: list[torch.Tensor],
) -> Iterator[Diagnosis]:
    spaces = [(frame, namespace(frame, forget=True)) for frame in user_frames(sys._getframe(1))]
    reached = {id(found.value) for _, space in spaces for found in reach(space)}
    gone = [i for i in known.places if id(held[i]) not in reached]
    known.places = [i for i in known.places if id(held[i]) in reached]
    timeline.suspects.update((_torch.tensor_identity(held[i]), None) for i in known.places)
    others = any(id(one) in reached for one in held)
    if gone and (others or _trains_nothing_held(timeline)):
        made = (
            Location(frame.f_code.co_filename, line)
            for frame, space in spaces
            for name, value in space.items()
            if value is optimizer and (line := source.assigned_at(frame, name)) is not None
        )
        step = timeline.steps[-1].location
        yield finding("optimizer_holds_replaced", step, next(made, step))


def _trains_nothing_held(timeline: Timeline) -> bool:
    """Whether no optimizer holds anything of what the last backward gave gradients to."""
    call = next((one for one in reversed(timeline.calls) if one.whole), None)
    if call is None or not call.leaves:
        return False
    optimizers = (known.optimizer() for known in timeline.untrained.values())
    return not any(
        storage_of(parameter)[0] in call.leaves
        for optimizer in optimizers
        if optimizer is not None
        for group in optimizer.param_groups
        for parameter in group["params"]
    )


def _cut_off(timeline: Timeline, known: Untrained, held: list[torch.Tensor]) -> Iterator[Diagnosis]:
    if not known.places:
        return
    nothing = all(one.grad is None for one in held)
    sure: dict[Location, list[int]] = {}
    doubtful: dict[Location, list[int]] = {}
    for i in known.places:
        found = timeline.suspects.get(_torch.tensor_identity(held[i]))
        if found is None or _others_train(timeline, known, held[i]):
            continue
        cut, meant = found
        location = cut.location
        if location is None or source.is_conditional(location):
            continue  # the program says when
        if not meant or (nothing and cut.how != "region"):
            sure.setdefault(location, []).append(i)
        elif location in timeline.fed and not _goes_another_way(timeline, held[i]):
            doubtful.setdefault(location, []).append(i)
    for location, places in sure.items():
        names = names_of(held[i] for i in places)
        yield finding("never_trained", timeline.steps[-1].location, location, names)
    if sure or known.steps > _LATEST:
        known.doubtful = {
            location: (places, names_of(held[i] for i in places))
            for location, places in doubtful.items()
        }
        for i in known.places:
            timeline.suspects.pop(_torch.tensor_identity(held[i]), None)
        known.places = []


def _others_train(timeline: Timeline, known: Untrained, parameter: torch.Tensor) -> bool:
    """Whether another optimizer has made steps with a gradient of this parameter."""
    storage = storage_of(parameter)[0]
    return any(
        step.optimizer() is not known.optimizer() and storage in (step.storages or ())
        for step in tuple(timeline.steps)
    )


def _goes_another_way(timeline: Timeline, parameter: torch.Tensor) -> bool:
    """Whether the program itself writes the parameter, or its module is in eval mode."""
    edits = timeline.edits_since(-1, storage_of(parameter)[0])
    if any(edit.last_call and not edit.by_optimizer for edit in edits):
        return True
    owners = (
        found.owners[-1]
        for frame in user_frames(sys._getframe(1))
        for found in reach(namespace(frame, forget=True))
        if found.value is parameter and found.owners
    )
    return any(isinstance(one, torch.nn.Module) and not one.training for one in owners)


def names_of(parameters: Iterable[torch.Tensor]) -> str | None:
    """What the variables call them."""
    wanted = {id(one) for one in parameters}
    spaces = (namespace(frame, forget=True) for frame in user_frames(sys._getframe(1)))
    names = [one.name for space in spaces for one in reach(space) if id(one.value) in wanted]
    shown = ", ".join([*dict.fromkeys(names)][:_NAMES])
    more = f" and {len(wanted) - _NAMES} more" if len(wanted) > _NAMES else ""
    return shown + more or None
