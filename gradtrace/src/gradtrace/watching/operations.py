"""The observer of a strict watch: it sees each operation of its thread, and writes to a timeline.

It is a ``TorchFunctionMode`` that hands every operation on and notes which line made which nodes,
which changed a tensor in place, which call cut a gradient off.  It decides nothing.

The operation runs in a *stand-in*: a function with the file, line and globals of the line that
called it.  So a warning that PyTorch raises names that line and is counted there, and an error
leaves with the traceback that it would have without the observer.

It steps aside where something else drives: in what ``torch.compile`` compiles, inside an
optimizer's step, under ``torch.func``, ``torch.jit.trace``, ``torch.export`` and other dispatch
modes.  What happens there it does not see.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import torch

from gradtrace import _torch
from gradtrace.autograd.frames import (
    STAND_IN,
    Chain,
    Chains,
    Location,
    is_users,
    place_of,
    raised_by_the_program,
    user_location,
)
from gradtrace.autograd.tensors import storage_of
from gradtrace.watching.record import (
    OF_SCALED_TAG,
    SCALED_TAG,
    SUM_TAG,
    Cut,
    Edit,
    Export,
    Memory,
    Record,
    Region,
    Sum,
    Timeline,
    freed_by,
)

LONG = 10  # additions that make a sum worth following
_MAX_EXPORT = 1_000_000  # bytes of what is checked for changes
_MAX_SITES = 5_000


class _Operation(NamedTuple):
    """One that was seen: its kind, its caller, its tensors and their versions before it.

    ``about`` are those of them that a gradient is the gradient of, or that required grad before it
    was switched; ``index`` is where an item is set, ``last_call`` the number of the last backward
    before it, where it computes a gradient.
    """

    kind: str
    func: Callable[..., Any]
    frame: FrameType
    tensors: list[torch.Tensor]
    versions: list[int | None]
    about: list[torch.Tensor] | None
    index: Any
    sequence_nr: int
    last_call: int | None
    of_scaled: bool = False


class Observer(_torch.Mode):
    """Sees the operations of the thread that made it, from :meth:`look` to :meth:`end`."""

    def __init__(self, record: Record, tell: Callable[[str, Location | None, str | None], None]):
        """``tell`` is told of silent failures: the cause, the line, and the name of what did it."""
        super().__init__()
        self._record: Record | None = record
        self._timeline: Timeline = record.timeline
        self._timeline.observed = True
        self._tell = tell
        self._thread = threading.get_ident()
        self._chains = Chains()
        self._stand_ins: dict[tuple[int, int], tuple[CodeType, CodeType]] = {}
        self._regions: list[Region] = []  # in which gradients are off or on, innermost last
        self._outside = _torch.next_sequence_nr()  # when last an operation was recorded

    def step_aside(self) -> None:
        """See nothing of what follows in this thread, until :meth:`look`."""
        if self.of_this_thread:
            self.take_out()

    def look(self) -> None:
        """See this thread's operations, if this is the observer's."""
        if self.of_this_thread:
            self.insert()

    def end(self) -> None:
        """See nothing more.  Where it cannot be taken off, in another thread, it hands on."""
        self.step_aside()
        self._record = None
        self._timeline = Timeline()
        self._chains = Chains()
        self._stand_ins.clear()

    @property
    def of_this_thread(self) -> bool:
        return self._thread == threading.get_ident() and self._record is not None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        try:
            kind = _KINDS.get(func) or _kind_of(func)
        except TypeError:  # a callable that cannot be hashed
            kind = _OTHER
        if self._record is None or kind is _SAYS_NOTHING:
            return func(*args, **kwargs)
        frame = sys._getframe(1)
        if frame.f_code is _torch.HANDLE:  # a function written in Python: whoever called that
            frame = _caller(_caller(frame))
        operation = None
        try:
            if kind is _NOTHING:
                return func(*args, **kwargs)
            call = _as_if_in(frame) if _torch.tracing() else self._stand_in(frame)
            # What a library does with its parameters' gradients is its own affair.
            passed_on = kind is _ATTRIBUTE and not is_users(frame.f_code)
            if not passed_on and not _torch.others_drive():
                with _torch.no_torch_function():
                    operation = self._before(kind, func, frame, args, kwargs)
            result = call(func, args, kwargs)
        except BaseException as error:
            # Raised again by this bare ``raise``, it leaves without these frames.
            _remove_our_frames(error)
            raise
        if operation is not None:
            with _torch.no_torch_function():
                self._after(operation, result)
        return result

    def _stand_in(self, frame: FrameType) -> FunctionType:
        code = frame.f_code
        key = id(code), frame.f_lasti
        stand_in = self._stand_ins.get(key)  # it holds the code: no identity is used twice
        if stand_in is None:
            if len(self._stand_ins) == _MAX_SITES:
                self._stand_ins.clear()
            place = _CALL.replace(
                co_filename=code.co_filename,
                co_name=STAND_IN,
                co_qualname=STAND_IN,
                co_firstlineno=frame.f_lineno,
            )
            stand_in = self._stand_ins[key] = code, place
        return FunctionType(stand_in[1], frame.f_globals)  # which are not kept: they may be large

    # What goes wrong in here is remembered and never raised: the program wins.

    def _before(
        self,
        kind: str,
        func: Callable[..., Any],
        frame: FrameType,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> _Operation | None:
        try:
            if kind is _REGION:
                self._note_region(frame, args[0])
                return None
            tensors = _tensors(args, kwargs) if kwargs else _tensors(args)
            about, of_scaled = None, False
            if kind is _GRADIENT:
                of_scaled = any(map(_is_scaled, tensors))
                about = _tensors((args[1] if len(args) > 1 else kwargs["inputs"],))
            elif kind is _ATTRIBUTE or (kind is _SWITCH and tensors[0].requires_grad):
                about = tensors
            versions = [_torch.version_of(tensor) for tensor in tensors]
            index = args[1] if kind is _SET_ITEM else None
            now = _torch.next_sequence_nr()
            last_call = self._timeline.last_call if kind is _GRADIENT else None
            return _Operation(
                kind, func, frame, tensors, versions, about, index, now, last_call, of_scaled
            )
        except Exception as error:
            self._broke(error)
            return None

    def _after(self, seen: _Operation, result: Any) -> None:
        try:
            self._note(seen, result)
        except Exception as error:
            self._broke(error)

    def _broke(self, error: Exception) -> None:
        if raised_by_the_program(error):
            raise error
        if self._record is not None:
            self._record.note_failure(error)

    def _note(self, seen: _Operation, result: Any) -> None:
        kind, _, frame, tensors, versions, _, index, started, *_ = seen
        timeline, chain = self._timeline, None
        if kind is _SWITCH:
            self._note_switch(tensors[0], bool(seen.about))
            return
        recording = torch.is_grad_enabled()
        now = _torch.next_sequence_nr()
        if now != started:
            chain = self._chains.here(frame)
            if chain is not None:
                timeline.lines.add(started, now, chain)
            if torch.is_anomaly_enabled():
                _forget_our_frames([result, *tensors], started)
            for tensor in tensors:
                if self._is_exported(tensor):
                    self._note_export(tensor, chain, started)
        elif not recording:
            self._note_custom_function(frame, started)
        if recording:
            self._outside = now
        for tensor, version in zip(tensors, versions, strict=True):
            if version is not None and tensor._version != version:
                # A custom function saves when its forward ends, but has its number before.
                in_custom_forward = not recording and _caller_of_apply(frame, _FAR) is not None
                edited = self._outside if in_custom_forward else started
                written = Memory.of(tensor)
                if written is not None and kind is _SET_ITEM:
                    written = written.part(index)
                self._note_edit(tensor, written, _location(chain), edited, seen)
                self._note_changed_gradient(frame, tensor)
        if kind is _EXPORT:
            self._note_export(tensors[0], chain, started)
        if kind is _EXPORT or kind is _LEAVE:
            self._note_leaving(frame, tensors[0])
        for output in _tensors((result,)):
            is_new = kind is not _ATTRIBUTE and not any(output is tensor for tensor in tensors)
            if is_new and len(timeline.cuts):
                timeline.cuts.forget(output)
            if not output.requires_grad:
                self._note_cut(seen, output)
                continue
            if timeline.suspects:
                self._note_feeding(tensors)
            if frame.f_code.co_filename == _torch.GRAD_SCALER_FILE:
                _tag(output, SCALED_TAG, True)
            elif seen.of_scaled:
                _tag(output, OF_SCALED_TAG, user_location())
            if kind is _COPY and output.is_leaf and timeline.suspects:
                timeline.cut_off(tensors, Cut("copy", user_location()), meant=False)
            elif kind is _ADD:
                self._note_sum(tensors, output, chain)

    def _note_custom_function(self, frame: FrameType | None, sequence_nr: int) -> None:
        """The node of a torch.autograd.Function is numbered before its forward runs."""
        caller = _caller_of_apply(frame, _NEAR)
        chain = None if caller is None else self._chains.here(caller)
        if chain is not None and self._timeline.lines.find(sequence_nr - 1) is None:
            self._timeline.lines.add(sequence_nr - 1, sequence_nr, chain)

    def _note_edit(
        self,
        tensor: torch.Tensor,
        written: Memory | None,
        location: Location | None,
        now: int,
        seen: _Operation,
    ) -> None:
        if _library_how() == "numerical":
            return  # gradcheck moves each element there and back
        last_call = self._timeline.last_call
        edit = Edit(
            location,
            now,
            written,
            last_call,
            by_library=not is_users(seen.frame.f_code),
            of_a_view=seen.kind is not _SET_ITEM and tensor._is_view(),
        )
        self._timeline.edited(storage_of(tensor)[0], edit)

    def _note_changed_gradient(self, frame: FrameType | None, tensor: torch.Tensor) -> None:
        """Whether it is the gradient that a custom function's backward was given."""
        if _torch.current_node() is None:
            return
        while frame is not None and frame.f_code is not _torch.APPLY_BACKWARD:
            frame = frame.f_back
        if frame is None:
            return
        function = _torch.function_of(frame.f_locals["self"])
        changed = storage_of(tensor)[0]
        gradients = _tensors(frame.f_locals["args"])
        if function is not None and any(
            storage_of(gradient)[0] == changed for gradient in gradients
        ):
            name = place_of(function, "backward")
            self._tell("gradient_changed_in_backward", user_location(), name)

    def _note_export(self, tensor: torch.Tensor, chain: Chain | None, now: int) -> None:
        """Memory that numpy shares can change without PyTorch: remember what is in it."""
        memory = Memory.of(tensor) if tensor.device.type == "cpu" else None
        if memory is None or len(memory.span) > _MAX_EXPORT:
            return
        alive = _torch.StorageReference(tensor.untyped_storage())
        export = Export(_location(chain), now, checksum(memory.span), memory, alive)
        self._timeline.exported(storage_of(tensor)[0], export)

    def _is_exported(self, tensor: torch.Tensor) -> bool:
        """Whether others, numpy for one, can write to its memory: PyTorch cannot resize that."""
        has_exports = self._timeline.has_exports
        if not has_exports and (not tensor.is_leaf or type(tensor) is not torch.Tensor):
            return False  # made by PyTorch
        if tensor.layout is not torch.strided or tensor.device.type != "cpu":
            return False
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return False
        return not storage.resizable() or (
            has_exports and self._timeline.is_exported(_torch.storage_identity(storage))
        )

    def _note_region(self, caller: FrameType, enabled: bool) -> None:
        """Remember who switches gradients off, and forget it when he leaves.

        ``with torch.set_grad_enabled(…)`` does so twice, when it is made and when it is entered;
        called as a function it is never left.
        """
        method = _of_grad_mode(caller) or _of_grad_mode(_caller(caller))
        regions = self._regions
        left_open = bool(regions) and not regions[-1].entered
        if method in ("__exit__", "__call__"):  # to what was before: the latter makes a decorator
            if left_open:
                regions.pop()
            if method == "__exit__" and regions:
                regions.pop()
            return
        if left_open:
            opened = regions.pop()
            if method == "__enter__" and opened.enabled == enabled:
                regions.append(replace(opened, entered=True))
                return
        frame, decorated = caller, None
        while not is_users(frame.f_code) and frame.f_back is not None:
            if frame.f_code.co_name == "decorate_context":
                decorated = getattr(frame.f_locals.get("func"), "__code__", None)
            frame = frame.f_back
        location = Location.of(frame) if is_users(frame.f_code) else None
        if decorated is not None and is_users(decorated):
            location = Location(decorated.co_filename, decorated.co_firstlineno)
        how_cut = _library_how() or "region"
        regions.append(Region(enabled, location, how_cut, entered=method == "__enter__"))

    def _note_switch(self, tensor: torch.Tensor, was_on: bool) -> None:
        """``requires_grad`` of a leaf was set."""
        if tensor.requires_grad:
            self._timeline.cuts.forget(tensor)
        elif was_on and tensor.is_leaf:
            self._timeline.cuts.set(tensor, Cut("frozen", user_location()))

    def _note_feeding(self, tensors: list[torch.Tensor]) -> None:
        """Whether this operation is trained, and one of its inputs was cut off: note that cut."""
        if not any(tensor.is_leaf and tensor.requires_grad for tensor in tensors):
            return
        for tensor in tensors:
            if not tensor.requires_grad:
                cut = self._timeline.cuts.get(tensor) or self._came_back([tensor], tensor)
                if cut is not None:
                    self._timeline.fed.add(cut.location)

    def _note_leaving(self, frame: FrameType, tensor: torch.Tensor) -> None:
        cut = self._timeline.cuts.get(tensor)
        if cut is not None or tensor.requires_grad:
            location = user_location() if cut is None else cut.location
            exit_cut = self._timeline.left = Cut("copy", location, tuple(tensor.shape))
            self._timeline.left_after = self._timeline.last_call
            # A program may print its parameters; its forward pass does not.
            taken = tensor.requires_grad and (not tensor.is_leaf or _in_forward(frame))
            if self._timeline.suspects and taken:
                self._timeline.cut_off([tensor], exit_cut, meant=False)

    def _note_cut(self, seen: _Operation, output: torch.Tensor) -> None:
        """Why a result has no gradient: where it was cut off, or what its inputs' was."""
        timeline, kind = self._timeline, seen.kind
        if timeline.cuts.get(output) is not None:
            return
        cut: Cut | None
        if kind is _GRADIENT or kind is _ATTRIBUTE:
            call = timeline.call_after(seen.last_call)
            if call is None or not call.creates_graph:
                location = call.location if call is not None else user_location()
                of = frozenset(storage_of(tensor)[0] for tensor in seen.about or ())
                through = frozenset() if call is None else call.leaves
                cut = Cut("first_order", location, of=of, through=through)
            elif (
                function := next((reference() for reference in call.functions), None)
            ) is not None:
                name = place_of(function, "backward")
                cut = Cut("function", user_location(), function=name)
            else:
                return
        elif not any(tensor.requires_grad for tensor in _with_values(seen)):
            cut = self._inherited(kind, _with_values(seen), output)
            if cut is None:
                return
        elif kind is _CUT or kind is _EXPORT or kind is _COPY:
            kind_of_cut = (
                "copy" if kind is not _CUT else "data" if _reads_data(seen.func) else "detach"
            )
            of = frozenset(storage_of(tensor)[0] for tensor in seen.tensors)
            cut = Cut(kind_of_cut, user_location(), of=of)
        elif not torch.is_grad_enabled():
            off = next((region for region in reversed(self._regions) if not region.enabled), None)
            location = None if off is None else off.location
            kind_of_cut = _library_how() or ("region" if off is None else off.how)
            if kind_of_cut == "region" and self._updates(seen.tensors):
                kind_of_cut, location = "update", user_location()
            cut = Cut(kind_of_cut, location or user_location())
            if off is None and output.is_floating_point() and not _is_flat(seen.func):
                cut.intermediate = _caller_of_apply(seen.frame, _FAR) is not None
        else:
            cut = Cut("operation", user_location())
        timeline.cuts.set(output, cut)
        if timeline.suspects:
            explicit = cut.how in ("detach", "operation") and not _in_forward(seen.frame)
            meant = explicit or cut.how == "region"
            timeline.cut_off(seen.tensors, cut, meant)

    def _updates(self, tensors: list[torch.Tensor]) -> bool:
        """Whether these are a leaf and what was made of its own gradient."""
        leaves = {
            storage_of(tensor)[0] for tensor in tensors if tensor.requires_grad and tensor.is_leaf
        }
        cuts = map(self._timeline.cuts.get, tensors)
        return any(cut and cut.how == "first_order" and cut.of & leaves for cut in cuts)

    def _inherited(
        self, kind: str, tensors: list[torch.Tensor], output: torch.Tensor
    ) -> Cut | None:
        if not len(self._timeline.cuts) and self._timeline.left is None:
            return None
        cuts = [cut for tensor in tensors if (cut := self._timeline.cuts.get(tensor))]
        if not cuts:
            return self._came_back(tensors, output)
        # What a program says outright is the reason where nothing else is; a tensor's own gradient
        # is not, in a step along it.
        storages = {storage_of(tensor)[0] for tensor in tensors}
        cut = min(cuts, key=lambda one: _MEANT.get(one.how, 2 if one.of & storages else 0))
        if cut.how != "first_order":
            return cut
        if kind is _CUT:
            return Cut("detach", user_location())
        of = cut.of.union(*(inherited.of for inherited in cuts))
        through = cut.through.union(*(inherited.through for inherited in cuts))
        return Cut(cut.how, cut.location, of=of, through=through)

    def _came_back(self, tensors: list[torch.Tensor], output: torch.Tensor) -> Cut | None:
        """Why a tensor made of a Python number, or in numpy's memory, has no gradient."""
        exit_cut = self._timeline.left
        if exit_cut is None or not output.is_floating_point():
            return None
        if not tensors:
            back = tuple(output.shape) in ((), exit_cut.shape)
        else:
            back = any(tuple(t.shape) == exit_cut.shape and self._is_exported(t) for t in tensors)
        if not back:
            return None
        self._timeline.came_back(exit_cut)
        return exit_cut

    def _note_sum(
        self, tensors: list[torch.Tensor], output: torch.Tensor, chain: Chain | None
    ) -> None:
        """Follow what one line adds up, and gradients that are used without a graph."""
        node = _torch.grad_fn_of(output)
        if node is None:
            return
        timeline = self._timeline
        for tensor in tensors if len(timeline.cuts) else ():
            cut = timeline.cuts.get(tensor)
            # A step against a tensor's own gradient (first-order methods) is meant.
            if cut is None or cut.how != "first_order" or tensor.requires_grad:
                continue  # (what requires grad now is a leaf of its own)
            if not any(storage_of(operand)[0] in cut.of for operand in tensors):
                timeline.first_order[_torch.sequence_nr(node)] = cut
        if output.numel() != 1:
            return
        location = _location(chain)
        total, used_up, newest = Sum(location), False, -1
        for successor, _ in _torch.edges_of(node):
            successor = _unscaled(successor)
            if successor is None or isinstance(successor, _torch.LEAF):
                continue
            earlier = successor.metadata.get(SUM_TAG)
            if earlier is not None and earlier.location == location:
                total = earlier
            newest = max(newest, _torch.sequence_nr(successor))
            used_up = used_up or freed_by(successor) is not None
        # What was there before the last addition is another term of one iteration.
        total.count += newest > total.sequence_nr
        total.sequence_nr = _torch.sequence_nr(node)
        node.metadata[SUM_TAG] = total
        if used_up and total.count >= _LEAKING:
            self._tell("graph_grows", location, None)
        elif total.count == LONG and _adds_the_same(node, total):
            timeline.sums.add(total)


