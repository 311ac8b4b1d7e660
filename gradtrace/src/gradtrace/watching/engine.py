"""The engine that installs hooks in PyTorch while any watch is active.

It passes backward calls, optimizer steps and compiled regions to the watches. It marks the nodes
that a backward pass freed, once for all watches. When the last watch ends, PyTorch is as it was.
"""

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch

from gradtrace import _torch, _torch_hooks
from gradtrace.autograd.frames import raised_by_the_program, user_location, user_path
from gradtrace.autograd.nodes import FREED
from gradtrace.autograd.saved import describe
from gradtrace.autograd.traversal import (
    leading_to,
    no_garbage_collection,
    roots_of,
    undisturbed,
    users_of,
    walk,
)
from gradtrace.watching.record import FREED_TAG, BackwardCall
from gradtrace.watching.running_sums import with_scaled
from gradtrace.watching.stand_ins import remove_our_frames

_Functions = tuple[weakref.ref[type], ...]


class Listener(Protocol):
    """The methods that the engine calls on a watch, in the thread in which the event happens."""

    strict: bool

    @property
    def knowledge(self) -> int: ...
    def began(self, call: BackwardCall, outputs: Any) -> None: ...
    def failed(
        self, call: BackwardCall, outputs: Any, inputs: Sequence[Any], error: BaseException
    ) -> None: ...
    def ended(self, call: BackwardCall, error: BaseException | None) -> None: ...
    def stepping(self, has_closure: bool) -> None: ...
    def in_closure(self, optimizer: torch.optim.Optimizer, inside: bool) -> None: ...
    def stepped(self, optimizer: torch.optim.Optimizer) -> None: ...
    def step_ended(self) -> None: ...
    def parameter_made(self, data: torch.Tensor, parameter: torch.Tensor) -> None: ...
    def compiled(self, inside: bool) -> None: ...
    def broke(self, error: Exception) -> None: ...


