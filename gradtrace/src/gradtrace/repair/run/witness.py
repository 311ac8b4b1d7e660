"""What a run of a program does to its parameters, call by call: the evidence for the judge.

A :class:`Witness` listens to the engine beside a strict watch.  Before each backward it looks at
the graph that is about to run; after it, at what the call added to each ``.grad``; at each step of
an optimizer, at the gradient that the step used and the calls it came from.  It changes nothing: a
loss's gradient *taken alone* is the difference between ``.grad`` after its backward and before.

Of a tensor it keeps a :class:`~gradtrace.repair.run.observations.Sample`: runs of other processes
can be compared with that.
"""

from __future__ import annotations

import functools
import linecache
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch

from gradtrace import _torch
from gradtrace.autograd.frames import namespace, reach, user_frames
from gradtrace.autograd.tensors import storage_of
from gradtrace.autograd.traversal import roots_of, undisturbed, users_of, walk
from gradtrace.explaining.evidence.training import leaves_first, upstream
from gradtrace.repair.run.observations import (
    Call,
    Carrier,
    Cleared,
    Limits,
    Optimizer,
    Place,
    Run,
    Sample,
    Stepped,
)
from gradtrace.snapshots.graph import snapshot
from gradtrace.watching.record import BackwardCall, Timeline, freed_by

_PLACES = 128  # elements of a tensor that are kept of it
_KEPT = 100  # calls and steps, the first and the last ones, of which gradients are kept
_ALL_BEYOND = 8  # times the calls beyond, where not all optimizers have stepped by then


