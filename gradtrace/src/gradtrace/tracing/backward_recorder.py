"""Record the nodes of a backward pass in the order in which the engine runs them.

When the traced program calls ``backward()``, every node that its roots reach gets two hooks, which
are removed when the call ends. The first is the last to run before the node, and sees the gradients
that arrive; the second is the last to run after it, and sees those that it passes on. The engine
frees a node's saved tensors only after that, so its state is read when the next node begins, or
when the call ends. An error stopped the backward pass at a node that began and never ended.

The hooks ask the engine for their node and keep none, because a node that refers to itself through
its hooks would never be freed. A backward call inside another one has its nodes hooked when it
begins. Hooks of the program on an accelerator's thread are not seen: Python traces no calls there.
"""

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from gradtrace._torch import (
    APPLY_BACKWARD,
    CHECKPOINT_FILE,
    LEAF,
    LiveNode,
    current_node,
    edges_of,
    keeps_graph,
    next_sequence_nr,
)
from gradtrace._torch_hooks import RUNS_BACKWARD, BackwardHook
from gradtrace.autograd.nodes import FREED, HIDDEN, NOT_NEEDED, PACKED
from gradtrace.autograd.saved import FREED_UNSEEN_TAG, name_of
from gradtrace.autograd.traversal import roots_of, undisturbed, walk
from gradtrace.tracing.live import LiveGraph
from gradtrace.tracing.steps import NodeRun, NodeState, Step
from gradtrace.tracing.values import gradient_text

MAX_NODES = 64  # that are recorded of one call of backward; the one that fails is in any case
_MAX_STEPS = 1_000  # inside of all lines together
# Modules whose functions the engine calls.
_NO_HOOKS = ("gradtrace.", "torch._", "torch.utils.weak", "weakref")


@dataclass
class _Call:
    """One call of ``backward()``.  ``outputs`` are its roots."""

    number: int
    outputs: Any
    last_run: int | None  # the node that ran last before this call
    handles: list[RemovableHandle] = field(default_factory=list)
    nodes: int = 0  # that began
    operations: "_RecordedOperations | None" = None


@dataclass
class _Run:
    """The run of one node, from its start until the graph's state after it has been read."""

    node: LiveNode
    run: NodeRun
    recorded: bool
    hooks: list[str]
    operations: list[str] = field(default_factory=list)
    finished: bool = False


