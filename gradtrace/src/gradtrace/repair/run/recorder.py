"""Record the effect of a run's calls on the program's parameters: the evidence for the judge.

A :class:`Recorder` is attached to the engine beside a strict watch. It records the graph of each
backward call, what the call added to each ``.grad``, and the gradients that each step uses. So the
program is not disturbed: the gradient of one loss *alone* is the change of ``.grad`` by its call.
"""

import functools
import linecache
import sys
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from types import FrameType
from typing import Any

import torch

from gradtrace import _torch
from gradtrace._torch_hooks import AllowRefused
from gradtrace.autograd import traversal
from gradtrace.autograd.frames import contents, namespace, reach, user_frames
from gradtrace.autograd.tensors import storage_of, tensors_in
from gradtrace.explaining.watcher import explanation_of
from gradtrace.repair.run.observations import (
    Gradients,
    GradientsCleared,
    GraphVariable,
    ObservedCall,
    OptimizerInfo,
    ProgramLine,
    ProgramRun,
    RunLimits,
    Sample,
    StepTaken,
)
from gradtrace.watching.engine import Listener
from gradtrace.watching.record import BackwardCall, Timeline, freed_by, parameters_of

_SAMPLE_SIZE = 128  # numbers that stand for a tensor
_RECENT = 100  # the first and the last calls and steps keep their gradients
_PATIENCE = 8  # times the calls beyond the failing one, until all optimizers have stepped
_PLAIN = {torch.Tensor, torch.nn.Parameter}  # types; those of a compiler's tensors differ


