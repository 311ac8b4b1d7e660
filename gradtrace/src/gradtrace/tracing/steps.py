"""The data of a trace, and its JSON.

A :class:`Trace` contains neither tensors nor widgets, so it can be compared, stored and sent. Nodes
and tensors are identified by their index in ``Trace.nodes`` and ``Trace.tensors``; what refers to
the same tensor shares memory. Each :class:`Step` lists the states that differ from the step before,
so that many steps of a large graph stay small. The nodes that a line's backward pass ran are steps
inside of the line's step, :attr:`Step.inside`.
"""

import json
from dataclasses import dataclass
from typing import NamedTuple

from gradtrace.autograd.nodes import FREED
from gradtrace.tracing.packing import packed

MAX_STEPS = 1_000  # line events that a trace records by default

SCHEMA = 5


@dataclass(frozen=True)
class Variable:
    """A tensor that a live variable reaches: ``h``, ``losses[0]``, ``model.weight``."""

    name: str
    shape: tuple[int, ...]
    requires_grad: bool
    leaf: bool
    version: int | None  # None for inference tensors
    grad: str | None  # a short text (gradtrace.tracing.values); None if there is no gradient
    node: int | None  # in Trace.nodes, where backward would start; None if the tensor has no graph
    tensor: int | None  # in Trace.tensors; None for plain data that no node has saved so far
    object: int  # identifies the tensor while it exists
    value: str  # a short text, too


@dataclass(frozen=True)
class Slot:
    """A saved tensor of a node, as first seen; ``nbytes`` is the size of its storage in bytes.

    The fields from ``shape`` on are None if the slot is empty, and if they are unknown, because a
    hook had packed the tensor or because it had been freed before the trace first saw it.
    """

    name: str
    empty: bool  # whether this node saved nothing in the slot
    shape: tuple[int, ...] | None
    dtype: str | None
    nbytes: int | None
    version: int | None
    role: str | None  # that of gradtrace.autograd.nodes.SavedTensor
    tensor: int | None  # an index in Trace.tensors


@dataclass(frozen=True)
class TraceNode:
    """A node of the graph that existed at some step."""

    name: str
    label: str  # an operation's name, a leaf's variable, or "a leaf no variable holds"
    leaf: bool  # whether it is an AccumulateGrad node
    line: int | None  # that had just run when the node was first seen; None before the first line
    next: tuple[int, ...]
    slots: tuple[Slot, ...]
    order: int | None  # of the operations as they were created, from 0; None for leaves
    tensor: int | None  # of a leaf, an index in Trace.tensors
    call: int | None = None  # the innermost call of a module that ran it, an index in Trace.calls
    made: str = ""  # the shapes of its results, and dtypes other than float32: "2 × [8] float64"


class ModuleCall(NamedTuple):
    """One call of a module."""

    name: str  # a variable's path to the module: model.layers.3
    parent: int | None  # the call within which it ran, an index in Trace.calls


@dataclass(frozen=True)
class TraceTensor:
    """A tensor of the graph, or several that share one storage, as first seen.

    It is a leaf, was saved by a node, or was named by a variable that has a graph.
    """

    label: str  # the first variable that named it, else the node and the slot that saved it
    shape: tuple[int, ...]
    dtype: str
    nbytes: int  # of the whole storage
    role: str  # that of gradtrace.autograd.nodes.SavedTensor, or "leaf"
    line: int | None  # that had just run


@dataclass(frozen=True)
class NodeState:
    """One node at one step: its state, and state and version of each of its slots."""

    node: int
    state: str  # that of gradtrace.autograd.nodes.Node
    slots: tuple[tuple[str, int | None], ...]  # states are those of SavedTensor


@dataclass(frozen=True)
class Raised:
    """An exception, and the line of the function that raised it."""

    type: str
    message: str
    line: int
    node: int | None = None  # in which a backward pass stopped, an index in Trace.nodes


