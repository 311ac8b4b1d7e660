"""The record of a watch: plain data, separate for each thread.

PyTorch numbers the operations that it records, in each thread from 0; this number (``sequence_nr``)
orders operations within one thread. So each thread has its own :class:`Timeline`, which is deleted
when the thread ends. The stored numbers and lines keep no tensor and no graph alive, and every
table is bounded.
"""

import bisect
import contextlib
import itertools
import platform
import sys
import threading
import warnings
import weakref
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, TypeVar

import torch

from gradtrace import _torch
from gradtrace.autograd import frames
from gradtrace.autograd.frames import Chain, Location
from gradtrace.autograd.tensors import storage_of, storages_in
from gradtrace.autograd.traversal import leaves_of, roots_of, undisturbed, walk
from gradtrace.watching.call_sites import FAR, caller_of_apply
from gradtrace.watching.constant_terms import ConstantTerms
from gradtrace.watching.cuts import Cut, Cuts, with_origins
from gradtrace.watching.running_sums import Sums

T = TypeVar("T")

# Keys of node.metadata: every thread finds these values there, and they are deleted with the node.
FREED_TAG = "gradtrace.freed_by"  # the BackwardCall
CREATED_TAG = "gradtrace.created"  # it computes a gradient that has a graph
SCALED_TAG = "gradtrace.scaled"  # a GradScaler made it
OF_SCALED_TAG = "gradtrace.of_scaled"  # the line of a scaled loss's gradient

_MAX_CALLS = _MAX_STEPS = 256
_MAX_LINES = 200_000
_MAX_EDITED, _MAX_EDITS = 10_000, 100  # storages, edits of one
_MAX_EXPORTED, _MAX_EXPORTS = 64, 64  # storages, exports of one
_MAX_CUTS_OF_LEAF = 1_000
_MAX_COMPARED = 10_000_000  # elements
_REPORTED: dict[Any, Any] = {}  # failures of gradtrace, as the warnings module notes them


class BackwardCall:
    """A call of ``backward`` or ``autograd.grad``, made when the counter was at ``sequence_nr``."""

    keeps_graph = False
    creates_graph = False
    functions: tuple[weakref.ref[type], ...] = ()  # custom ones, if it creates a graph
    roots: tuple[int, ...] = ()  # numbers of the nodes where it began, and of those they only scale
    output_nrs: frozenset[int] = frozenset()  # which outputs of these nodes were the losses
    of_scalars = False  # each of these outputs has one element
    whole = True  # it ran to the leaves, not to some inputs only
    input_nrs: frozenset[int] = frozenset()  # the nodes of its inputs
    failed = False  # and may have freed a part of its graph
    derived: tuple[weakref.ref[type], ...] = ()  # whose backward uses values of forward
    recorded = True  # whether operations were recorded where it was called
    inference = False  # whether inference mode was on there
    # Pairs of optimizers, and whether the first one is upstream; else neither of them is.
    links: tuple[tuple[Any, Any, bool], ...] = ()
    leaves: frozenset[int] = frozenset()  # the storages of the leaves that its graph reached
    on_accelerator = False  # some of these leaves
    ended_at = 0  # the counter when the call had ended
    is_finite = False  # the values of its outputs, if they are known
    branch: Location | None = None  # the line of a torch.where() in its graph
    made_of_numbers_at: Location | None = None  # the line that assigned it, if it is a leaf
    is_scaled = False  # a GradScaler has scaled its loss
    scale_is_read = False  # by the program since the call
    starts_cleared = False  # optimizers hold its leaves, none of which had a gradient
    is_used = False  # code receives its gradients, or reads them afterwards

    def __init__(self, number: int, location: Location | None, sequence_nr: int):
        self.number = number
        self.location = location
        self.sequence_nr = sequence_nr
        # Of a scaled loss: gradients, by storage, that were unscaled, or before clipped to limits.
        self.unscaled: set[int] = set()
        self.clipped: dict[int, tuple[Location | None, frozenset[float]]] = {}
        self.path: dict[CodeType, int] = {}  # the instruction of each user function that led to it