class BackwardRecorder:
    """Records the nodes that a traced program's backward passes run, as steps inside of a line.

    ``read`` takes roots, reads the program's state and the graph of these roots, and returns a step
    without its node.  Call :meth:`begin_line` before each line and :meth:`close_line` after it, and
    :meth:`pause` while lines are not recorded.
    """

    def __init__(self, live: LiveGraph, read: Callable[[Sequence[LiveNode]], Step]):
        self.failure: Exception | None = None  # of the recorder itself
        self.unrecorded = 0  # nodes of this line
        self._live, self._read = live, read
        self._hook = BackwardHook(self._began, self._ended)
        self._lock = threading.RLock()  # an accelerator's thread runs nodes beside the program's
        self._thread = 0  # of the line that runs, 0 where none is recorded
        self._calls: list[_Call] = []  # that run, the outermost first
        self._running: list[_Run] = []
        self._hooked: set[int] = set()  # indices of nodes
        self._hooks: list[str] = []  # that ran for the node that begins next
        self._number = 0  # of calls in this line
        self._steps: list[Step] = []  # of this line
        self._total = 0
        self._line_before: _States | None = None  # if this line has called backward: before it
        self._before: _States = {}  # at the last step
        self._held = 0

    def install(self) -> None:
        self._hook.install()

    def remove(self) -> None:
        self._hook.remove()
        del self._live, self._read  # which refer to the tracer: nothing may outlive the call

    def begin_line(self) -> None:
        self._steps, self._number, self.unrecorded = [], 0, 0
        self._line_before = None
        self._thread = threading.get_ident()

    def pause(self) -> None:
        self._thread = 0

    def close_line(self, step: Step) -> Step:
        """Return a line's step, with the steps of its nodes inside if it called ``backward()``."""
        if self._line_before is None:
            return step
        changed, gone = _difference(self._line_before, self._live.states)
        return replace(step, changed=changed, gone=gone, inside=tuple(self._steps))

    def on_call(self, frame: FrameType) -> None:
        """Record the name of a frame's function if the engine calls it as a program's hook."""
        caller = frame.f_back
        if not self._calls or caller is None or caller.f_code is not RUNS_BACKWARD:
            return
        # Counting bytes makes PyTorch call functions of its private modules, and Python the
        # finalizers of what a node frees: these are no hooks.
        private = str(frame.f_globals.get("__name__", "")).startswith(_NO_HOOKS)
        if private or frame.f_code is APPLY_BACKWARD or frame.f_code.co_filename == CHECKPOINT_FILE:
            return
        begun = bool(self._running) and not self._running[-1].finished
        hooks = self._running[-1].hooks if begun else self._hooks
        hooks.append(frame.f_code.co_qualname.rpartition("<locals>.")[2])

    @contextmanager
    def _unfailing(self) -> Iterator[None]:
        """Catch and store an error of gradtrace itself, which the tracer reports at the end.

        Python's tracing is off meanwhile, because it would call the tracer for each of our calls.
        """
        tracer = sys.gettrace()
        sys.settrace(None)
        with self._lock:
            try:
                yield
            except Exception as failure:
                self.failure = self.failure or failure
                self.pause()
            finally:
                sys.settrace(tracer)

    # A call of backward.

    def _began(
        self, outputs: Any, keep_graph: bool, create_graph: bool, inputs: Sequence[Any]
    ) -> _Call | None:
        nested = bool(self._calls) and current_node() is not None
        if not self._thread or not (nested or threading.get_ident() == self._thread):
            return None
        self._number += 1
        call = _Call(self._number, outputs, self._live.last_run)
        with self._unfailing():
            if self._line_before is None:
                self._before = self._line_before = dict(self._live.states)
            self._flush()
            with undisturbed():
                nodes = walk(roots_of(outputs))[0]
                is_known = all(self._live.index_of(node) >= 0 for node in nodes)
            self._calls.append(call)
            # Past the limit only the node that fails is recorded: what the line saw is enough.
            if self._total < _MAX_STEPS or not is_known:
                self._look()
            before = functools.partial(self._before_node, len(self._calls) - 1)
            with undisturbed():
                for node in nodes:
                    if (index := self._live.index_of(node)) not in self._hooked:
                        self._hooked.add(index)
                        call.handles.append(node.register_prehook(before))
                        call.handles.append(node.register_hook(self._after_node))
            if self._calls[0] is call and any(map(self._recomputes, nodes)):
                call.operations = _RecordedOperations(self._running)
                call.operations.__enter__()
        return call

    def _ended(self, call: _Call | None, error: BaseException | None) -> None:
        if call is None:
            return
        if call.operations is not None:
            call.operations.__exit__(None, None, None)
        for handle in call.handles:
            handle.remove()
        with self._unfailing():
            self._flush()
            depth = self._calls.index(call)
            for running in [run for run in self._running if run.run.depth == depth]:
                self._running.remove(running)
                if error is not None:
                    self._record(running, None)
            del self._calls[depth:]
            with undisturbed():
                self._live.read_again(walk(roots_of(call.outputs))[0])
            if error is None:  # else the node is where it stopped
                self._live.last_run = call.last_run
        if not self._calls:
            self._hooked.clear()
            self._hooks.clear()
            self._running.clear()
        call.outputs = None

    def _recomputes(self, node: LiveNode) -> bool:
        slots = self._live.states[self._live.index_of(node)].slots
        return any(slot == PACKED for slot, _ in slots) or "Checkpoint" in type(node).__name__

    # A node of it.

    def _before_node(self, depth: int, gradients: Sequence[torch.Tensor | None]) -> None:
        with self._unfailing():
            node = current_node()
            index = self._live.last_run = self._live.index_of(node)
            if depth >= len(self._calls):  # of another backward, on a graph that is hooked
                return
            self._flush()
            call = self._calls[depth]
            call.nodes += 1
            recorded = bool(self._thread) and call.nodes <= MAX_NODES and self._total < _MAX_STEPS
            received: tuple[str | None, ...] = ()
            written = None
            if recorded:
                with undisturbed():
                    received = tuple(map(gradient_text, gradients))
                    if isinstance(node, LEAF):
                        written = (gradient_text(node.variable.grad), None)
            run = NodeRun(index, received, None, call.number, depth, written)
            self._running.append(_Run(node, run, recorded, self._hooks))
            self._hooks = []

    def _after_node(
        self, passed: Sequence[torch.Tensor | None], received: Sequence[torch.Tensor | None]
    ) -> None:
        with self._unfailing():
            node = current_node()
            running = next((run for run in reversed(self._running) if run.node is node), None)
            if running is None:
                return
            running.finished = True
            state = self._live.states.get(running.run.node)
            if state is not None and state.state == HIDDEN and not keeps_graph():
                node.metadata[FREED_UNSEEN_TAG] = True
            if running.recorded:
                with undisturbed():
                    pairs = zip(passed, edges_of(node), strict=False)
                    expected = [gradient for gradient, (inner, _) in pairs if inner is not None]
                    running.run = replace(running.run, passed=tuple(map(gradient_text, expected)))

    def _flush(self) -> None:
        """Record finished nodes; by now their saved tensors are freed, unless the graph is kept."""
        for running in [run for run in self._running if run.finished]:
            self._running.remove(running)
            if running.recorded:
                self._record(running, running.run.passed or ())
            else:
                self.unrecorded += 1

    def _record(self, running: _Run, passed: tuple[str | None, ...] | None) -> None:
        if not self._thread:
            return
        index = running.run.node
        state_before, bytes_before = self._live.states.get(index), self._held
        written = running.run.written
        with undisturbed():
            self._live.read_again([running.node])
            if written is not None:
                written = (written[0], gradient_text(running.node.variable.grad))
        step = self._look()
        now = self._live.states.get(index)
        run = replace(
            running.run,
            passed=passed,
            written=written if passed is not None else None,
            released=_released(self._live, state_before, now),
            returned=max(0, bytes_before - self._held) if passed is not None else 0,
            hooks=tuple(running.hooks),
            recomputed=tuple(running.operations),
        )
        changed, gone = _difference(self._before, self._live.states)
        self._before = dict(self._live.states)
        self._steps.append(
            replace(step, changed=changed, gone=gone, node=name_of(running.node), run=run)
        )
        self._total += 1

    def _look(self) -> Step:
        with undisturbed():
            roots = [root for call in self._calls for root in roots_of(call.outputs)]
        step = self._read(roots)
        self._held = sum(step.held)
        return step


