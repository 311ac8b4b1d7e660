"""Watch a training program, and explain the error when backward fails.

PyTorch has one point through which every backward goes: ``torch.autograd._engine_run_backward``.
A watch wraps it.  After a backward that frees, it remembers the sequence numbers of the nodes that
call reached: numbers keep nothing alive.  A global hook notes where optimizers step.  That is all,
so a watch can stay on.  When a backward fails, :mod:`gradtrace.diagnose` reads these records, and
its explanation is added to the exception as a note: the exception itself, its type, its text and
its traceback stay PyTorch's.

A strict watch also sees every operation, through a ``TorchFunctionMode``: which line made a node,
which line changed a tensor in place, which call cut a gradient off.  With that it finds failures
that raise nothing, and warns about each once.

Whatever goes wrong in here, the program goes on as if it were not watched.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from gradtrace import diagnose
from gradtrace.diagnose import CHAIN_TAG, ROOT_TAG
from gradtrace.frames import (
    Chain,
    Location,
    is_users,
    location_of,
    namespace,
    user_chain,
    user_frame,
    user_location,
)
from gradtrace.graph import (
    describe,
    no_garbage_collection,
    root_node,
    roots_of,
    storage_of,
    undisturbed,
    walk,
)

_MAX_CALLS = _MAX_STEPS = 10_000
_MAX_LINES = 200_000
_MAX_EDITED, _MAX_EDITS = 10_000, 100  # storages, edits of one
_MAX_OPERATIONS = 100
_MAX_FREED = 200_000
_MAX_EXPORT, _MAX_EXPORTS = 1_000_000, 64  # bytes of one, number
_GROWING = 5  # retained backwards from one line, each over a larger graph
_LOOKS = (32, 128, 512, 2_048)  # at these backwards look for what the variables keep
_LEAKING = 3  # additions of a loss that has been through backward to one sum


class SilentFailure(UserWarning):
    """A failure that raises nothing: a wrong gradient, or a graph that grows."""


@dataclass
class BackwardCall:
    """One call of ``backward`` or ``autograd.grad``; ``sequence_nr`` is PyTorch's counter then."""

    number: int
    location: Location | None
    sequence_nr: int
    keeps_graph: bool
    creates_graph: bool = False
    once_differentiable: bool = False  # whether such a function is in its graph
    operations: tuple[str, ...] = ()  # of the graph it freed, those nearest to the loss


@dataclass
class Edit:
    """An in-place change of a tensor's memory, made when the counter stood at ``sequence_nr``."""

    location: Location | None
    sequence_nr: int
    pointer: int  # to the memory
    last_call: int  # the number of the backward call before it
    by_optimizer: bool = False


@dataclass
class Reason:
    """Why a tensor has no gradient: ``kind`` is a cause of the family ``no_graph``."""

    kind: str
    location: Location | None
    shape: tuple[int, ...] | None = None  # of what left for Python or numpy


class _Freed:
    """The backward calls of one thread, in order, and the sequence numbers of what each freed."""

    def __init__(self) -> None:
        self.calls: list[tuple[BackwardCall, set[int]]] = []
        self.began: list[int] = []
        self.size = 0

    def add(self, call: BackwardCall, numbers: set[int]) -> None:
        self.calls.append((call, numbers))
        self.began.append(call.sequence_nr)
        self.size += len(numbers)
        if self.size > _MAX_FREED and len(self.calls) > 2:
            old = len(self.calls) // 2
            del self.calls[:old], self.began[:old]
            self.size = sum(len(numbers) for _, numbers in self.calls)

    def by(self, sequence: int) -> BackwardCall | None:
        """The first call that freed this node: one that began after the node was made."""
        for place in range(bisect.bisect_right(self.began, sequence), len(self.calls)):
            call, numbers = self.calls[place]
            if sequence in numbers:
                return call
        return None


@dataclass(eq=False)
class Sum:
    """A total that one line adds to.  It lives in the metadata of the additions' nodes."""

    location: Location | None
    count: int = 1
    sequence_nr: int = -1  # of the last addition
    used: bool = False  # whether a backward went through it


@dataclass
class Export:
    """What was in memory that others than PyTorch can write to, at ``sequence_nr``."""

    location: Location | None
    sequence_nr: int
    checksum: str
    tensor: torch.Tensor