def _as_if_in(frame: FrameType) -> Callable[..., Any]:
    """A stand-in with the frame's variables: torch.jit.trace names values after them."""

    def call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        variables = {**frame.f_locals, "_call": (func, args, kwargs)}
        place = _CALL_IN_VARIABLES.replace(
            co_filename=frame.f_code.co_filename, co_name=STAND_IN, co_firstlineno=frame.f_lineno
        )
        return eval(place, frame.f_globals, variables)

    return call


def _remove_our_frames(error: BaseException) -> None:
    """Let an error's traceback begin at the first frame that is not this observer's.

    In a function of its own: the frames of a traceback refer to the observer's frame, so a local
    variable there for the traceback would make a cycle, which keeps the tensors of all these frames
    until the garbage collector runs.
    """
    traceback = error.__traceback__
    while traceback is not None and _is_ours(traceback.tb_frame.f_code):
        traceback = traceback.tb_next
    error.__traceback__ = traceback


def _is_ours(code: CodeType) -> bool:
    return code.co_filename == __file__ or code.co_name == STAND_IN


def _forget_our_frames(results: list[Any], started: int) -> None:
    """Anomaly mode keeps on each node the stack that made it."""
    pending: list[_torch.LiveNode] = [_torch.grad_fn_of(tensor) for tensor in _tensors(results)]
    for node in pending:
        if node is None or type(node) is _torch.LEAF or _torch.sequence_nr(node) < started:
            continue
        stack = node.metadata.get("traceback_")
        if isinstance(stack, list):
            our_lines = (f'File "{__file__}"', f"in {STAND_IN}\n")
            stack[:] = [line for line in stack if not any(marker in line for marker in our_lines)]
        pending.extend(successor for successor, _ in _torch.edges_of(node))