@dataclass(eq=False, slots=True)
class OptimizerStep:
    """A step of an optimizer, and the storages that it may have modified."""

    optimizer: weakref.ref[torch.optim.Optimizer]
    location: Location | None
    sequence_nr: int
    last_call: int
    storages: frozenset[int] | None = None  # None if unknown: then of all parameters
    gradients: int = 0  # a hash of their identities
    path: dict[CodeType, int] = field(default_factory=dict)  # as of a backward call
    is_empty: bool = False  # without a gradient, or all are zero
    in_forward: bool = False  # of a custom function, whose node is older than what it saves

    def changed(self, storage: int) -> bool:
        """Whether the step may have modified a storage."""
        if self.storages is not None:
            return storage in self.storages
        optimizer = self.optimizer()
        parameters = () if optimizer is None else parameters_of(optimizer)
        return any(storage_of(parameter)[0] == storage for parameter in parameters)


@dataclass(frozen=True)
class Memory:
    """The elements of a storage that a strided tensor refers to."""

    address: int  # of the first element, in bytes
    shape: tuple[int, ...]
    stride: tuple[int, ...]  # in elements
    itemsize: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "Memory | None":
        """Return the memory of a tensor; None if empty, sparse, nested, or inside a transform."""
        try:
            address = tensor.data_ptr()
            if tensor.layout is not torch.strided or not address or not tensor.numel():
                return None
            shape, stride = tuple(tensor.shape), tuple(tensor.stride())
            return cls(address, shape, stride, tensor.element_size())
        except (NotImplementedError, RuntimeError):
            return None

    @classmethod
    def of_item(cls, tensor: torch.Tensor, index: Any) -> "Memory | None":
        """Return the memory of ``tensor[index]`` if that is a view, else of the whole tensor."""
        items = index if isinstance(index, tuple) else (index,)
        is_view = all(type(item) in (int, slice, type(...), type(None)) for item in items)
        return (cls.of(tensor.detach()[index]) if is_view else None) or cls.of(tensor)

    @property
    def span(self) -> range:
        """The addresses from the first byte to the last."""
        last = sum((n - 1) * stride for n, stride in zip(self.shape, self.stride, strict=True))
        return range(self.address, self.address + (last + 1) * self.itemsize)

    def view_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return these elements of the storage that a tensor refers to."""
        first = tensor.storage_offset() + (self.address - tensor.data_ptr()) // self.itemsize
        return tensor.detach().as_strided(self.shape, self.stride, first)

    def overlaps(self, other: "Memory") -> bool:
        """Whether two tensors share an element, or may do so, if they are very large."""
        own_span, other_span = self.span, other.span
        if own_span.stop <= other_span.start or other_span.stop <= own_span.start:
            return False
        begin, end = min(own_span.start, other_span.start), max(own_span.stop, other_span.stop)
        size = (end - begin) // self.itemsize
        if self.itemsize != other.itemsize or size > _MAX_COMPARED:
            return True
        marked = torch.zeros(size, dtype=torch.bool)
        first = (own_span.start - begin) // self.itemsize
        marked.as_strided(self.shape, self.stride, first).fill_(True)
        first = (other_span.start - begin) // self.itemsize
        return bool(marked.as_strided(other.shape, other.stride, first).any())


@dataclass(eq=False, slots=True)
class Modification:
    """An in-place modification of a tensor, made when the counter was at ``sequence_nr``."""

    location: Location | None
    sequence_nr: int
    memory: Memory | None  # that may have changed, None if unknown
    last_call: int  # the number of the last backward call before it
    by_optimizer: bool = False
    by_library: bool = False  # by code of PyTorch that a line of the program called
    of_a_view: bool = False  # of a tensor that is a view of another
    path: dict[CodeType, int] = field(default_factory=dict)  # of an optimizer's step
    old_checksum: str | None = None  # of this memory before, if it was written through ``.data``


@dataclass(eq=False)
class Untrained:
    """The parameters of an optimizer that had no gradient in any of its first ``steps`` steps."""

    optimizer: weakref.ref[torch.optim.Optimizer]
    places: list[int]  # among its parameters, so that none is kept alive
    steps: int = 0
    last_step: Location | None = None
    # By line and fact, with a name: those whose cut may be intended, as the program's end shows.
    doubtful: dict[tuple[Location, str], tuple[list[int], str | None]] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Stray:
    """A leaf that no optimizer holds, its last ``.grad``, and how often that gradient has grown."""

    first_call: int  # that reached the leaf
    gradient: int = 0
    version: int = 0  # of .grad
    count: int = 0
    storage: int = 0
    is_read: bool = False  # .grad, since the last call
    updates: int = 0  # growths before which the program had read .grad and changed the leaf
    unfrozen_at: Location | None = None  # where gradients of a parameter were switched on


@dataclass(eq=False)
class Export:
    """A checksum, at operation ``sequence_nr``, of memory that code outside PyTorch can change."""

    location: Location | None
    sequence_nr: int
    checksum: str
    memory: Memory
    storage: _torch.StorageReference


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the parameters that an optimizer holds, in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def freed_by(node: Any) -> BackwardCall | None:
    """Return the watched backward call that freed ``node``, or None."""
    return None if isinstance(node, _torch.LEAF) else node.metadata.get(FREED_TAG)


def tagged(nodes: Iterable[Any], tag: str) -> bool:
    """Whether any of these nodes has this key."""
    return any(tag in node.metadata for node in nodes if not isinstance(node, _torch.LEAF))


class Lines:
    """The lines that created nodes, by ranges of sequence numbers, in order."""

    def __init__(self) -> None:
        self._starts, self._ends = array("q"), array("q")
        self._chains: list[Chain] = []

    def add(self, start: int, end: int, chain: Chain) -> None:
        """Add the line that created the nodes from number ``start`` up to, excluding, ``end``."""
        if self._chains and self._chains[-1] is chain and self._ends[-1] == start:
            self._ends[-1] = end
            return
        self._starts.append(start)
        self._ends.append(end)
        self._chains.append(chain)
        if len(self._chains) > 2 * _MAX_LINES:
            for part in (self._starts, self._ends, self._chains):
                del part[:_MAX_LINES]

    def find(self, sequence_nr: int) -> Chain | None:
        """Return the line, with its callers, that created the node of this number, or None."""
        place = bisect.bisect_right(self._starts, sequence_nr) - 1
        if place < 0 or sequence_nr >= self._ends[place]:
            return None
        return self._chains[place]

    def between(self, start: int, end: int) -> list[Chain]:
        """Return the lines that created the nodes from ``start`` up to, excluding, ``end``."""
        first, last = bisect.bisect_right(self._ends, start), bisect.bisect_left(self._starts, end)
        return list(dict.fromkeys(self._chains[first:last]))


class Timeline:
    """The events of one thread; lines, edits and cuts are recorded if it is ``observed``."""

    def __init__(self) -> None:
        self.observed = False  # by a strict watch
        self.calls: deque[BackwardCall] = deque(maxlen=_MAX_CALLS)
        self.backwards = 0
        self.steps: deque[OptimizerStep] = deque(maxlen=_MAX_STEPS)
        self.closure_ran = False  # in this step
        self.optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()  # that stepped
        # Of each optimizer the last call that began when its gradients were cleared.
        self.cleared = weakref.WeakKeyDictionary[torch.optim.Optimizer, int]()
        self.strays: dict[int, Stray] = {}  # leaves of no optimizer, by their identity
        # Parameters that a forward pass made, by their identity: those since the last backward
        # call, with their line and whether they were made of values with a graph, and those that
        # the call reached; and how many calls reached parameters of each line.
        self.made_in_forward: dict[int, tuple[Location, bool]] = {}
        self.made_and_reached: dict[int, Location] = {}
        self.calls_of_made: Counter[Location] = Counter()
        self.lines = Lines()
        self.cuts = Cuts()
        self.left: Cut | None = None  # where a value last left for Python or numpy
        self.left_after = 0  # the number of the backward before that
        self.terms = ConstantTerms()
        # The first call whose scaled gradients a line clipped by these limits.
        self.limits: dict[tuple[Location | None, frozenset[float]], BackwardCall] = {}
        self.creates_graph = False  # of a gradient, which no later call has used
        # The lines that wrote values of such a graph into memory, by storage.
        self.written: dict[int, Location | None] = {}
        self.first_order: dict[int, Cut] = {}  # by the number of the node that used the gradient
        # Of custom functions, the line that computed a value which a backward call used.
        self.intermediates: dict[str, tuple[Location | None, BackwardCall]] = {}
        self.sums = Sums()
        self.hooks_are_set = False  # on results of operations: they receive gradients
        self.running: list[tuple[BackwardCall, Any]] = []  # calls in progress, with their outputs
        self.looked_inside = 0  # steps inside a backward that were looked at
        self.sizes: dict[Location | None, deque[tuple[int, int, int | None]]] = {}
        self.untrained: dict[int, Untrained] = {}  # by the optimizer's identity
        # Leaves without a gradient, by identity: their cuts, and whether each is intended.
        self.suspects: dict[int, dict[Cut, bool]] = {}
        self.fed: set[Cut] = set()  # the cuts whose results a loss used
        self.last_write = -1  # the number at which memory was last changed, or given to others
        # The number before the last backward call whose graph another thread recorded.
        self.graph_elsewhere = -1
        self._edits: dict[int, deque[Modification]] = {}  # by storage
        # Of memory that code outside of PyTorch can write to, by storage.
        self.exports: dict[int, deque[Export]] = {}

    def line_of(self, sequence_nr: int | None) -> Location | None:
        """Return the line that created the node of this number, or None."""
        chain = self.lines.find(-1 if sequence_nr is None else sequence_nr)
        return None if chain is None else chain.location

    def ended(self, call: BackwardCall) -> None:
        """Record the end of a call, and if another thread recorded the graph of its gradients."""
        # The engine's thread for an accelerator does, and has a counter of its own.
        call.ended_at = _torch.next_sequence_nr()
        if call.creates_graph and (call.on_accelerator or call.ended_at == call.sequence_nr):
            self.graph_elsewhere = call.sequence_nr - 1  # the next node has the call's number

    @property
    def last_call(self) -> int:
        """The number of the last backward call, 0 if there was none."""
        return self.calls[-1].number if self.calls else 0

    def calls_since(self, number: int) -> list[BackwardCall]:
        """Return call ``number`` and the calls after it, in order."""
        return [call for call in self.calls if call.number >= number]

    def call_after(self, number: int | None) -> BackwardCall | None:
        """Return the first call after call ``number``, or the last call of all if it is None."""
        if number is None:
            return self.calls[-1] if self.calls else None
        # A call inside a custom function's backward comes after the surrounding call.
        return next((call for call in self.calls if call.number > number), None)

    def stepped(self, optimizer: torch.optim.Optimizer, location: Location | None) -> None:
        now, reference = _torch.next_sequence_nr(), weakref.ref(optimizer)
        step = OptimizerStep(reference, location, now, self.last_call, path=frames.user_path())
        if self.observed:
            step.in_forward = caller_of_apply(sys._getframe(1), FAR) is not None
            with undisturbed():
                pairs = [(p, p.grad) for p in parameters_of(optimizer) if p.grad is not None]
                step.storages = storages_in(p for p, _ in pairs)  # that have a gradient now
                step.gradients = hash(tuple(id(gradient) for _, gradient in pairs))
                with contextlib.suppress(RuntimeError):  # they may have no values
                    step.is_empty = not any(bool(gradient.any()) for _, gradient in pairs)
            if self.steps and self.steps[-1].storages == step.storages:
                step.storages = self.steps[-1].storages  # one object for equal sets
        self.optimizers.add(optimizer)
        self.steps.append(step)
        self.last_write = now
        self.creates_graph, self.written = False, {}

    def cut_off(self, tensors: Iterable[torch.Tensor], cut: Cut, meant: bool) -> None:
        """Record a cut, ``meant`` or not, for the leaves in ``suspects`` that the tensors reach."""
        # A view that was made where gradients are off is a leaf of its own: w.T in a checkpoint.
        bases = (
            base if t.is_leaf and (base := _torch.base_of(t)) is not None else t for t in tensors
        )
        roots = roots_of([tensor for tensor in bases if tensor.requires_grad])
        for leaf in leaves_of(walk(roots)[0]):
            cuts = self.suspects.get(_torch.tensor_identity(leaf))
            if cuts is not None and len(cuts) < _MAX_CUTS_OF_LEAF:
                cuts.setdefault(cut, meant)

    def note_loss(self, numbers: Iterable[int], leaves: Iterable[torch.Tensor]) -> None:
        """Record the cuts of the values from which a loss with these nodes was computed."""
        if not self.suspects:
            self.fed.clear()
            return
        used = self.cuts.used
        cuts = [cut for number in used.keys() & numbers for cut in used[number]]
        self.fed |= with_origins(filter(None, (*cuts, *map(self.cuts.of_memory, leaves))))

    def note_gradient_read(self, leaf: torch.Tensor) -> None:
        """Record that the program itself uses the gradient of a leaf."""
        if (place := self.made_and_reached.get(id(leaf))) is not None:
            self.calls_of_made[place] = 0
        if (stray := self.strays.get(id(leaf))) is not None:
            stray.is_read = True
        if (place := self.terms.reached.get(id(leaf))) is not None:
            self.terms.used.add(place)

    def note_written(self, storage: int, computed: list[torch.Tensor]) -> None:
        """Record that memory was written, if these values are of a gradient's graph."""
        self.written.pop(storage, None)
        if tagged(walk(roots_of(computed))[0], CREATED_TAG):
            self.written[storage] = frames.user_location()

    def came_back(self, cut: Cut) -> None:
        """Mark a cut as unintended: the program made a new tensor from the value it had read."""
        for cuts in self.suspects.values():
            cuts.update((earlier, False) for earlier in (cut, *cut.origins) if earlier in cuts)

    def edited(self, storage: int, edit: Modification) -> None:
        _latest(self._edits, storage, _MAX_EDITED, _MAX_EDITS).append(edit)
        self.last_write = max(self.last_write, edit.sequence_nr)

    def exported(self, storage: int, export: Export) -> None:
        _latest(self.exports, storage, _MAX_EXPORTED, _MAX_EXPORTS).append(export)

    def edits_since(
        self, sequence_nr: int, storage: int, custom: bool = False
    ) -> Iterator[Modification]:
        """Yield a storage's modifications since an operation, ``custom`` or not, oldest first."""
        steps = (
            Modification(s.location, s.sequence_nr, None, s.last_call, True, path=s.path)
            for s in self.steps
            if s.sequence_nr > sequence_nr
            if s.changed(storage) and not (custom and s.in_forward)
        )
        edits = (e for e in self._edits.get(storage, ()) if e.sequence_nr > sequence_nr)
        return iter(sorted((*edits, *steps), key=lambda edit: edit.sequence_nr))

    def edits_of(self, address: int, since: int) -> Iterator[Modification]:
        """Yield the modifications of memory at this address since operation number ``since``."""
        for edits in tuple(self._edits.values()):
            for edit in edits:
                if edit.sequence_nr > since and edit.memory and address in edit.memory.span:
                    yield edit

    def is_exported(self, tensor: torch.Tensor) -> bool:
        """Whether code outside of PyTorch, such as NumPy, can write to the tensor's memory."""
        if not self.exports and (type(tensor) is not torch.Tensor or not tensor.is_leaf):
            return False  # made by PyTorch
        if tensor.layout is not torch.strided or tensor.device.type != "cpu":
            return False
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return False
        # PyTorch cannot resize memory that it does not own.
        return not storage.resizable() or _torch.storage_identity(storage) in self.exports

    def exports_of(self, storage: int) -> list[Export]:
        """Return the exports of a storage; none if that storage no longer exists."""
        exports = self.exports.get(storage, ())
        return [export for export in exports if not export.storage.expired()]