class Recorder(Listener):
    """A listener of the engine; ``stop`` gets the run's status, and its error, when it is to end.

    Args:
        timeline: of the strict watch beside it.
        refused: given in a reference run, which also computes the truncated gradient.
    """

    strict = False
    knowledge = 0  # the watch explains errors

    def __init__(
        self,
        timeline: Timeline,
        limits: RunLimits,
        stop: Callable[[str, BaseException | None], None],
        refused: AllowRefused | None = None,
    ):
        self.run = ProgramRun()
        self._timeline = timeline
        self._limits = limits
        self._stop = stop
        self._refused = refused
        self._start = time.monotonic()
        # By weak reference: an optimizer that the program has replaced trains nothing any more.
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        # The tensors are kept alive so that no identity is used again.
        self._leaves: dict[int, tuple[torch.Tensor, str]] = {}
        self._last_at: dict[tuple[ProgramLine, ...], int] = {}
        self._gradients_before: Gradients = {}
        self._accumulated: dict[str, list[int]] = {}
        self._first_use: dict[str, tuple[int, int]] = {}  # sequence number, call
        self._depth = 0
        self._running: ObservedCall | None = None
        self._closure = False
        self._calls: list[ObservedCall] = []
        self._steps: list[StepTaken] = []
        self._wrap_optimizers()

    def _wrap_optimizers(self) -> None:
        """Wrap the methods that create optimizers and clear gradients, to record their calls."""
        kind = torch.optim.Optimizer
        _call_after(kind, "__init__", lambda o: self._optimizers.append(weakref.ref(o)))
        _call_after(kind, "zero_grad", lambda o: self._record_clearing(parameters_of(o)))
        _call_after(
            torch.nn.Module, "zero_grad", lambda m: self._record_clearing([*m.parameters()])
        )

    def _record_clearing(self, parameters: Sequence[torch.Tensor]) -> None:
        cleared = set(map(id, parameters))
        whole_optimizers = frozenset(
            i
            for i, reference in enumerate(self._optimizers)
            if (optimizer := reference()) is not None
            and set(map(id, parameters_of(optimizer))) <= cleared
        )
        if whole_optimizers:
            self.run.events.append(GradientsCleared(whole_optimizers))

    # What the engine reports.

    def began(self, call: BackwardCall, outputs: Any) -> None:
        self._depth += 1
        if self._depth > 1 or {*map(type, tensors_in((outputs,)))} - _PLAIN:
            return  # inside another call, such as a checkpoint's; or the compiler only traces
        frames = list(user_frames(sys._getframe(1)))
        site = tuple(map(_line_of, frames))
        with traversal.undisturbed(), torch.no_grad():
            self._name_parameters(frames)
            graph = traversal.NodeGraph(outputs)
            function, requested = _requested(sys._getframe(1))
            leaves = self._keys_of(graph, frames)
            owners = {
                i: self.run.owners(key) for i, key in leaves.items() if self.run.optimizers[1:]
            }
            self._gradients_before = self._gradients()
            for key in self._accumulated:
                if key not in self._gradients_before or not self._gradients_before[key].norm:
                    self._accumulated[key] = []
            operations = [node for i, node in enumerate(graph.live) if i not in leaves]
            number = len(self._calls) + 1
            self._running = ObservedCall(
                number,
                site,
                " ".join(linecache.getline(*line[:2]).strip() for line in site[:2]),
                tuple(map(sample_of, tensors_in((outputs,))[:4])),
                Counter(type(node).__name__ for node in operations),
                sum(map(len, graph.links)),
                min(map(_torch.sequence_nr, operations), default=0),
                frozenset(leaves.values()),
                self._stale(graph, leaves, call),
                frozenset(traversal.upstream(owners, graph.links)),
                self._consumers(graph, owners, self._last_at.get(site, -1)),
                function != "grad",
                bool(requested) and requested.isdisjoint(graph.live),
            )
        if self._refused is not None:
            self._running.loses_gradient = self._refused.loses_gradient
        if self._refused and (self._running.stale_leaves or number == self._limits.failing_call):
            self._running.truncated = self._truncated(outputs, operations, site)
        self._last_at[site] = call.sequence_nr
        self.run.events.append(self._running)
        self._calls.append(self._running)
        if len(self._calls) > 2 * _RECENT:  # a long time until the failure
            self._calls[-_RECENT].gradients.clear()

    def ended(self, call: BackwardCall, error: BaseException | None) -> None:
        self._depth -= 1
        if self._depth or self._running is None:
            return
        running, self._running = self._running, None
        if error is not None:
            running.failed = True
            if self._limits.stops_if_caught and explanation_of(error) is not None:
                self._stop("raised", error)
            return
        with traversal.undisturbed(), torch.no_grad():
            for key, gradient in self._gradients().items():
                change = gradient.minus(self._gradients_before.get(key))
                if change.norm:
                    running.gradients[key] = change
                    self._accumulated.setdefault(key, []).append(running.number)
                    self._first_use.setdefault(key, (call.sequence_nr - 1, call.number))
        self._stop_at_limits()

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        reference = weakref.ref(optimizer)
        if reference not in self._optimizers:
            self._optimizers.append(reference)
        index = self._optimizers.index(reference)
        with traversal.undisturbed(), torch.no_grad():
            self._name_parameters(list(user_frames(sys._getframe(1))))
            gradients = self._gradients(parameters_of(optimizer))
        calls = {key: tuple(self._accumulated.get(key, ())) for key in gradients}
        step = StepTaken(index, gradients, calls, self._closure)
        self.run.events.append(step)
        self._steps.append(step)
        if len(self._steps) > 2 * _RECENT:
            self._steps[-_RECENT].gradients.clear()
        self._stop_at_limits()

    def stepping(self, has_closure: bool) -> None:
        self._closure = has_closure

    def broke(self, error: Exception) -> None:
        raise error  # an incomplete record proves nothing

    def close(self) -> ProgramRun:
        """Return the record, with the state at the end of the run."""
        with traversal.undisturbed(), torch.no_grad():
            self._name_parameters(())  # of a program that failed before its first backward call
            gradients = self._gradients().items()
            self.run.gradients = {key: sample for key, sample in gradients if sample.norm}
            for tensor, key in self._leaves.values():
                since, number = self._first_use.get(key, (None, 0))
                edits = () if since is None else self._edits(tensor, since)
                if any(not edit.by_optimizer and edit.last_call >= number for edit in edits):
                    self.run.updated_by_hand.add(key)
        return self.run

    def _stop_at_limits(self) -> None:
        limits = self._limits
        if time.monotonic() - self._start > limits.seconds:
            self._stop("time", None)
        if limits.failing_call is None or self._depth:
            return
        beyond = len(self._calls) - limits.failing_call
        if beyond >= limits.beyond * _PATIENCE:
            self._stop("enough", None)
        if beyond < limits.beyond:
            return
        late = {step.optimizer for step in self.run.steps_after(limits.failing_call + 1)}
        if late >= {step.optimizer for step in self.run.steps}:
            self._stop("enough", None)

    # Parameters and other leaves.

    def _name_parameters(self, frames: Sequence[FrameType]) -> None:
        """Give each parameter of an optimizer its key, and find the program's name for it."""
        unnamed = []
        for i, reference in enumerate(self._optimizers):
            if i == len(self.run.optimizers):
                self.run.optimizers.append(OptimizerInfo("", ()))
            optimizer = reference()
            if optimizer is None:
                continue
            parameters = parameters_of(optimizer)
            for j, parameter in enumerate(parameters):
                if id(parameter) not in self._leaves:
                    self._leaves[id(parameter)] = parameter, f"{i}.{j}"
                    unnamed.append(parameter)
            keys = tuple(self._leaves[id(parameter)][1] for parameter in parameters)
            name = self.run.optimizers[i].name or _name_of(optimizer, frames)
            self.run.optimizers[i] = OptimizerInfo(name, keys)
        self._find_names(unnamed, frames)

    def _keys_of(self, graph: traversal.NodeGraph, frames: Sequence[FrameType]) -> dict[int, str]:
        """Return the keys of the graph's leaves, by their indices among the nodes."""
        new = [leaf for leaf in graph.leaves.values() if id(leaf) not in self._leaves]
        names = self._find_names(new, frames)
        for count, leaf in enumerate(new):
            shape = "×".join(map(str, leaf.shape)) or "scalar"
            key = names.get(id(leaf)) or f"a leaf of shape {shape} ({count})"
            if key in self.run.names:
                self.run.replaced.setdefault(key, len(self._calls) + 1)
            self._leaves[id(leaf)] = leaf, key
            self.run.names.setdefault(key, key)
        return {i: self._leaves[id(leaf)][1] for i, leaf in graph.leaves.items()}

    def _find_names(
        self, leaves: Sequence[torch.Tensor], frames: Sequence[FrameType]
    ) -> dict[int, str]:
        """Record the outermost variable's name of known leaves; return all names, by identity."""
        identities = set(map(id, leaves))
        names: dict[int, str] = {}
        for space in _namespaces(frames) if leaves else ():
            for match in reach(space):
                if id(match.value) in identities:
                    names.setdefault(id(match.value), match.name)
        for leaf in leaves:
            if id(leaf) in self._leaves:
                key = self._leaves[id(leaf)][1]
                self.run.names[key] = names.get(id(leaf), f"parameter {key}")
        return names

    def _gradients(self, parameters: Iterable[torch.Tensor] | None = None) -> Gradients:
        """Sample ``.grad`` of the parameters, or of all leaves."""
        if parameters is None:
            parameters = [leaf for leaf, _ in self._leaves.values()]
        return {
            self._leaves[id(leaf)][1]: sample_of(leaf.grad)
            for leaf in parameters
            if id(leaf) in self._leaves
            and (leaf.is_leaf or leaf.retains_grad)
            and leaf.grad is not None
        }

    # The graph of a call.

    def _truncated(
        self, outputs: Any, operations: Sequence[Any], site: tuple[ProgramLine, ...]
    ) -> Gradients | None:
        """Compute the gradients without the nodes made before the last call from this site."""
        roots = tensors_in((outputs,))
        leaves = [leaf for leaf, _ in self._leaves.values() if leaf.requires_grad and leaf.is_leaf]
        is_disturbed = any(leaf.retains_grad for leaf, _ in self._leaves.values())
        if is_disturbed or not leaves or any(root.numel() != 1 or root.is_leaf for root in roots):
            return None  # of a loss that is not a scalar, backward requires a gradient
        since = self._last_at.get(site, -1)
        handles = [
            node.register_prehook(
                lambda gradients: tuple(g if g is None else g * 0 for g in gradients)
            )
            for node in operations
            if _torch.sequence_nr(node) < since
        ]
        gradients = torch.autograd.grad(roots, leaves, retain_graph=True, allow_unused=True)
        for handle in handles:
            handle.remove()
        return {
            self._leaves[id(leaf)][1]: sample_of(gradient)
            for leaf, gradient in zip(leaves, gradients, strict=True)
            if gradient is not None
        }

    def _edits(self, leaf: torch.Tensor, since: int) -> list[Any]:
        return list(self._timeline.edits_since(since, storage_of(leaf)[0]))

    def _stale(
        self, graph: traversal.NodeGraph, leaves: Mapping[int, str], call: BackwardCall
    ) -> frozenset[str]:
        """Return the leaves modified after this graph had used them and another call had run."""
        keys = set()
        for i, key in leaves.items():
            users = (graph.live[j] for j in graph.users[i])
            first_use = min(map(_torch.sequence_nr, users), default=None)
            if first_use is None:
                continue
            calls = (c for c in tuple(self._timeline.calls) if c is not call)
            next_call = min((c.number for c in calls if c.sequence_nr > first_use), default=inf)
            edits = self._edits(graph.leaves[i], first_use)
            if any(edit.last_call >= next_call for edit in edits):
                keys.add(key)
        return frozenset(keys)

    def _consumers(
        self, graph: traversal.NodeGraph, owners: Mapping[int, set[int]], since: int
    ) -> tuple[tuple[ProgramLine, frozenset[int]], ...]:
        """Return the lines of operations that take a freed, an older, or another network's part."""
        live, links = graph.live, graph.links
        reached = traversal.sources(owners, links)  # with one optimizer, all alike
        consumers: list[tuple[ProgramLine, frozenset[int]]] = []
        for i, j in ((i, j) for i, successors in enumerate(links) for j in successors):
            if i in graph.leaves or j in graph.leaves:
                continue
            is_freed = freed_by(live[j]) is not None and freed_by(live[i]) is None
            is_older = _torch.sequence_nr(live[j]) < since <= _torch.sequence_nr(live[i])
            if is_freed or is_older or (reached[j] and reached[j] < reached[i]):
                chain = self._timeline.lines.find(_torch.sequence_nr(live[i]))
                part = frozenset() if is_freed or is_older else frozenset(reached[j])
                for code, line in () if chain is None else chain.lines:
                    place = ProgramLine(code.co_filename, line, code.co_name)
                    consumers.append((place, part))
        return tuple(dict.fromkeys(consumers))