_CALL_IN_VARIABLES = compile("_call[0](*_call[1], **_call[2])", __file__, "eval")
_CALL = (lambda func, args, kwargs: func(*args, **kwargs)).__code__
_NO_NAMES: Mapping[str, Any] = {}
_NEAR, _FAR = 4, 200  # frames from an operation to the custom function that it may be in
_SCALES = ("MulBackward0", "DivBackward0", "NegBackward0")
_MEANT = {"detach": 1, "data": 1, "region": 1, "frozen": 3}  # ways to cut, the likeliest first
_LEAKING = 3  # additions of a loss that has been through backward to one sum

# Properties and methods that ask for facts and change nothing: most of what a program calls.
_FACTS = frozenset(
    [
        getattr(torch.Tensor, name).__get__
        for name in (
            "_backward_hooks", "_base", "_version", "device", "dtype", "grad_fn", "is_cpu",
            "is_cuda", "is_leaf", "is_meta", "is_mps", "is_nested", "is_quantized", "is_sparse",
            "is_sparse_csr", "is_xla", "is_xpu", "itemsize", "layout", "ndim", "nbytes",
            "requires_grad", "shape",
        )
        if hasattr(torch.Tensor, name)
    ]
    + [
        torch.Tensor.data_ptr, torch.Tensor.dim, torch.Tensor.element_size,
        torch.Tensor.is_contiguous, torch.Tensor.is_floating_point, torch.Tensor.is_inference,
        torch.Tensor.numel, torch.Tensor.size, torch.Tensor.stride, torch.Tensor.untyped_storage,
        torch.is_complex, torch.is_floating_point, torch.Tensor.is_complex, torch.Tensor.__len__,
    ]
)  # fmt: skip