_States = Mapping[int, NodeState]


def _difference(before: _States, now: _States) -> tuple[tuple[NodeState, ...], tuple[int, ...]]:
    """Return the new and changed states, and the nodes that died, both sorted by index."""
    new = [index for index, state in now.items() if before.get(index) is not state]
    changed = tuple(now[index] for index in sorted(new) if before.get(index) != now[index])
    return changed, tuple(sorted(before.keys() - now.keys()))


class _RecordedOperations(TorchFunctionMode):
    """Records the names of the operations that a checkpoint recomputes while a node runs."""

    def __init__(self, running: list[_Run]):
        super().__init__()
        self._running = running

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        number = next_sequence_nr()
        try:
            return func(*args, **(kwargs or {}))
        finally:
            if self._running and next_sequence_nr() > number and _in_checkpoint(sys._getframe(1)):
                self._running[-1].operations.append(func.__name__.strip("_"))


def _in_checkpoint(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not RUNS_BACKWARD:
        if frame.f_code.co_filename == CHECKPOINT_FILE:
            return True
        frame = frame.f_back
    return False


def _released(
    live: LiveGraph, state_before: NodeState | None, now: NodeState | None
) -> tuple[str, ...]:
    """Return the names of the slots whose tensors were freed between the two states."""
    if state_before is None or now is None:
        return ()
    slots = live.nodes[now.node].slots
    return tuple(
        slot.name
        for slot, (old, _), (new, _) in zip(slots, state_before.slots, now.slots, strict=True)
        if new == FREED and old not in (FREED, NOT_NEEDED)
    )