# The number that the next recorded operation of this thread will get.  Private to PyTorch: without
# it lines and edits cannot be put in order, and explanations say less.
_sequence_nr = getattr(torch.autograd, "_get_sequence_nr", lambda: 0)


class Recorder:
    """What is known of the program while any watch is on.  There is one: ``recorder``."""

    def __init__(self) -> None:
        self.watches: list[Watch] = []
        self.forget()

    def forget(self) -> None:
        """Start from nothing, as when the first watch begins."""
        self.numbers = itertools.count(1)
        self.calls: deque[BackwardCall] = deque(maxlen=_MAX_CALLS)
        self.steps: deque[tuple[weakref.ref, Location | None, int]] = deque(maxlen=_MAX_STEPS)
        self.made_at: deque[tuple[int, Chain]] = deque(maxlen=_MAX_LINES)
        self.chains: dict[Chain, Chain] = {}  # each kept once
        self.freed: dict[int, _Freed] = {}  # by thread
        self.edits: dict[int, deque[Edit]] = {}  # by storage
        self.reasons = WeakIdKeyDictionary()  # tensor → Reason
        self.exports: dict[int, deque[Export]] = {}  # by storage
        self.sums: dict[int, weakref.ref[Sum]] = {}  # long ones, by identity
        self.first_order: dict[int, Reason] = {}  # by sequence number
        self.left: Reason | None = None  # where a value last left for Python or numpy
        self.sizes: dict[Location | None, deque[int]] = {}  # of retained graphs, by line
        self.findings: list[diagnose.Diagnosis] = []
        self.warned: set[tuple[str, Location | None]] = set()
        self.died: set[Location | None] = set()  # where long sums were made that nothing used
        self.broken: str | None = None

    @property
    def strict(self) -> bool:
        return any(one.strict for one in self.watches)

    def call_of(self, node) -> BackwardCall | None:
        """The backward call that freed ``node``, if it is known."""
        freed = self.freed.get(threading.get_ident())
        sequence = node._sequence_nr()
        return None if freed is None or sequence == _LEAF else freed.by(sequence)

    def line_of(self, sequence: int) -> Location | None:
        """The line that made the node with this sequence number; only a strict watch knows."""
        chain = self.chain_of(sequence)
        return location_of(chain) if chain else None

    def chain_of(self, sequence: int) -> Chain | None:
        """That line, the line that called it, and so on."""
        place = bisect.bisect_right(self.made_at, sequence, key=lambda entry: entry[0]) - 1
        return self.made_at[place][1] if place >= 0 else None

    # What the wrapped engine reports.

    def began(self, outputs: Any, keeps_graph: bool, creates_graph: bool) -> BackwardCall:
        call = BackwardCall(
            next(self.numbers),
            user_location(),
            _sequence_nr(),
            bool(keeps_graph or creates_graph),
            bool(creates_graph),
        )
        self.calls.append(call)
        if self.strict:
            self.look_for_silent_failures(outputs, call)
        return call

    def ended(self, call: BackwardCall, outputs: tuple, whole: bool) -> None:
        """Mark what was freed.  ``whole``: the call ran to the leaves, not to some inputs only."""
        if call.keeps_graph:
            return
        # Remembering sequence numbers is several times faster than marking each node.  What is
        # known as freed was freed with all behind it: the walk need not go there again, unless the
        # earlier call was for some inputs only.
        mine = {_LEAF}
        freed = self.freed.setdefault(threading.get_ident(), _Freed())
        newest = freed.began[-1] if freed.began else 0
        with no_garbage_collection():
            pending = []
            for root in dict.fromkeys(roots_of(outputs)):
                root.metadata.setdefault(ROOT_TAG, call.number)
                pending.append(root)
                sequence = root._sequence_nr()
                if sequence >= newest or freed.by(sequence) is None:
                    mine.add(sequence)
            for node in pending:
                for successor, _ in node.next_functions:
                    if successor is not None:
                        sequence = successor._sequence_nr()
                        if sequence not in mine:
                            old = whole and sequence < newest
                            if not (old and freed.by(sequence)):
                                mine.add(sequence)
                                pending.append(successor)
            call.operations = tuple(node.name() for node in pending[:_MAX_OPERATIONS])
        freed.add(call, mine)

    # What optimizers report.

    def stepped(self, optimizer: torch.optim.Optimizer, *unused: Any) -> None:
        location, now = user_location(), _sequence_nr()
        self.steps.append((weakref.ref(optimizer), location, now))
        if self.strict:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self.edited(parameter, location, now, by_optimizer=True)

    # What a strict watch sees of the operations.

    def edited(self, tensor, location, sequence_nr: int, by_optimizer: bool = False) -> None:
        last = self.calls[-1].number if self.calls else 0
        try:
            pointer = tensor.data_ptr()
        except RuntimeError:  # sparse, or inside a transform of torch.func
            pointer = 0
        edit = Edit(location, sequence_nr, pointer, last, by_optimizer)
        _latest(self.edits, storage_of(tensor)[0], _MAX_EDITED, _MAX_EDITS).append(edit)

    def exported(self, tensor: torch.Tensor, location, sequence_nr: int) -> None:
        """Memory that numpy shares can change without PyTorch: remember what is in it."""
        if tensor.nbytes <= _MAX_EXPORT:
            export = Export(location, sequence_nr, diagnose.checksum(tensor), tensor.detach())
            _latest(self.exports, storage_of(tensor)[0], _MAX_EXPORTS, _MAX_EXPORTS).append(export)

    def summed(self, total: Sum) -> None:
        """Remember a long sum until it dies: it may never go through a backward."""

        identity, location = id(total), total.location

        def died(_: Any) -> None:
            if self.sums.pop(identity, None) is not None:
                self.died.add(location)

        self.sums[identity] = weakref.ref(total, died)

    # What a strict watch looks for.

    def look_for_silent_failures(self, outputs: tuple, call: BackwardCall) -> None:
        with undisturbed():
            live, links = walk(roots_of(outputs))
            graph = describe(live, links)
        call.once_differentiable = any(diagnose.is_once_differentiable(node) for node in live)
        for finding in diagnose.silent_failures(self, graph, call.location):
            self.report(finding)
        reached = {node.sequence_nr for node in graph.nodes}
        for identity, reference in list(self.sums.items()):
            total = reference()
            if total is not None and total.sequence_nr in reached:
                del self.sums[identity]
                total.used = True
        for sequence in reached & self.first_order.keys():
            began_at = self.first_order.pop(sequence).location
            self.report(diagnose.silent("create_graph_missing", call.location, began_at))
        self.look_for_unused_sums()
        if call.number in _LOOKS:
            frame = user_frame(sys._getframe(1))
            while frame is not None:
                self.look_for_leaks(namespace(frame))
                frame = user_frame(frame.f_back)
        if call.keeps_graph:
            sizes = self.sizes.setdefault(call.location, deque(maxlen=_GROWING))
            sizes.append(len(live))
            if len(sizes) == _GROWING and all(a < b for a, b in itertools.pairwise(sizes)):
                self.report(diagnose.silent("graph_grows", call.location, call.location))

    def look_for_leaks(self, variables: Mapping[str, Any]) -> None:
        """What the program's variables still hold when a watch ends."""
        self.look_for_unused_sums()
        for finding in diagnose.leaks(self, variables):
            self.report(finding)

    def look_for_unused_sums(self) -> None:
        while self.died:
            location = self.died.pop()
            self.report(diagnose.silent("graph_grows", location, location))

    def report(self, finding: diagnose.Diagnosis) -> None:
        """Warn once for each cause and line."""
        where = finding.began_at or finding.raised_at or Location("<unknown>", 1)
        if (finding.cause, where) in self.warned:
            return
        self.warned.add((finding.cause, where))
        self.findings.append(finding)
        # A filter that turns warnings into errors must not stop the program.
        with contextlib.suppress(SilentFailure):
            warnings.warn_explicit(finding.text(), SilentFailure, where.name, where.line)


