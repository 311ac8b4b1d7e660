"""What a watch remembers of the program: plain data, apart for each thread.

PyTorch numbers the operations that it records, in each thread from 0: such a number
(``sequence_nr``) says what was first, within one thread.  So each thread has its own
:class:`Timeline`; it goes when the thread ends.  The numbers and lines kept here keep no tensor and
no graph alive; what is long is bounded.

Which backward freed a node stands on the node itself (:func:`freed_by`), where it is right whatever
thread asks, and goes when the node does.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import platform
import threading
import warnings
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from gradtrace import _torch
from gradtrace.autograd.frames import Chain, Location
from gradtrace.autograd.tensors import storage_of
from gradtrace.autograd.traversal import roots_of, walk

T = TypeVar("T")

FREED_TAG = "gradtrace.freed_by"  # on node.metadata: the BackwardCall
SUM_TAG = "gradtrace.sum"  # on node.metadata: the Sum that it adds to
SCALED_TAG = "gradtrace.scaled"  # on node.metadata: a GradScaler made it
OF_SCALED_TAG = "gradtrace.of_scaled"  # on node.metadata: the line of a scaled loss's gradient

_MAX_CALLS = _MAX_STEPS = 256
_MAX_LINES = 200_000
_MAX_EDITED, _MAX_EDITS = 10_000, 100  # storages, edits of one
_MAX_EXPORTED, _MAX_EXPORTS = 64, 64  # storages, exports of one
_MAX_CUTS = 20_000
_MAX_COMPARED = 10_000_000  # elements
_REPORTED: dict[Any, Any] = {}  # failures of gradtrace, as the warnings module notes them
GROWING = 5  # backwards from one line, each over a larger retained graph


class BackwardCall:
    """One call of ``backward`` or ``autograd.grad``; ``sequence_nr`` is the thread's counter then.

    ``operations`` are the types of nodes that it freed, those nearest to the loss; ``roots`` the
    numbers of the nodes that it began at.  ``whole`` calls ran to the leaves, not to some inputs
    only.  ``failed`` calls may have freed a part of their graph.
    """

    keeps_graph = False
    creates_graph = False
    functions: tuple[weakref.ref[type], ...] = ()  # the custom functions in its graph
    operations: tuple[str, ...] = ()
    roots: tuple[int, ...] = ()
    whole = True
    failed = False
    leaves: frozenset[int] = frozenset()  # the storages of the leaves that its graph reached
    on_accelerator = False  # some of these leaves

    def __init__(self, number: int, location: Location | None, sequence_nr: int):
        self.number = number
        self.location = location
        self.sequence_nr = sequence_nr


@dataclass(eq=False, slots=True)
class Step:
    """An optimizer's step, and the storages that it may have changed.

    None where they were not looked up: all of the optimizer's parameters.
    """

    optimizer: weakref.ref[torch.optim.Optimizer]
    location: Location | None
    sequence_nr: int
    last_call: int
    storages: frozenset[int] | None

    def changed(self, storage: int) -> bool:
        if self.storages is not None:
            return storage in self.storages
        optimizer = self.optimizer()
        return optimizer is not None and any(
            storage_of(parameter)[0] == storage
            for group in optimizer.param_groups
            for parameter in group["params"]
        )


@dataclass(frozen=True)
class Memory:
    """Which elements of a storage a strided tensor has: the address of the first, and the view."""

    address: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    itemsize: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Memory | None:
        """None for what has no such memory: empty, sparse, nested, or inside a transform."""
        try:
            address = tensor.data_ptr()
            if tensor.layout is not torch.strided or not address or not tensor.numel():
                return None
            shape, stride = tuple(tensor.shape), tuple(tensor.stride())
            return cls(address, shape, stride, tensor.element_size())
        except (NotImplementedError, RuntimeError):
            return None

    def part(self, index: Any) -> Memory:
        """What ``tensor[index]`` has, where that is a view; else all of it.

        >>> Memory(0, (4, 3), (3, 1), 4).part((slice(2), 1))
        Memory(address=4, shape=(2,), stride=(3,), itemsize=4)
        """
        indices = list(index) if isinstance(index, tuple) else [index]
        if not all(type(one) in (int, slice, type(...), type(None)) for one in indices):
            return self
        indices = [one for one in indices if one is not None]
        if ... in indices:
            here = indices.index(...)
            missing = len(self.shape) - (len(indices) - 1)
            indices[here : here + 1] = [slice(None)] * missing
        address, shape, stride = self.address, [], []
        for dimension, (length, step) in enumerate(zip(self.shape, self.stride, strict=True)):
            one = indices[dimension] if dimension < len(indices) else slice(None)
            if isinstance(one, int):
                address += (one % length) * step * self.itemsize
                continue
            chosen = range(length)[one]
            if not chosen:
                return self
            address += chosen.start * step * self.itemsize
            shape.append(len(chosen))
            stride.append(step * chosen.step)
        return Memory(address, tuple(shape), tuple(stride), self.itemsize)

    @property
    def span(self) -> range:
        """The addresses from the first element to behind the last."""
        last = sum((n - 1) * stride for n, stride in zip(self.shape, self.stride, strict=True))
        return range(self.address, self.address + (last + 1) * self.itemsize)

    def overlaps(self, other: Memory) -> bool:
        """Whether they share an element; of very large ones, whether their spans do."""
        mine, its = self.span, other.span
        if mine.stop <= its.start or its.stop <= mine.start:
            return False
        begin, end = min(mine.start, its.start), max(mine.stop, its.stop)
        size = (end - begin) // self.itemsize
        if self.itemsize != other.itemsize or size > _MAX_COMPARED:
            return True
        marked = torch.zeros(size, dtype=torch.bool)
        first = (mine.start - begin) // self.itemsize
        marked.as_strided(self.shape, self.stride, first).fill_(True)
        first = (its.start - begin) // self.itemsize
        return bool(marked.as_strided(other.shape, other.stride, first).any())


@dataclass(eq=False, slots=True)
class Edit:
    """An in-place change of a tensor's memory, made when the counter stood at ``sequence_nr``.

    ``memory`` is what may have changed, None where it is not known; ``last_call`` the number of the
    backward call before it.
    """

    location: Location | None
    sequence_nr: int
    memory: Memory | None
    last_call: int
    by_optimizer: bool = False
    by_library: bool = False  # by code of PyTorch that a line of the program called
    of_a_view: bool = False  # of a tensor that is a view of another


@dataclass(eq=False)
class Cut:
    """Where a tensor lost its gradient, and how: the name of the evidence is ``cut_by_<how>``.

    ``shape`` is that of what left for Python or numpy, where it can only be guessed that it is what
    came back.  ``of`` are the storages of what a gradient is the gradient of, ``through`` those of
    the leaves of the graph that it went through; ``function`` is the custom function that did it.
    An ``intermediate`` was computed in the forward of a custom function, by an operation that has a
    derivative.
    """

    how: str
    location: Location | None
    shape: tuple[int, ...] | None = None
    of: frozenset[int] = frozenset()
    through: frozenset[int] = frozenset()
    function: str | None = None
    intermediate: bool = False


@dataclass(frozen=True)
class Region:
    """Where gradients were switched off (or on again): the line, and how to call that.

    ``entered`` regions end; others were made by a function's call and last.
    """

    enabled: bool
    location: Location | None
    how: str
    entered: bool


@dataclass(eq=False)
class Untrained:
    """The parameters of an optimizer that had no gradient at any of its first ``steps`` steps.

    By their places among all that it holds: no parameter is kept alive.  ``doubtful`` are those
    that were cut off where it may have been meant, by the line that did, with what to call them:
    the end of the program tells whether they were never trained.
    """

    optimizer: weakref.ref[torch.optim.Optimizer]
    places: list[int]
    steps: int = 0
    last_step: Location | None = None
    doubtful: dict[Location, tuple[list[int], str | None]] = field(default_factory=dict)


@dataclass(eq=False)
class Sum:
    """A total that one line adds to.  It lives in the metadata of the additions' nodes.

    ``count`` is the number of iterations: of additions of something newer than the last one.
    """

    location: Location | None
    count: int = 0
    sequence_nr: int = -1  # of the last addition


@dataclass(eq=False)
class Export:
    """What was in memory that others than PyTorch can write to, at ``sequence_nr``."""

    location: Location | None
    sequence_nr: int
    checksum: str
    memory: Memory
    storage: _torch.StorageReference


def freed_by(node: Any) -> BackwardCall | None:
    """The backward call that freed ``node``, if it was watched."""
    return None if isinstance(node, _torch.LEAF) else node.metadata.get(FREED_TAG)


class Lines:
    """Which line made which nodes: ranges of their numbers, in order."""

    def __init__(self) -> None:
        self._starts, self._ends = array("q"), array("q")
        self._chains: list[Chain] = []

    def add(self, start: int, end: int, chain: Chain) -> None:
        """The numbers from ``start`` up to ``end``, which is not among them."""
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
        """The line that made the node of this number; None if no operation was seen to."""
        place = bisect.bisect_right(self._starts, sequence_nr) - 1
        if place < 0 or sequence_nr >= self._ends[place]:
            return None
        return self._chains[place]

    def between(self, start: int, end: int) -> list[Chain]:
        """The lines that made the nodes from ``start`` on, and before ``end``."""
        first = max(bisect.bisect_right(self._starts, start) - 1, 0)
        return list(dict.fromkeys(self._chains[first : bisect.bisect_left(self._starts, end)]))

    def __len__(self) -> int:
        return len(self._chains)


class _Keyed(weakref.ref[Any]):
    """A weak reference that knows where it is kept."""

    __slots__ = ("key",)
    key: int


def _keyed(value: Any, died: Callable[[Any], None]) -> _Keyed:
    reference = _Keyed(value, died)
    reference.key = id(value)
    return reference


class Cuts:
    """The tensors that have no gradient, and why.

    No reference to them is kept, not even a weak one: PyTorch does not swap tensors that have one.
    So an address may come to stand for another tensor, which must be forgotten when it is made.
    """

    def __init__(self) -> None:
        self._cuts: dict[int, tuple[torch.Size, Cut]] = {}
        self._frozen: dict[int, tuple[torch.Size, Cut]] = {}  # leaves: they outlast the others

    def get(self, tensor: torch.Tensor) -> Cut | None:
        key = _torch.tensor_identity(tensor)
        shape, cut = self._cuts.get(key) or self._frozen.get(key) or (None, None)
        return cut if shape == tensor.shape else None

    def of(self, storages: Collection[int]) -> Cut | None:
        """The latest cut of anything in one of these storages."""
        found = (cut for _, cut in reversed(self._cuts.values()) if cut.of & {*storages})
        return next(found, None)

    def set(self, tensor: torch.Tensor, cut: Cut) -> None:
        table = self._frozen if cut.how == "frozen" and tensor.is_leaf else self._cuts
        if len(table) >= _MAX_CUTS:
            del table[next(iter(table))]
        table[_torch.tensor_identity(tensor)] = tensor.shape, cut

    def forget(self, tensor: torch.Tensor) -> None:
        """It has just been made: what was known of its address was of another one."""
        self._cuts.pop(_torch.tensor_identity(tensor), None)
        self._frozen.pop(_torch.tensor_identity(tensor), None)

    def __len__(self) -> int:
        return len(self._cuts) + len(self._frozen)


class Sums:
    """The long sums that live, by the numbers of their last additions, and those that died."""

    def __init__(self) -> None:
        self._alive: dict[int, _Keyed] = {}
        self.died: list[Location | None] = []  # where sums were made that no backward ran through

    def add(self, total: Sum) -> None:
        locations, alive = self.died, self._alive
        location = total.location

        def died(reference: _Keyed) -> None:
            if alive.pop(reference.key, None) is not None:
                locations.append(location)

        alive[id(total)] = _keyed(total, _torch.never_compiled(died))

    def alive(self) -> dict[int, Sum]:
        found = [reference() for reference in list(self._alive.values())]
        return {total.sequence_nr: total for total in found if total is not None}

    def used(self, total: Sum) -> None:
        """A backward ran through it."""
        self._alive.pop(id(total), None)

    def __len__(self) -> int:
        return len(self._alive)


class Timeline:
    """What happened in one thread.  Lines, writes and cuts are known if it is ``observed``."""

    def __init__(self) -> None:
        self.observed = False  # by a strict watch
        self.calls: deque[BackwardCall] = deque(maxlen=_MAX_CALLS)
        self.backwards = 0
        self.steps: deque[Step] = deque(maxlen=_MAX_STEPS)
        self.lines = Lines()
        self.cuts = Cuts()
        self.left: Cut | None = None  # where a value last left for Python or numpy
        self.left_after = 0  # the number of the backward before that
        self.first_order: dict[int, Cut] = {}  # by the number of the node that used the gradient
        self.sums = Sums()
        self.running: list[tuple[BackwardCall, Any]] = []  # calls in progress, with their outputs
        self.looked_inside = 0  # steps inside a backward that were looked at
        self.sizes: dict[Location | None, deque[tuple[int, int, int | None]]] = {}
        self.untrained: dict[int, Untrained] = {}  # by the optimizer's identity
        # Leaves without a gradient, by identity, with where they were cut off and whether meant so.
        self.suspects: dict[int, tuple[Cut, bool] | None] = {}
        self.fed: set[Location | None] = set()  # cuts behind which something is trained
        self.last_write = -1  # the number at which memory was last changed, or given to others
        self.graph_elsewhere = (
            -1
        )  # the number before the last backward that another thread recorded
        self._edits: dict[int, deque[Edit]] = {}  # by storage
        self._exports: dict[int, deque[Export]] = {}  # by storage

    def line_of(self, sequence_nr: int | None) -> Location | None:
        """The line that made the node of this number."""
        chain = self.lines.find(-1 if sequence_nr is None else sequence_nr)
        return None if chain is None else chain.location

    def ended(self, call: BackwardCall) -> None:
        """Note whether another thread recorded the graph of this call's gradients.

        That of an accelerator does, and numbers the nodes by a counter of its own.
        """
        if call.creates_graph and (
            call.on_accelerator or _torch.next_sequence_nr() == call.sequence_nr
        ):
            self.graph_elsewhere = call.sequence_nr - 1  # what comes next has the call's number

    @property
    def last_call(self) -> int:
        return self.calls[-1].number if self.calls else 0

    def call_after(self, number: int | None) -> BackwardCall | None:
        """The first call after that of this number; the last one of all for None.

        What a custom function's backward calls comes after it, and ends before it does.
        """
        if number is None:
            return self.calls[-1] if self.calls else None
        return next((call for call in self.calls if call.number > number), None)

    def stepped(self, optimizer: torch.optim.Optimizer, location: Location | None) -> None:
        storages = None
        if self.observed:  # those that have a gradient now
            with _torch.no_torch_function():
                storages = frozenset(
                    storage_of(parameter)[0]
                    for group in optimizer.param_groups
                    for parameter in group["params"]
                    if parameter.grad is not None
                )
            if self.steps and self.steps[-1].storages == storages:
                storages = self.steps[-1].storages  # kept once
        now = _torch.next_sequence_nr()
        step = Step(weakref.ref(optimizer), location, now, self.last_call, storages)
        self.steps.append(step)
        self.last_write = now

    def cut_off(self, tensors: Iterable[torch.Tensor], cut: Cut, meant: bool) -> None:
        """Note on the suspects that lie behind these tensors that they were cut off here.

        ``meant`` is a cut that the program says it makes.
        """
        for node in walk(roots_of([tensor for tensor in tensors if tensor.requires_grad]))[0]:
            if not isinstance(node, _torch.LEAF):
                continue
            key = _torch.tensor_identity(node.variable)
            if key in self.suspects:
                known = self.suspects[key]
                if known is None or (known[1] and (not meant or known[0].location not in self.fed)):
                    self.suspects[key] = cut, meant

    def came_back(self, cut: Cut) -> None:
        """What had left there is a tensor again: the cut was not meant as one."""
        for key, known in self.suspects.items():
            if known is not None and known[0].location == cut.location:
                self.suspects[key] = known[0], False

    def edited(self, storage: int, edit: Edit) -> None:
        _latest(self._edits, storage, _MAX_EDITED, _MAX_EDITS).append(edit)
        self.last_write = max(self.last_write, edit.sequence_nr)

    def exported(self, storage: int, export: Export) -> None:
        _latest(self._exports, storage, _MAX_EXPORTED, _MAX_EXPORTS).append(export)

    def edits_since(self, sequence_nr: int, storage: int) -> Iterator[Edit]:
        """The changes of this storage after the operation of that number, the first one first."""
        steps = (
            Edit(step.location, step.sequence_nr, None, step.last_call, by_optimizer=True)
            for step in _since(sequence_nr, self.steps)
            if step.changed(storage)
        )
        edits = [*_since(sequence_nr, self._edits.get(storage, ())), *steps]
        return iter(sorted(edits, key=lambda edit: edit.sequence_nr))

    def edits_of(self, address: int, since: int) -> Iterator[Edit]:
        """The changes of memory at this address, whatever tensor they were made through."""
        for edits in tuple(self._edits.values()):
            for edit in edits:
                if edit.sequence_nr > since and edit.memory and address in edit.memory.span:
                    yield edit

    def exports_of(self, storage: int) -> list[Export]:
        found = self._exports.get(storage, ())
        return [export for export in found if not export.storage.expired()]

    @property
    def has_exports(self) -> bool:
        return bool(self._exports)

    def is_exported(self, storage: int) -> bool:
        return storage in self._exports


class Record:
    """What one watch knows: a timeline for each thread, and its findings."""

    def __init__(self) -> None:
        self._threads = threading.local()
        self._count = itertools.count(1)
        self.threads = 0  # that called backward or made a step
        self.findings: list[Any] = []
        self.told: set[tuple[str, Location]] = set()  # cause and line, each told once
        self.broken: str | None = None  # what went wrong in gradtrace itself

    def note_failure(self, error: Exception) -> None:
        """Remember that gradtrace itself failed, and report it in one line, each failure once."""
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
        """This thread's."""
        found = getattr(self._threads, "timeline", None)
        if found is None:
            found = self._threads.timeline = Timeline()
            self.threads = next(self._count)
        return found


def _since(sequence_nr: int, entries: Sequence[Any]) -> list[Any]:
    """Those of the entries that are newer, in order."""
    newer = itertools.takewhile(lambda entry: entry.sequence_nr > sequence_nr, reversed(entries))
    return [*newer][::-1]


def _latest(table: dict[int, deque[T]], key: int, keys: int, entries: int) -> deque[T]:
    """The entries under a key, made if need be; of both only the latest are kept."""
    found = table.get(key)
    if found is None:
        found = table[key] = deque(maxlen=entries)
        if len(table) > keys:
            del table[next(iter(table))]
    return found