def _call_after(kind: type, name: str, note: Callable[[Any], None]) -> None:
    """Wrap a method so that ``note`` is called with the object after each call of the method."""
    method = getattr(kind, name)

    @functools.wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        method(self, *args, **kwargs)
        note(self)

    setattr(kind, name, wrapped)


def _requested(frame: FrameType | None) -> tuple[str, set[Any]]:
    """Return the function of ``torch.autograd`` that runs backward, and the nodes of its inputs."""
    while frame is not None:
        if frame.f_code.co_filename == _torch.AUTOGRAD_FILE:
            inputs = frame.f_locals.get("inputs_tuple", frame.f_locals.get("inputs"))
            return frame.f_code.co_name, {*traversal.roots_of(() if inputs is None else inputs)}
        frame = frame.f_back
    return "", set()


@_torch.no_transforms()
def sample_of(tensor: torch.Tensor) -> Sample:
    """Return a sample of a tensor on any device, of any layout and dtype."""
    tensor = _torch.unwrapped(tensor).detach()  # of vmap's samples, all
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    flat = tensor.reshape(-1).to(torch.float64)
    if (count := flat.numel()) > _SAMPLE_SIZE:
        signed, zeros = flat * _signs(count, flat.device), (0, -count % _SAMPLE_SIZE)
        flat = torch.nn.functional.pad(signed, zeros).view(-1, _SAMPLE_SIZE).sum(0)
    return Sample(tuple(flat.tolist()))