class Record:
    """The record of one watch: a timeline for each thread, and its findings."""

    def __init__(self) -> None:
        self._threads = threading.local()
        self._count = itertools.count(1)
        self.threads = 0  # that called backward or made a step
        self.findings: list[Any] = []
        self.reported: set[tuple[str, Location]] = set()  # cause and line, each reported once
        self.broken: str | None = None  # what went wrong in gradtrace itself

    def note_failure(self, error: Exception) -> None:
        """Store a failure of gradtrace itself, and report it in one line, each failure once.

        An error that the program raised meanwhile, as its signal handlers may, is raised again.
        """
        if frames.raised_by_the_program(error):
            raise error
        self.broken = f"{type(error).__name__}: {error}"
        # A filter that turns warnings into errors must not stop the program.
        with contextlib.suppress(RuntimeWarning):
            warnings.warn_explicit(
                f"gradtrace failed ({self.broken.splitlines()[0]}). Your program runs on as it "
                "would without gradtrace, but an explanation may be missing. Please report this "
                f"line with your versions: torch {torch.__version__}, "
                f"Python {platform.python_version()}.",
                RuntimeWarning,
                "gradtrace",
                1,
                registry=_REPORTED,
            )

    @property
    def timeline(self) -> Timeline:
        """The timeline of the running thread."""
        timeline = getattr(self._threads, "timeline", None)
        if timeline is None:
            timeline = self._threads.timeline = Timeline()
            self.threads = next(self._count)
        return timeline


def _latest(table: dict[int, deque[T]], key: int, keys: int, entries: int) -> deque[T]:
    """Return the entries under a key, created if missing; old keys and entries are dropped."""
    queue = table.setdefault(key, deque(maxlen=entries))
    if len(table) > keys:
        del table[next(iter(table))]
    return queue