# What an operation means for what is noted.
_OTHER, _ADD, _CUT, _EXPORT, _LEAVE = "other", "add", "cut", "export", "leave"
_GRADIENT, _ATTRIBUTE, _REGION, _SET_ITEM = "gradient", "attribute grad", "region", "set item"
_COPY, _SWITCH = "copy", "switch"
_NOTHING, _SAYS_NOTHING = "changes nothing", "a fact"
_KIND_OF_NAME = {
    **dict.fromkeys(
        ("add", "add_", "__add__", "__iadd__", "__radd__", "sub", "sub_", "__sub__", "__isub__",
         "__rsub__", "rsub", "lerp", "lerp_"), _ADD,
    ),
    **dict.fromkeys(("data", "detach", "detach_"), _CUT),
    **dict.fromkeys(("tensor", "as_tensor", "asarray", "new_tensor"), _COPY),
    "requires_grad_": _SWITCH,
    **dict.fromkeys(("numpy", "__array__", "__dlpack__"), _EXPORT),
    **dict.fromkeys(("item", "tolist", "__float__"), _LEAVE),
    "grad": _GRADIENT,
    "_set_grad_enabled": _REGION,
    "__setitem__": _SET_ITEM,
    **dict.fromkeys(("__set__", "_record_function_enter_new", "_record_function_exit"), _NOTHING),
}  # fmt: skip
# Of PyTorch's own functions, which stay.
_KINDS: dict[Callable[..., Any], str] = dict.fromkeys(_FACTS, _SAYS_NOTHING)