# All leaves have the same number.
_LEAF = root_node(torch.zeros((), requires_grad=True))._sequence_nr()
recorder = Recorder()


def guarded(function: Callable) -> Callable:
    """The program always wins: a failure of gradtrace is remembered and never raised."""

    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            recorder.broken = f"{type(error).__name__}: {error}"
            return None

    return inner


class _Operations(TorchFunctionMode):
    """Sees each operation of a strict watch: the lines that make nodes, edit tensors, cut grads."""

    def __init__(self) -> None:
        super().__init__()
        self.sequence_nr = -1
        self.on = True
        self.region: Location | None = None  # of the line that switched gradients off

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        getter = func.__self__.__name__ if name == "__get__" else None
        if not self.on or (getter and getter not in _GETTERS):
            return func(*args, **kwargs)
        if name == "_set_grad_enabled":
            guarded(self.note_region)(args[0])
            return func(*args, **kwargs)
        tensors = [*_tensors(args), *_tensors(kwargs.values())]
        before = [None if t.is_inference() else t._version for t in tensors]
        started = _sequence_nr()
        result = func(*args, **kwargs)
        self.note(getter or name, tensors, before, started, result)
        return result

    @guarded
    def note(self, name, tensors, before, started, result) -> None:
        location = None
        if _sequence_nr() != self.sequence_nr:
            self.sequence_nr = _sequence_nr()
            chain = user_chain()
            location = location_of(chain)
            if not recorder.made_at or recorder.made_at[-1][1] != chain:
                chain = recorder.chains.setdefault(chain, chain)
                recorder.made_at.append((started, chain))
            for tensor in tensors:
                if _is_exported(tensor):
                    recorder.exported(tensor, location, started)
        for tensor, version in zip(tensors, before, strict=True):
            if version is not None and tensor._version != version:
                recorder.edited(tensor, location or user_location(), started)
        if name in _EXPORTING:
            recorder.exported(tensors[0], location or user_location(), started)
        if name in _LEAVING:
            self.note_leaving(tensors[0])
        for output in result if isinstance(result, (tuple, list)) else (result,):
            if not isinstance(output, torch.Tensor):
                continue
            if not output.requires_grad:
                self.note_reason(name, tensors, output)
            elif name in _ADDING:
                self.note_sum(tensors, output, location or user_location())

    def note_region(self, enabled: bool) -> None:
        """Remember the line ``with torch.no_grad():``; a decorated function has no such line."""
        if enabled:
            self.region = None
        elif torch.is_grad_enabled():
            frame, decorated = sys._getframe(2), False
            while frame is not None and not is_users(frame.f_code):
                decorated = decorated or frame.f_code.co_name == "decorate_context"
                frame = frame.f_back
            known = frame is not None and not decorated
            self.region = Location(frame.f_code.co_filename, frame.f_lineno) if known else None

    def note_leaving(self, tensor: torch.Tensor) -> None:
        reason = recorder.reasons.get(tensor)
        if reason is not None or tensor.requires_grad:
            location = user_location() if reason is None else reason.location
            recorder.left = Reason("detach_wrong_place", location, tuple(tensor.shape))

    def note_reason(self, name, tensors, output) -> None:
        """Why a result has no gradient: remember where the gradient was cut off."""
        reasons = recorder.reasons
        if output in reasons:
            return
        kind, location = None, user_location()
        if name == "grad":  # torch.autograd.grad, and the attribute
            call = recorder.calls[-1] if recorder.calls else None
            if call is None or not call.creates_graph:
                kind = "create_graph_missing"
                location = call.location if call is not None else location
            elif call.once_differentiable:
                kind = "once_differentiable"
        elif not any(tensor.requires_grad for tensor in tensors):
            reason = next((reasons[t] for t in tensors if t in reasons), None)
            if reason is None:
                reason = self.came_back(tensors, output)
            elif name in _CUTTING and reason.kind == "create_graph_missing":
                reason = Reason("detach_wrong_place", location)
            if reason is not None:
                reasons[output] = reason
            return
        elif name in _CUTTING:
            kind = "detach_wrong_place"
        elif not torch.is_grad_enabled():
            kind = _library_kind() or "no_grad_region"
            if kind == "no_grad_region":
                location = self.region or location
        else:
            kind = "not_differentiable_op"
        if kind is not None:
            reasons[output] = Reason(kind, location)

    def came_back(self, tensors, output) -> Reason | None:
        """Why a tensor made of a Python number, or in numpy's memory, has no gradient."""
        left = recorder.left
        if left is None or not output.is_floating_point():
            return None
        if not tensors:
            return left if tuple(output.shape) in ((), left.shape) else None
        back = any(tuple(t.shape) == left.shape and _is_exported(t) for t in tensors)
        return left if back else None

    def note_sum(self, tensors, output, location) -> None:
        """Follow what one line adds up, and gradients that are used without a graph."""
        node = output.grad_fn
        if node is None:
            return
        for tensor in tensors:
            reason = recorder.reasons.get(tensor)
            if reason is not None and reason.kind == "create_graph_missing":
                recorder.first_order[node._sequence_nr()] = reason
        if output.numel() != 1:
            return
        total, used_up = Sum(location), False
        for successor, _ in node.next_functions:
            if successor is None:
                continue
            before = successor.metadata.get(CHAIN_TAG)
            if before is not None and before.location == location:
                total = before
                total.count += 1
            used_up = used_up or recorder.call_of(successor) is not None
        total.sequence_nr = node._sequence_nr()
        node.metadata[CHAIN_TAG] = total
        if used_up and total.count >= _LEAKING:
            recorder.report(diagnose.silent("graph_grows", location, location))
        elif total.count == diagnose.MANY and diagnose.adds_the_same(node, total):
            recorder.summed(total)