@functools.lru_cache(maxsize=32)
def _signs(count: int, device: torch.device) -> torch.Tensor:
    """Return random signs, the same in each process, without the program's random numbers."""
    generator = torch.Generator().manual_seed(count)
    return (torch.randint(0, 2, (count,), generator=generator) * 2 - 1).to(device, torch.int8)


def _line_of(frame: FrameType) -> ProgramLine:
    return ProgramLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def _namespaces(frames: Sequence[FrameType]) -> Iterator[Mapping[str, Any]]:
    """Yield the variables of the frames, outermost first, and those of the main module."""
    yield from (namespace(frame) for frame in reversed(frames))
    yield vars(sys.modules["__main__"])


def _name_of(optimizer: torch.optim.Optimizer, frames: Sequence[FrameType]) -> str:
    """Return the program's name for an optimizer: ``opt_g``, ``self.opts[1]``."""
    for space in reversed([*_namespaces(frames)]):
        for name, value in list(space.items()):
            for path, entry in (("", value), *contents(value)):
                if entry is optimizer:
                    return name + path
    return ""


def graph_variables(frames: Mapping[FrameType, ProgramLine]) -> list[GraphVariable]:
    """Return the variables with a graph in these frames, each with the line of its frame."""
    freed: dict[Any, bool] = {}

    def has_freed_nodes(root: Any) -> bool:
        live, links = traversal.walk([root]) if root not in freed else ([], [])
        for i in traversal.leaves_first(links):
            if live[i] not in freed:
                inputs_freed = any(freed[live[j]] for j in links[i])
                freed[live[i]] = freed_by(live[i]) is not None or inputs_freed
        return freed[root]

    with traversal.undisturbed():
        return [
            GraphVariable(match.name, _container(match.owners), line, has_freed_nodes(node))
            for frame, line in frames.items()
            for match in reach(namespace(frame))
            if (node := _torch.grad_fn_of(match.value)) is not None
        ]


def _container(owners: Iterable[Any]) -> str:
    """Return the ``kind`` of a :class:`GraphVariable` that is reached through these objects."""
    containers = [owner for owner in owners if isinstance(owner, (list, tuple, dict, deque))]
    if len(containers) > 1:
        return "nested"
    if containers and hasattr(containers[0], "_fields"):
        return "namedtuple"
    return type(containers[0]).__name__ if containers else "tensor"