def _kind_of(func: Callable[..., Any]) -> str:
    name = getattr(func, "__name__", "")
    owner = getattr(func, "__self__", None)
    if name == "__get__" and owner is not None:
        name = owner.__name__
        kind = _ATTRIBUTE if name == "grad" else _KIND_OF_NAME.get(name, _OTHER)
    elif name == "__set__" and getattr(owner, "__name__", "") == "requires_grad":
        kind = _SWITCH
    else:
        kind = _KIND_OF_NAME.get(name.partition(".")[2] or name, _OTHER)
    if not isinstance(func, FunctionType) or func.__module__.startswith("torch"):
        _KINDS[func] = kind
    return kind


def _tensors(args: Iterable[Any], kwargs: Mapping[str, Any] = _NO_NAMES) -> list[torch.Tensor]:
    """Those among the arguments, and in lists and tuples among them."""
    tensors = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, (tuple, list)):
            tensors += [item for item in value if isinstance(item, torch.Tensor)]
    return tensors


def _caller_of_apply(frame: FrameType | None, frames: int) -> FrameType | None:
    """Whoever called the custom function whose forward, near this frame, runs; None if none."""
    for _ in range(frames):
        if frame is None:
            return None
        if (caller := _torch.caller_of_forward(frame)) is not None:
            return caller
        frame = frame.f_back
    return None