_GETTERS = ("data", "grad", "T", "mT", "H", "mH", "real", "imag")
_ADDING = ("add", "add_", "__add__", "__iadd__", "__radd__",
           "sub", "sub_", "__sub__", "__isub__", "__rsub__", "rsub")  # fmt: skip
_CUTTING = ("data", "detach", "detach_", "tensor", "numpy")
_EXPORTING = ("numpy", "__array__", "__dlpack__")
_LEAVING = (*_EXPORTING, "item", "tolist", "__float__")


def _is_exported(tensor: torch.Tensor) -> bool:
    """Whether others, numpy for one, can write to its memory: PyTorch cannot resize that."""
    try:
        storage = tensor.untyped_storage()
        return tensor.device.type == "cpu" and (
            not storage.resizable() or storage._cdata in recorder.exports
        )
    except (NotImplementedError, RuntimeError):
        return False


def _library_kind() -> str | None:
    """The cause when it is not the program that has switched gradients off, but PyTorch."""
    frame = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code):
        for library, kind in _LIBRARIES.items():
            if library in frame.f_code.co_filename:
                return kind
        frame = frame.f_back
    return None


_TORCH = str(Path(torch.__file__).parent)
_LIBRARIES = {
    str(Path(_TORCH, "utils", "checkpoint")): "checkpoint_reentrant",
    str(Path(_TORCH, "distributions")): "not_differentiable_op",
}


