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
    """A tensor that a live variable reaches: ``h``, ``losses[0]``, ``model.weight``.

    ``version`` is None for inference tensors.  ``grad`` and ``value`` are short texts
    (:mod:`gradtrace.tracing.values`); ``grad`` is None if there is no gradient.  ``node`` is the
    index in ``Trace.nodes`` of the node at which backward would start; None if the tensor has no
    graph.  ``tensor`` is an index in ``Trace.tensors``; None for plain data that no node has saved
    so far.  ``object`` is a number that identifies the tensor while it exists.
    """

    name: str
    shape: tuple[int, ...]
    requires_grad: bool
    leaf: bool
    version: int | None
    grad: str | None
    node: int | None
    tensor: int | None
    object: int
    value: str


@dataclass(frozen=True)
class Slot:
    """A saved tensor of a node, as first seen; ``nbytes`` is the size of its storage in bytes.

    ``role`` is that of :class:`~gradtrace.autograd.nodes.SavedTensor`, ``tensor`` an index in
    ``Trace.tensors``. ``empty`` is True if the node saved nothing in this slot. The other fields
    are None then, and if a hook had packed the tensor or it was freed before the trace saw it.
    """

    name: str
    empty: bool
    shape: tuple[int, ...] | None
    dtype: str | None
    nbytes: int | None
    version: int | None
    role: str | None
    tensor: int | None


@dataclass(frozen=True)
class TraceNode:
    """A node of the graph that existed at some step.

    ``line`` had just run when the node was first seen; it is None if the node existed before the
    first line. ``leaf`` is True for AccumulateGrad nodes. ``label`` is the name of a leaf's
    variable, "a leaf no variable holds" if it has none, or an operation's ``name``. ``order``
    counts the operations as they were created, from 0. ``tensor`` is the tensor of a leaf, an index
    in ``Trace.tensors``. ``call`` is the innermost call of a module in which the operation ran, an
    index in ``Trace.calls``. ``made`` are the shapes of the operation's results, with a dtype other
    than float32, as text: ``"2 × [8] float64"``; empty if PyTorch does not record them.
    """

    name: str
    label: str
    leaf: bool
    line: int | None
    next: tuple[int, ...]
    slots: tuple[Slot, ...]
    order: int | None
    tensor: int | None
    call: int | None = None
    made: str = ""


class ModuleCall(NamedTuple):
    """One call of a module; ``name`` is a variable's path to it, ``model.layers.3``.

    ``parent`` is the call within which it ran, an index in ``Trace.calls``.
    """

    name: str
    parent: int | None


@dataclass(frozen=True)
class TraceTensor:
    """A tensor of the graph, or several that share one storage.

    It is a leaf, was saved by a node, or was named by a variable that has a graph. ``label`` is the
    first variable that named it, else the node and the slot that saved it. ``nbytes`` is the size
    of the whole storage. The other fields are those under which it was first seen: ``line`` had
    just run, and ``role`` is that of :class:`~gradtrace.autograd.nodes.SavedTensor`, or ``"leaf"``.
    """

    label: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    role: str
    line: int | None


@dataclass(frozen=True)
class NodeState:
    """One node at one step: its state, and state and version of each of its slots.

    The states are those of :class:`gradtrace.autograd.nodes.Node` and ``SavedTensor``.
    """

    node: int
    state: str
    slots: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True)
class Raised:
    """An exception, and the line of the function that raised it.

    ``node`` is the index in ``Trace.nodes`` of the node in which a backward pass stopped, if any.
    """

    type: str
    message: str
    line: int
    node: int | None = None


@dataclass(frozen=True)
class NodeRun:
    """The record of one node's run in a backward pass.

    ``node`` is an index in ``Trace.nodes``. ``call`` numbers the line's backward calls from 1,
    ``depth`` counts the calls around it, as in a reentrant checkpoint or a hook. ``received`` are
    the gradients that arrived, as texts, one for each output of the operation; ``passed`` are those
    passed on, one for each of ``TraceNode.next``, or None if the pass stopped there. ``written`` is
    a leaf's ``.grad`` before and after. ``released`` names the slots whose saved tensors were
    freed, ``returned`` counts the bytes that no node saves any longer. ``hooks`` are the Python
    functions that the engine called, ``recomputed`` the operations that a checkpoint ran again.
    """

    node: int
    received: tuple[str | None, ...]
    passed: tuple[str | None, ...] | None
    call: int = 1
    depth: int = 0
    written: tuple[str | None, str | None] | None = None
    released: tuple[str, ...] = ()
    returned: int = 0
    hooks: tuple[str, ...] = ()
    recomputed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """The program's state between two lines: ``ran`` has just run, ``line`` runs next.

    ``ran`` is None at the first step, ``line`` at the last. ``changed`` are the states of nodes
    that are new or differ from the step before, ``gone`` the nodes that have died since, both in
    the order of ``Trace.nodes``. ``held`` counts the bytes of saved tensors, each storage once:
    activations, leaves, inputs (the program keeps the last two alive anyway). ``gradients`` counts
    the bytes of the ``.grad`` of leaves and variables. ``peak`` is the largest number of bytes that
    results of operations occupied at once while ``ran`` ran, ``device`` what PyTorch counted on the
    accelerators in use, ``{"allocated", "peak"}`` in bytes; both are None if they were not
    measured. ``values`` are the live numbers, texts and truth values. ``raised`` is set if ``ran``
    raised an exception, caught by the function or not.

    ``inside`` are the steps of the nodes that ran while ``ran`` did, in the order in which they
    ended; ``unrecorded`` counts those beyond the limit. In such a step ``node`` is the name of the
    node, ``run`` the record of its run, and ``ran`` and ``line`` are both the line that runs;
    ``changed`` and ``gone`` are relative to the step inside before it, or to the line before.
    """

    line: int | None
    ran: int | None
    changed: tuple[NodeState, ...]
    gone: tuple[int, ...]
    held: tuple[int, int, int]
    gradients: int
    peak: int | None
    device: dict[str, int] | None
    variables: tuple[Variable, ...]
    values: tuple[tuple[str, str], ...]
    raised: Raised | None = None
    node: str | None = None
    run: NodeRun | None = None
    inside: "tuple[Step, ...]" = ()
    unrecorded: int = 0


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