def _with_values(seen: _Operation) -> list[torch.Tensor]:
    """Its tensors; of ``x.view_as(y)`` and its like the first: of the other the shape is taken."""
    takes_shape = getattr(seen.func, "__name__", "").endswith("_as")
    return seen.tensors[:1] if takes_shape else seen.tensors


def _tag(output: torch.Tensor, tag: str, value: object) -> None:
    """Note something on the node that made a tensor, if it is not a leaf."""
    node = _torch.grad_fn_of(output)
    if node is not None:
        node.metadata[tag] = value


def _is_scaled(tensor: torch.Tensor) -> bool:
    """Whether a GradScaler made it."""
    node = _torch.grad_fn_of(tensor)
    return SCALED_TAG in getattr(node, "metadata", ())


def _is_flat(func: Callable[..., Any]) -> bool:
    """Whether its derivative is zero wherever it has one, or it takes no values, only a shape."""
    name = getattr(func, "__name__", "")
    return name.endswith("_like") or name.strip("_") in _FLAT


_FLAT = frozenset(
    ("bernoulli", "ceil", "fix", "floor", "floordiv", "floor_divide", "heaviside", "round",
     "sgn", "sign", "signbit", "trunc")
)  # fmt: skip


def _reads_data(func: Callable[..., Any]) -> bool:
    return getattr(getattr(func, "__self__", None), "__name__", "") == "data"