def _latest(table: dict[int, deque], key: int, keys: int, entries: int) -> deque:
    """The entries under a key, made if need be; of both only the latest are kept."""
    found = table.get(key)
    if found is None:
        found = table[key] = deque(maxlen=entries)
        if len(table) > keys:
            del table[next(iter(table))]
    return found


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from (item for item in value if isinstance(item, torch.Tensor))


def watch(function: Callable | None = None, /, *, strict: bool = False) -> Any:
    """Explain the error when a backward fails, at next to no cost when none does.

    Use it as a context manager (``with watch():``), as a decorator (``@watch`` or ``@watch()``),
    or as a plain call, which watches until ``.stop()`` or the end of the program.

    Args:
        strict: see every operation.  Costs up to three times as much, names the lines that made
            and changed tensors, and warns (:class:`SilentFailure`) about failures that raise
            nothing.

    The original exception is raised, with one more note in ``exception.__notes__``.

    >>> import torch
    >>> with watch():
    ...     loss = torch.ones(3, requires_grad=True).exp().sum()
    ...     loss.backward()
    ...     try:
    ...         loss.backward()
    ...     except RuntimeError as error:
    ...         print(error.__notes__[-1].splitlines()[0])
    gradtrace: the forward pass was not run again: this loss has already been through backward.
    """
    if function is None:
        return Watch(strict)
    if not callable(function):
        raise TypeError(
            f"watch() takes a function, not {type(function).__name__}: use `with watch():`, "
            "`@watch` or watch(strict=True)"
        )
    return Watch(strict)(function)