class Engine:
    """The registry of hooks and of listeners, oldest first; :data:`engine` is its only instance."""

    def __init__(self) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._compiled_regions = 0  # that threads are in
        self._backward = _torch_hooks.BackwardHook(self._before, self._after)
        self._steps = _torch_hooks.StepHook("post", lambda o, *_: self._notify("stepped", o))
        self._before_steps = _torch_hooks.StepHook("pre", self._stepping)
        self._parameters = _torch_hooks.ParameterHook(partial(self._notify, "parameter_made"))
        self._compiled = _torch_hooks.CompiledRegions(self._compiled_region)
        handed_over = (torch.autograd.grad, torch.Tensor.__dlpack__)
        self._functions = _torch_hooks.PythonFunctions(handed_over)

    def attach(self, listener: Listener) -> None:
        with self._lock:
            self.listeners = (*self.listeners, listener)
            self._hook()

    def detach(self, listener: Listener) -> None:
        with self._lock:
            listeners = (attached for attached in self.listeners if attached is not listener)
            self.listeners = tuple(listeners)
            self._hook()

    def _hook(self) -> None:
        """Install the hooks that the attached watches need, and remove all others."""
        on, strict = bool(self.listeners), any(listener.strict for listener in self.listeners)
        # The compiler would look into hooks of an optimizer's step, and compile another graph.
        plain = self._compiled_regions == 0
        for hook, needed in (
            (self._backward, on),
            (self._compiled, on),
            (self._steps, on and plain),
            (self._before_steps, strict and plain),
            (self._parameters, strict and plain),
            (self._functions, strict and plain),
        ):
            if needed != hook.installed:
                (hook.install if needed else hook.remove)()

    def _notify(self, event: str, *arguments: Any) -> None:
        """Call this method of each listener."""
        for listener in self.listeners:
            getattr(listener, event)(*arguments)

    # What PyTorch reports.

    def _before(
        self, outputs: Any, keep_graph: bool, create_graph: bool, inputs: Sequence[Any]
    ) -> tuple[BackwardCall, Any, Sequence[Any]]:
        call = BackwardCall(next(self._numbers), user_location(), _torch.next_sequence_nr())
        call.path = user_path()
        call.recorded = torch.is_grad_enabled()
        call.inference = torch.is_inference_mode_enabled()
        call.creates_graph, call.keeps_graph = create_graph, keep_graph
        call.whole = not inputs
        try:
            nodes = filter(None, map(_torch.grad_fn_of, inputs))
            call.input_nrs = frozenset(map(_torch.sequence_nr, nodes))
            if create_graph:
                call.functions, call.derived = _custom_functions(outputs)
            self._notify("began", call, outputs)
        except Exception as ours:
            self._broke(ours)
        return call, outputs, inputs

    def _after(
        self, began: tuple[BackwardCall, Any, Sequence[Any]], error: BaseException | None
    ) -> None:
        call, outputs, inputs = began
        try:
            if error is not None:
                self._failed(call, outputs, inputs, error)
            elif not call.keeps_graph:
                mark_freed(call, outputs, inputs)
            self._notify("ended", call, error)
        except Exception as ours:
            self._broke(ours)

    def _broke(self, error: Exception) -> None:
        """Report a failure of gradtrace to all listeners; raise an error of the program again."""
        if raised_by_the_program(error):
            raise error
        self._notify("broke", error)

    def _failed(
        self, call: BackwardCall, outputs: Any, inputs: Sequence[Any], error: BaseException
    ) -> None:
        call.failed = True
        if self.listeners:
            best = max(self.listeners, key=lambda listener: listener.knowledge)
            best.failed(call, outputs, inputs, error)
        mark_what_ran(call, outputs)

    def _stepping(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the step, with a closure that is reported when it is called."""

        def reported(argument: Any) -> Any:
            return self._reported(argument, optimizer) if callable(argument) else argument

        has_closure = any(map(callable, (*args[1:], *kwargs.values())))
        self._notify("stepping", has_closure)
        named = {name: reported(argument) for name, argument in kwargs.items()}
        step_ended = partial(self._notify, "step_ended")
        return (*args[:1], *map(reported, args[1:])), _StepArguments(named, step_ended)

    def _reported(
        self, closure: Callable[..., Any], optimizer: torch.optim.Optimizer
    ) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._notify("in_closure", optimizer, True)
            try:
                result = closure(*args, **kwargs)
            except BaseException as error:  # it ends the step, too
                remove_our_frames(error)
                raise
            self._notify("in_closure", optimizer, False)
            return result

        return call

    def _compiled_region(self, inside: bool) -> None:
        with self._lock:
            self._compiled_regions += 1 if inside else -1
            try:
                self._hook()
            except Exception as ours:
                self._broke(ours)
        self._notify("compiled", inside)


class _StepArguments(dict[str, Any]):
    """The keyword arguments of a step; ``ended`` is called when the step ends and frees them."""

    def __init__(self, arguments: dict[str, Any], ended: Callable[[], None]):
        super().__init__(arguments)
        self._ended = ended

    def __del__(self) -> None:
        self._ended()


def mark_freed(call: BackwardCall, outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
    """Note the roots of a call, and mark the nodes that it freed, unless an earlier call did."""
    roots = [node for node in roots_of(outputs) if type(node) is not _torch.LEAF]
    scaled = [node for root in roots for node in with_scaled(root, "AddBackward0")]
    call.roots = tuple(_torch.sequence_nr(n) for n in scaled if type(n) is not _torch.LEAF)
    call.output_nrs = frozenset(tensor.output_nr for tensor in outputs)
    call.of_scalars = all(isinstance(o, torch.Tensor) and o.numel() == 1 for o in outputs)
    if inputs:
        for node in _that_ran(inputs, roots):
            node.metadata.setdefault(FREED_TAG, call)
    else:
        _mark_all(call, roots)


def _custom_functions(outputs: Any) -> tuple[_Functions, _Functions]:
    """Return the custom functions in this graph, and those that stored a tensor without a graph."""
    with undisturbed():
        nodes = {_torch.function_of(node): node for node in walk(roots_of(outputs))[0]}
        custom = [(weakref.ref(f), node) for f, node in nodes.items() if f is not None]
        storing = (function for function, node in custom if _torch.kept_by_function(node))
        return tuple(function for function, _ in custom), tuple(storing)


def mark_what_ran(call: BackwardCall, outputs: Any) -> None:
    """Mark the nodes that a failed backward call had freed before it stopped."""
    with undisturbed():
        live, links = walk(roots_of(outputs))
        for node, described in zip(live, describe(live, links), strict=True):
            if described.state == FREED:
                node.metadata.setdefault(FREED_TAG, call)


def _mark_all(call: BackwardCall, roots: list[Any]) -> None:
    """Mark the nodes that the roots reach, except those that a complete earlier call has reached.

    Such a call has freed everything below its nodes.  The traversal goes on below the nodes of a
    call with ``inputs=``, because that may have freed only a part.
    """
    leaf, pending, passed = _torch.LEAF, roots.copy(), set()
    edges_tag, hold_edges, freed_tag = _torch.EDGES, _torch.hold_edges, FREED_TAG
    with no_garbage_collection():
        for node in pending:  # the hot loop of a plain watch
            marks = node.metadata
            earlier = marks.get(freed_tag)
            if earlier is None:
                marks[freed_tag] = call
            elif earlier is call or earlier.whole or node in passed:
                continue
            else:
                passed.add(node)
            edges = marks.get(edges_tag)
            if edges is None:  # as edges_of does, whose call would take as long as the rest
                edges = marks[edges_tag] = hold_edges(node.next_functions)
            if type(edges) is not tuple:
                edges = edges.next_functions
            for successor, _ in edges:
                if successor is not None and type(successor) is not leaf:
                    pending.append(successor)


def _that_ran(inputs: Sequence[Any], roots: list[Any]) -> list[Any]:
    """Return the nodes that a backward pass to these inputs executes: those on a path to them."""
    with undisturbed():  # the node of a leaf is read from a view, which a tracer would record
        live, links = walk(roots)
        targets = set(roots_of(inputs))
    executed = leading_to([i for i, node in enumerate(live) if node in targets], users_of(links))
    return [live[i] for i in sorted(executed)]


engine = Engine()