def _in_forward(frame: FrameType | None) -> bool:
    """Whether this runs in the forward pass of a module of the user's."""
    for _ in range(_NEAR):
        if frame is None:
            return False
        if frame.f_code.co_name == "forward" and is_users(frame.f_code):
            return True
        frame = frame.f_back
    return False


def _caller(frame: FrameType) -> FrameType:
    return frame.f_back or frame


def _of_grad_mode(frame: FrameType) -> str | None:
    """Which method of PyTorch's context managers this is, but for their constructors."""
    name, file = frame.f_code.co_name, frame.f_code.co_filename
    return name if file == _torch.GRAD_MODE_FILE and name != "__init__" else None


def _location(chain: Chain | None) -> Location | None:
    return user_location() if chain is None else chain.location


def checksum(span: range) -> str:
    """A hash of the bytes at these addresses of this process."""
    return hashlib.sha1(ctypes.string_at(span.start, len(span))).hexdigest()


def _library_how() -> str | None:
    """How it was cut when it is not the program that has switched gradients off, but PyTorch."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code):
        for library, means in _LIBRARIES.items():
            if frame.f_code.co_filename.startswith(library):
                return means
        frame = frame.f_back
    return None


_TORCH = Path(torch.__file__).parent
_LIBRARIES = {
    str(Path(_TORCH, "utils", "checkpoint")): "checkpoint",
    str(Path(_TORCH, "distributions")): "operation",
    str(Path(_TORCH, "autograd", "gradcheck")): "numerical",
}


def _unscaled(node: _torch.LiveNode) -> _torch.LiveNode:
    """What a node was computed from by factors alone: of ``0.9 * total`` that of the total."""
    while type(node).__name__ in _SCALES:
        inner = [input_node for input_node, _ in _torch.edges_of(node) if input_node is not None]
        if len(inner) != 1:
            break
        node = inner[0]
    return node


def _adds_the_same(node: Any, total: Sum) -> bool:
    """Whether what was added comes from the same parameters each time: an iteration's loss does."""
    leaves, additions = set(), 0
    pending = [node]
    for adding in pending:
        for successor, _ in _torch.edges_of(adding):
            successor = _unscaled(successor)
            if successor is None:
                continue
            if not isinstance(successor, _torch.LEAF) and successor.metadata.get(SUM_TAG) is total:
                pending.append(successor)
                continue
            additions += 1
            while following := next((n for n, _ in _torch.edges_of(successor) if n), None):
                successor = following
            leaves.add(successor)
    return len(leaves) <= additions // 2