class Watch(contextlib.AbstractContextManager):
    """One watch, made by :func:`watch`.  ``findings`` are the silent failures warned about."""

    def __init__(self, strict: bool):
        self.strict = strict
        self._mode: _Operations | None = None
        self._begin()

    @property
    def findings(self) -> list[diagnose.Diagnosis]:
        return recorder.findings

    def explain(self, error: Exception) -> diagnose.Diagnosis | None:
        """Explain an error that came from elsewhere than a backward, and add it as a note."""
        return explain_on(error)

    def look_for_leaks(self, variables: Mapping[str, Any]) -> None:
        """Warn about sums and lists among ``variables`` that keep many graphs alive."""
        guarded(recorder.look_for_leaks)(variables)

    def _begin(self) -> None:
        _install(self)
        if self.strict:
            self._mode = _Operations()
            self._mode.__enter__()

    def stop(self) -> None:
        """Stop watching; without another watch PyTorch is as it was.  Stopping twice is fine."""
        if self not in recorder.watches:
            return
        if self._mode is not None:
            self._mode.on = False
            if _top_mode() is self._mode:  # else another mode was entered later and is still on
                self._mode.__exit__(None, None, None)
            self._mode = None
        _uninstall(self)

    def __call__(self, function: Callable) -> Callable:
        self.stop()  # as a decorator it watches while the function runs, not before

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with Watch(self.strict):
                return function(*args, **kwargs)

        return watched

    def __exit__(self, kind, error, traceback) -> None:
        frame = user_frame(sys._getframe(1))
        if self.strict and frame is not None:
            guarded(recorder.look_for_leaks)(namespace(frame))
        if isinstance(error, Exception):
            explain_on(error)
        self.stop()


def explain_on(error: Exception) -> diagnose.Diagnosis | None:
    """Add the explanation to an exception that came from elsewhere than a backward."""
    if _EXPLAINED in error.__dict__:
        return explanation_of(error)
    return _explain(error, None, None)


def explanation_of(error: BaseException) -> diagnose.Diagnosis | None:
    """What a watch found out about this exception."""
    return error.__dict__.get(_EXPLAINED)


_EXPLAINED = "__gradtrace__"  # in the dict of an exception
_lock = threading.RLock()
_engine: Callable | None = None  # PyTorch's own, while it is wrapped
_handles: list[Any] = []


def _watched_engine(outputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands in for ``_engine_run_backward(outputs, grad_outputs, retain, create, inputs, …)``."""
    call = guarded(recorder.began)(outputs, args[1], args[2])
    try:
        result = _engine(outputs, *args, **kwargs)
    except Exception as error:
        if _EXPLAINED not in error.__dict__:
            _explain(error, outputs, call)
        raise
    if call is not None:
        guarded(recorder.ended)(call, outputs, not args[3])
    return result


def _explain(error: Exception, outputs: Any, call: BackwardCall | None):
    with _lock:  # one thread at a time
        recorder.broken = None
        diagnosis = guarded(diagnose.failure)(recorder, error, outputs, call)
        broken = recorder.broken
    if diagnosis is not None:
        note = diagnosis.text()
    elif broken is not None:
        note = f"gradtrace could not explain this error ({broken})."
    else:
        return None
    error.__dict__[_EXPLAINED] = diagnosis
    # An exception class may forbid notes.
    with contextlib.suppress(Exception):
        error.add_note(note)
    if not _notes_are_shown():
        print(note, file=sys.stderr)
    return diagnosis


def _notes_are_shown() -> bool:
    """Python shows ``__notes__``; in a notebook it is up to IPython (7.34 on Colab does not)."""
    ipython = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        return True
    from IPython.core import ultratb

    return "__notes__" in Path(ultratb.__file__).read_text(encoding="utf-8")


def _top_mode() -> Any:
    depth = torch._C._len_torch_function_stack()
    return torch._C._get_function_stack_at(depth - 1) if depth else None


def _install(one: Watch) -> None:
    global _engine
    with _lock:
        if not recorder.watches:
            recorder.forget()
            _engine = torch.autograd._engine_run_backward
            torch.autograd._engine_run_backward = _watched_engine
            _handles.append(register_optimizer_step_post_hook(guarded(recorder.stepped)))
        recorder.watches.append(one)


def _uninstall(one: Watch) -> None:
    with _lock:
        recorder.watches.remove(one)
        if not recorder.watches:
            if torch.autograd._engine_run_backward is _watched_engine:
                torch.autograd._engine_run_backward = _engine
            while _handles:
                _handles.pop().remove()