@dataclass(frozen=True)
class NodeRun:
    """The record of one node's run in a backward pass."""

    node: int  # an index in Trace.nodes
    received: tuple[str | None, ...]  # gradients as texts, one for each output of the operation
    passed: tuple[str | None, ...] | None  # one for each of its next nodes; None if it failed
    call: int = 1  # the number of the line's backward call, from 1
    depth: int = 0  # how many calls are around it, as in a reentrant checkpoint or in a hook
    written: tuple[str | None, str | None] | None = None  # a leaf's .grad, before and after
    released: tuple[str, ...] = ()  # the slots whose saved tensors were freed
    returned: int = 0  # the bytes that no node saves any longer
    hooks: tuple[str, ...] = ()  # the Python functions that the engine called for it
    recomputed: tuple[str, ...] = ()  # the operations that a checkpoint ran again


@dataclass(frozen=True)
class Step:
    """The program's state between two lines: ``ran`` has just run, ``line`` runs next.

    A step ``inside`` of another one is the state after a node of a backward pass. Its ``ran`` and
    ``line`` are both the line that runs; ``changed`` and ``gone`` are relative to the step inside
    before it, or, in the first one, to the line before.
    """

    line: int | None  # None at the last step
    ran: int | None  # None at the first step
    changed: tuple[NodeState, ...]  # those that are new or differ from the step before, by index
    gone: tuple[int, ...]  # the nodes that have died since, by index
    held: tuple[int, int, int]  # saved bytes of activations, leaves and inputs, each storage once
    gradients: int  # bytes of the .grad of leaves and variables
    peak: int | None  # the most bytes that results of the line had at once; None if not measured
    device: dict[str, int] | None  # "allocated" and "peak" of the accelerators in bytes, by PyTorch
    variables: tuple[Variable, ...]
    values: tuple[tuple[str, str], ...]  # the live numbers, texts and truth values
    raised: Raised | None = None  # by ran, caught by the function or not
    node: str | None = None  # the name of the node; None for a line
    run: NodeRun | None = None  # the record of its run
    inside: "tuple[Step, ...]" = ()  # in the order in which the nodes ended
    unrecorded: int = 0  # nodes that ran beyond the limit of recorded ones


@dataclass(frozen=True)
class TraceData:
    """The data of a trace; :class:`gradtrace.Trace` describes its fields."""

    function: str
    source: dict[int, str]
    statements: dict[int, int]
    skipped: tuple[int, ...]
    nodes: tuple[TraceNode, ...]
    tensors: tuple[TraceTensor, ...]
    steps: tuple[Step, ...]
    error: Raised | None
    unrecorded: int = 0
    calls: tuple[ModuleCall, ...] = ()

    @property
    def freed(self) -> dict[int, int | None]:
        """Map the index of each freed node to the line that freed it.

        The line is None if the node was freed before the first line, or by a line not recorded.
        """
        unrecorded = len(self.steps) - 1 if self.unrecorded else None
        steps = freed_at(self).items()
        return {node: None if at == unrecorded else self.steps[at].ran for node, at in steps}

    def states(self, step: int) -> tuple[NodeState, ...]:
        """Return the state of each node that is alive at a step, in the order of ``nodes``."""
        alive: dict[int, NodeState] = {}
        for past in self.steps[: range(len(self.steps))[step] + 1]:
            for node in past.gone:
                del alive[node]
            alive.update((state.node, state) for state in past.changed)
        return tuple(alive[node] for node in sorted(alive))

    @property
    def retained_bytes(self) -> list[int]:
        """Return, for each step, the bytes of activations that saved tensors hold."""
        return [step.held[0] for step in self.steps]

    def to_json(self) -> str:
        """Return the trace as JSON text; the same trace always gives the same text."""
        data = {"schema": SCHEMA, **packed(vars(self))}
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))

    def __repr__(self) -> str:
        end = f"{self.error.type} on line {self.error.line}" if self.error else "no error"
        return f"{type(self).__name__}({self.function}, {len(self.steps)} steps, {end})"


def freed_at(trace: TraceData) -> dict[int, int]:
    """Map each node whose saved tensors were freed to the first step at which they were."""
    steps: dict[int, int] = {}
    for index, step in enumerate(trace.steps):
        for state in step.changed:
            if state.state == FREED:
                steps.setdefault(state.node, index)
    return steps