class Witness:
    """Listens to the engine, and to ``zero_grad``; ``stop`` is called with why when it has enough.

    Args:
        timeline: of the strict watch beside it.
    """

    strict = False
    knowledge = 0  # the watch explains errors

    def __init__(self, timeline: Timeline, limits: Limits, stop: Callable[[str], None]):
        self.run = Run()
        self._timeline = timeline
        self._limits = limits
        self._stop = stop
        self._began = time.monotonic()
        self._optimizers: list[torch.optim.Optimizer] = []
        self._leaves: dict[int, tuple[torch.Tensor, str]] = {}  # held: no identity comes again
        self._last_at: dict[tuple[Place, ...], int] = {}
        self._before: dict[str, Sample] = {}
        self._held: dict[str, list[int]] = {}
        self._first_use: dict[str, tuple[int, int]] = {}  # sequence number, call
        self._depth = 0
        self._open: Call | None = None
        self._closure = False
        self._calls: list[Call] = []
        self._steps: list[Stepped] = []
        self._listen()

    # Optimizers as they are made, and ``zero_grad``.

    def _listen(self) -> None:
        made, cleared = self._made, self._cleared
        kind, module = torch.optim.Optimizer, torch.nn.Module
        begin, clear, clear_module = kind.__init__, kind.zero_grad, module.zero_grad

        @functools.wraps(begin)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            begin(self, *args, **kwargs)
            made(self)

        @functools.wraps(clear)
        def zero_grad(self: Any, *args: Any, **kwargs: Any) -> None:
            clear(self, *args, **kwargs)
            cleared([p for group in self.param_groups for p in group["params"]])

        @functools.wraps(clear_module)
        def zero_grad_of_module(self: Any, *args: Any, **kwargs: Any) -> None:
            clear_module(self, *args, **kwargs)
            cleared(list(self.parameters()))

        kind.__init__, kind.zero_grad = __init__, zero_grad  # type: ignore[method-assign]
        module.zero_grad = zero_grad_of_module  # type: ignore[method-assign]

    def _made(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizers.append(optimizer)

    def _cleared(self, parameters: Sequence[torch.Tensor]) -> None:
        chosen = set(map(id, parameters))
        whole = frozenset(
            i for i, one in enumerate(self._optimizers) if set(map(id, _parameters(one))) <= chosen
        )
        if whole:
            self.run.events.append(Cleared(whole))

    # What the engine reports.

    def began(self, call: BackwardCall, outputs: Any) -> None:
        self._depth += 1
        if self._depth > 1 or not all(map(_is_plain, _tensors(outputs))):
            return  # inside another one, a checkpoint's say; or the compiler's, which only traces
        frames = list(user_frames(sys._getframe(1)))
        site = tuple(map(_place, frames))
        with undisturbed(), torch.no_grad():
            self._name_parameters(frames)
            live, links = walk(roots_of(outputs))
            leaves = self._leaves_of(live, frames)
            self._before = self._gradients()
            for key in self._held:
                if not self._nonzero(self._before.get(key)):
                    self._held[key] = []
            since = self._last_at.get(site, -1)
            numbers = [
                _torch.sequence_nr(node) for node in live if not isinstance(node, _torch.LEAF)
            ]
            seen = Call(
                len(self._calls) + 1,
                site,
                " ".join(linecache.getline(*place[:2]).strip() for place in site[:2]),
                tuple(sample_of(one) for one in _tensors(outputs)[:4]),
                len(live),
                min(numbers, default=0),
                self._bytes(outputs),
                _operations(live, links, since),
                frozenset(leaves.values()),
                self._stale(live, links, leaves, call),
                self._upstream(live, links, leaves),
                not _asks_for_gradients(sys._getframe(1)),
                _marked(live, roots_of(outputs), len(self._calls) + 1),
            )
        self._last_at[site] = call.sequence_nr
        self._open = seen
        self.run.events.append(seen)
        self._calls.append(seen)
        if len(self._calls) > 2 * _KEPT:  # a long way to the failure
            self._calls[-_KEPT].contributed.clear()

    def ended(self, call: BackwardCall, error: BaseException | None) -> None:
        self._depth -= 1
        if self._depth or self._open is None:
            return
        seen, self._open = self._open, None
        frames = list(user_frames(sys._getframe(1)))
        with undisturbed(), torch.no_grad():
            if error is not None:
                seen.failed = True
                self.run.carriers = _carriers(frames)
                for frame in frames:
                    self.run.variables[_place(frame)] = _kinds(frame)
            else:
                for key, after in self._gradients().items():
                    added = after.minus(self._before.get(key))
                    if self._nonzero(added):
                        seen.contributed[key] = added
                        self._held.setdefault(key, []).append(seen.number)
                        self._first_use.setdefault(key, (call.sequence_nr - 1, call.number))
        if error is None:
            self._look_at_limits()

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        if optimizer not in self._optimizers:
            self._optimizers.append(optimizer)
        index = self._optimizers.index(optimizer)
        with undisturbed(), torch.no_grad():
            self._name_parameters(list(user_frames(sys._getframe(1))))
            found = self._gradients(_parameters(optimizer))
        held = {key: tuple(self._held.get(key, ())) for key in found}
        step = Stepped(index, found, held, self._closure)
        self.run.events.append(step)
        self._steps.append(step)
        if len(self._steps) > 2 * _KEPT:
            self._steps[-_KEPT].gradients.clear()
        self._look_at_limits()

    def stepping(self, has_closure: bool) -> None:
        self._closure = has_closure

    def failed(
        self, call: BackwardCall, outputs: Any, inputs: Any, error: BaseException
    ) -> None: ...
    def compiled(self, inside: bool) -> None: ...

    def broke(self, error: Exception) -> None:
        raise error  # a witness that saw half of it is none

    def close(self) -> Run:
        """The run's last state."""
        with undisturbed(), torch.no_grad():
            self.run.gradients = {
                key: sample for key, sample in self._gradients().items() if sample.norm
            }
            for tensor, key in self._leaves.values():
                since, number = self._first_use.get(key, (None, 0))
                edits = () if since is None else self._edits(tensor, since)
                if any(not edit.by_optimizer and edit.last_call >= number for edit in edits):
                    self.run.written.add(key)
        self.run.seconds = time.monotonic() - self._began
        return self.run

    # Looking.

    def _look_at_limits(self) -> None:
        limits, done = self._limits, len(self._calls)
        if time.monotonic() - self._began > limits.seconds:
            self._stop("time")
        if limits.failing is None or self._depth:
            return
        beyond = done - limits.failing
        if beyond >= limits.beyond * _ALL_BEYOND:
            self._stop("enough")
        if beyond < limits.beyond:
            return
        last: dict[int, int] = {}  # of each optimizer: the calls before its last step
        calls = 0
        for event in self.run.events:
            if isinstance(event, Call):
                calls += 1
            elif isinstance(event, Stepped):
                last[event.optimizer] = calls
        if all(calls > limits.failing for calls in last.values()):
            self._stop("enough")

    def _name_parameters(self, frames: Sequence[FrameType]) -> None:
        """Give each parameter of an optimizer its key, and look up what the program calls it."""
        new = []
        for i, optimizer in enumerate(self._optimizers):
            keys = []
            for j, parameter in enumerate(_parameters(optimizer)):
                known = self._leaves.get(id(parameter))
                if known is None:
                    known = self._leaves[id(parameter)] = parameter, f"{i}.{j}"
                    new.append(parameter)
                keys.append(known[1])
            name = ""
            if i < len(self.run.optimizers):
                name = self.run.optimizers[i].name
                self.run.optimizers[i] = Optimizer(name, tuple(keys))
            else:
                self.run.optimizers.append(Optimizer(name, tuple(keys)))
            if not name and (name := _name_of(optimizer, frames)):
                self.run.optimizers[i] = Optimizer(name, tuple(keys))
        self._look_up_names(new, frames)

    def _leaves_of(self, live: Sequence[Any], frames: Sequence[FrameType]) -> dict[int, str]:
        """The keys of the graph's leaves, by their place in ``live``."""
        places = [i for i, node in enumerate(live) if isinstance(node, _torch.LEAF)]
        new = [live[i].variable for i in places if id(live[i].variable) not in self._leaves]
        if new:
            names = self._look_up_names(new, frames)
            for count, leaf in enumerate(new):
                shape = "×".join(map(str, leaf.shape)) or "scalar"
                key = names.get(id(leaf)) or f"a leaf of shape {shape} ({count})"
                if key in self.run.names:
                    self.run.remade.setdefault(key, len(self._calls) + 1)
                self._leaves[id(leaf)] = leaf, key
                self.run.names.setdefault(key, key)
        return {i: self._leaves[id(live[i].variable)][1] for i in places}

    def _look_up_names(
        self, leaves: Sequence[torch.Tensor], frames: Sequence[FrameType]
    ) -> dict[int, str]:
        wanted = set(map(id, leaves))
        names: dict[int, str] = {}
        spaces = [namespace(frame) for frame in frames] if wanted else []
        for space in (*reversed(spaces), vars(sys.modules["__main__"])) if wanted else ():
            for found in reach(space):
                if id(found.value) in wanted:
                    names.setdefault(id(found.value), found.name)
        for leaf in leaves:
            known = self._leaves.get(id(leaf))
            if known is not None:
                self.run.names[known[1]] = names.get(id(leaf), f"parameter {known[1]}")
        return names

    def _gradients(self, of: Iterable[torch.Tensor] | None = None) -> dict[str, Sample]:
        leaves = (
            [leaf for leaf, _ in self._leaves.values()]
            if of is None
            else [leaf for leaf in of if id(leaf) in self._leaves]
        )
        return {
            self._leaves[id(leaf)][1]: sample_of(leaf.grad)
            for leaf in leaves
            if leaf.is_leaf and leaf.grad is not None
        }

    @staticmethod
    def _nonzero(sample: Sample | None) -> bool:
        return sample is not None and sample.norm != 0

    def _bytes(self, outputs: Any) -> int:
        tensors = [one for one in _tensors(outputs) if one.requires_grad]
        return snapshot(*tensors).held.activations if tensors else 0

    def _edits(self, leaf: torch.Tensor, since: int) -> list[Any]:
        return list(self._timeline.edits_since(since, storage_of(leaf)[0]))

    def _stale(
        self,
        live: Sequence[Any],
        links: Sequence[Sequence[int]],
        leaves: Mapping[int, str],
        call: BackwardCall,
    ) -> frozenset[str]:
        users = users_of(links)
        found = set()
        for i, key in leaves.items():
            used = min((_torch.sequence_nr(live[j]) for j in users[i]), default=None)
            if used is None:
                continue
            between = [
                one.number
                for one in tuple(self._timeline.calls)
                if one is not call and one.sequence_nr > used
            ]
            first = min(between, default=None)
            if first is not None and any(
                edit.last_call >= first for edit in self._edits(live[i].variable, used)
            ):
                found.add(key)
        return frozenset(found)

    def _upstream(
        self, live: Sequence[Any], links: Sequence[Sequence[int]], leaves: Mapping[int, str]
    ) -> frozenset[tuple[int, int]]:
        if len(self.run.optimizers) < 2:
            return frozenset()
        owners = {i: self.run.owners(key) for i, key in leaves.items()}
        return frozenset(upstream(owners, links))


_LOSS_TAG = "gradtrace.loss"  # on node.metadata: the number of the call that began there


def _marked(live: Sequence[Any], roots: Sequence[Any], number: int) -> frozenset[int]:
    """The calls that began at nodes of this graph; the roots are marked for later ones."""
    inner = [node for node in live if not isinstance(node, _torch.LEAF)]
    found = {node.metadata.get(_LOSS_TAG) for node in inner if node not in roots}
    for node in roots:
        if not isinstance(node, _torch.LEAF):
            node.metadata[_LOSS_TAG] = number
    return frozenset(found - {None})


def _asks_for_gradients(frame: FrameType | None) -> bool:
    """Whether ``autograd.grad`` runs the backward that begins."""
    while frame is not None:
        if frame.f_code.co_filename == _torch.AUTOGRAD_FILE:
            return frame.f_code.co_name == "grad"
        frame = frame.f_back
    return False


def _operations(live: Sequence[Any], links: Sequence[Sequence[int]], since: int) -> Counter[str]:
    """The types of this iteration's nodes, less those that only lead to what is older."""
    inside = [isinstance(node, _torch.LEAF) for node in live]
    found: Counter[str] = Counter()
    for i in leaves_first(links):
        if not inside[i] and _torch.sequence_nr(live[i]) >= since:
            inside[i] = any(inside[j] for j in links[i])
            if inside[i]:
                found[type(live[i]).__name__] += 1
    return found


def sample_of(tensor: torch.Tensor) -> Sample:
    """What is kept of a tensor; of one on another device it is copied."""
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    flat = tensor.reshape(-1).to(torch.float64)
    count = flat.numel()
    places = torch.arange(min(count, _PLACES), device=flat.device) * count // _PLACES
    chosen = flat if count <= _PLACES else flat[places]
    return Sample(float(torch.linalg.vector_norm(flat)), tuple(chosen.tolist()))


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _tensors(outputs: Any) -> list[torch.Tensor]:
    outputs = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
    return [output for output in outputs if isinstance(output, torch.Tensor)]


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


def _place(frame: FrameType) -> Place:
    return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def _name_of(optimizer: torch.optim.Optimizer, frames: Sequence[FrameType]) -> str:
    """What the program calls an optimizer: ``opt_g``, ``self.opts[1]``."""
    spaces = [namespace(frame) for frame in frames] + [vars(sys.modules["__main__"])]
    for space in reversed(spaces):
        for name, value in list(space.items()):
            if value is optimizer:
                return name
            inside: Iterable[tuple[str, Any]] = ()
            if type(value) in (list, tuple):
                inside = ((f"{name}[{i}]", one) for i, one in enumerate(value))
            elif type(value) is dict:
                inside = ((f"{name}[{key!r}]", one) for key, one in value.items())
            elif type(getattr(value, "__dict__", None)) is dict:
                inside = ((f"{name}.{key}", one) for key, one in vars(value).items())
            for path, one in inside:
                if one is optimizer:
                    return path
    return ""


def _kinds(frame: FrameType) -> dict[str, str]:
    """The variables that hold tensors with a graph: ``"tensor"``, or what they are in."""
    found = {}
    for name, value in namespace(frame).items():
        if isinstance(value, torch.Tensor):
            if not value.is_leaf:
                found[name] = "tensor"
        elif type(value) in (tuple, list, dict) and value:
            inside = list(value.values() if type(value) is dict else value)
            if all(isinstance(one, torch.Tensor) for one in inside):
                if any(not one.is_leaf for one in inside):
                    found[name] = type(value).__name__
            elif all(type(one) in (tuple, list) for one in inside):
                found[name] = "nested"
    return found


def _carriers(frames: Sequence[FrameType]) -> list[Carrier]:
    """The variables whose graphs lead to nodes that an earlier backward freed."""
    known: dict[Any, bool] = {}

    def is_freed(root: Any) -> bool:
        live, links = walk([root])
        for i in leaves_first(links):
            node = live[i]
            if node not in known:
                known[node] = freed_by(node) is not None or any(known[live[j]] for j in links[i])
        return known[root]

    found = []
    for frame in frames:
        space, place = namespace(frame), _place(frame)
        for one in reach(space):
            node = _torch.grad_fn_of(one.value)
            if node is not None and (known[node] if node in known else is_freed(node)):
                root = re.split(r"[.\[]", one.name)[0]
                found.append(Carrier(one.name, root, _kind_of(one.owners), place))
    return found


def _kind_of(owners: Iterable[Any]) -> str:
    """``"tensor"``, or the type of the container that it is in; ``"nested"`` of one in another."""
    containers = [one for one in owners if isinstance(one, (list, tuple, dict, deque))]
    if len(containers) > 1:
        return "nested"
    return type(containers[0]).__name__ if containers else "tensor"
