"""The observer of a strict watch: it sees each operation of its thread, and writes to a timeline.

It is a ``TorchFunctionMode``. It reports some silent failures itself: a gradient that a custom
backward changes, a sum of used losses, and clipping.

The operation runs in a *stand-in*: a function with the file, line and globals of the line that
called it. So a warning that PyTorch raises names that line and is counted there, and an error has
the traceback that it would have without the observer.

The observer steps aside in code that ``torch.compile`` compiles, inside an optimizer's step (but
not in the closure that the step calls), and under ``torch.func``, ``torch.jit.trace``,
``torch.export`` and other dispatch modes. It does not see the operations there.
"""

import ctypes
import hashlib
import sys
import threading
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any

import torch

from gradtrace import _torch, _torch_hooks
from gradtrace.autograd import frames, source
from gradtrace.autograd.frames import Chain, Chains, Location
from gradtrace.autograd.tensors import storage_of, storages_in, tensors_in
from gradtrace.watching import call_sites, running_sums
from gradtrace.watching import operation_kinds as kinds
from gradtrace.watching.call_sites import FAR, NEAR, Site, caller_of, caller_of_apply, outward
from gradtrace.watching.cut_recorder import CutRecorder
from gradtrace.watching.cuts import bounded
from gradtrace.watching.operation_kinds import Operation
from gradtrace.watching.record import (
    CREATED_TAG,
    OF_SCALED_TAG,
    SCALED_TAG,
    BackwardCall,
    Export,
    Memory,
    Modification,
    Record,
    Timeline,
    freed_by,
)
from gradtrace.watching.running_sums import LONG, SUM_TAG, Sum, with_scaled
from gradtrace.watching.stand_ins import forget_our_frames, remove_our_frames

_MAX_EXPORT = 1_000_000  # bytes of an export that are checked for changes


class Observer(_torch_hooks.Mode):
    """The mode that records the operations of its thread, from :meth:`observe` to :meth:`end`."""

    def __init__(self, record: Record, tell: Callable[[str, Location | None, str | None], None]):
        """Record into ``record``; report silent failures by ``tell(cause, line, name)``."""
        super().__init__()
        self._record: Record | None = record
        self._begin(record.timeline)
        self._timeline.observed = True
        self._tell = tell
        self._thread = threading.get_ident()
        self._outside = _torch.next_sequence_nr()  # when last an operation was recorded

    def observe(self, on: bool) -> None:
        """Record this thread's operations or step aside, if this is the observer's thread."""
        if self.of_this_thread:
            (self.insert if on else self.take_out)()

    def end(self) -> None:
        """Stop recording for good; in another thread, the mode stays installed, but idle."""
        self.observe(False)
        self._record = None
        self._begin(Timeline())

    def _begin(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._chains = Chains()
        self._sites = call_sites.Sites()
        self._cut_recorder = CutRecorder(self._timeline, self._sites)

    @property
    def of_this_thread(self) -> bool:
        """Whether the observer is active and belongs to the running thread."""
        return self._thread == threading.get_ident() and self._record is not None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_dynamo_compiling():  # an export traces with active modes
            return func(*args, **kwargs)
        try:
            kind = kinds.KINDS.get(func) or kinds.kind_of(func)
        except TypeError:  # a callable that cannot be hashed
            kind = kinds.OTHER
        if self._record is None or kind is kinds.FACT:
            return func(*args, **kwargs)
        frame = sys._getframe(1)
        if frame.f_code is _torch_hooks.HANDLE:  # a function written in Python: look at its caller
            frame = caller_of(caller_of(frame))
        operation = None
        try:
            if kind is kinds.NO_EFFECT or kind is kinds.SET_DATA:
                result = func(*args, **kwargs)
                if kind is kinds.SET_DATA:
                    self.note_same_memory(args[0], args[1])
                return result
            site = self._sites.at(frame)
            if kind is kinds.HOOK and not args[0].is_leaf:
                self._timeline.hooks_are_set = True
            is_read = kind is kinds.GRAD_ATTRIBUTE and frame.f_code.co_name != "zero_grad"
            if is_read and self._timeline.calls:
                self._timeline.calls[-1].is_used = True
            if not _torch.is_intercepted() and not _is_librarys_own(kind, func, site):
                operation = self._guarded(self._before, kind, func, args, kwargs, frame, site)
            # Not stored: the globals may be large.
            stand_in = FunctionType(site.stand_in, frame.f_globals)
            result = stand_in(func, args, kwargs)
        except BaseException as error:
            # Raised again by this bare ``raise``, it leaves without these frames.
            remove_our_frames(error)
            raise
        if operation is not None:
            self._guarded(self._note, operation, result)
        return result

    def _guarded(self, note: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``note``; an error in it is stored and never raised: the program has priority."""
        with _torch.no_torch_function():
            try:
                return note(*arguments)
            except Exception as error:
                if self._record is not None:
                    self._record.note_failure(error)
                return None

    def _before(
        self,
        kind: str,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        frame: FrameType,
        site: Site,
    ) -> Operation | None:
        if kind is kinds.SET_GRAD_MODE:
            self._cut_recorder.note_grad_mode(args[0])
            return None
        tensors = tensors_in(args, kwargs)
        prior_state: Any = None
        if kind is kinds.GRADIENT:
            prior_state = self._timeline.last_call
        elif kind is kinds.SET_REQUIRES_GRAD:
            prior_state = tensors[0].requires_grad
        elif kinds.is_in_place(func) and any(map(self._is_untracked, args[:1])):
            prior_state = checksum(args[0])
        versions, now = _torch.versions_of(tensors), _torch.next_sequence_nr()
        return Operation(kind, func, args, kwargs, frame, site, tensors, versions, now, prior_state)

    def _is_untracked(self, value: object) -> bool:
        """Whether a value is ``.data`` of a tensor, whose version counter it does not share."""
        cut = self._timeline.cuts.get(value) if isinstance(value, torch.Tensor) else None
        return cut is not None and cut.how == "data"

    def note_same_memory(self, tensor: torch.Tensor, data: torch.Tensor) -> None:
        """Record that a parameter, or an attribute ``.data``, now has the memory of ``data``."""
        self._guarded(self._cut_recorder.note_replacement, tensor, [data])

    def _note(self, operation: Operation, result: Any) -> None:
        kind, frame, tensors = operation.kind, operation.frame, operation.tensors
        started = operation.sequence_nr
        if kind is kinds.SET_REQUIRES_GRAD:
            self._cut_recorder.note_switch(tensors[0], was_on=operation.prior_state)
            return
        chain = None
        recording = torch.is_grad_enabled()
        now = _torch.next_sequence_nr()
        if now != started:
            chain = self._note_nodes(operation, result, now)
        elif not recording:
            self._note_custom_function(frame, started)
        if recording:
            self._outside = now
        versions = _torch.versions_of(tensors)
        if versions != operation.versions:
            for tensor, old, new in zip(tensors, operation.versions, versions, strict=True):
                if old != new:
                    self._note_edit(operation, tensor, chain, recording)
                    self._note_changed_gradient(frame, tensor)
        if operation.func is torch.batch_norm and any(operation.args[5:6]):  # which trains
            for statistic in tensors_in(operation.args[3:5]):
                self._note_edit(operation, statistic, chain, recording)
        if kind is kinds.EXPORT:
            self._note_export(tensors[0], chain, started)
        if kind is kinds.EXPORT or kind is kinds.READ:
            self._cut_recorder.note_leaving(frame, tensors[0], result)
        if self._timeline.calls and self._timeline.calls[-1].is_scaled:
            self._note_scaled(operation, self._timeline.calls[-1])
        for output in (result,) if isinstance(result, torch.Tensor) else tensors_in((result,)):
            self._note_output(operation, output, chain)

    def _note_nodes(self, operation: Operation, result: Any, now: int) -> Chain | None:
        """Record the line that created an operation's nodes; return that line with its callers."""
        started, tensors = operation.sequence_nr, operation.tensors
        chain = self._chains.here(operation.frame)
        if chain is not None:
            self._timeline.lines.add(started, now, chain)
        if torch.is_anomaly_enabled():
            forget_our_frames([result, *tensors], started)
        for tensor in tensors:
            if self._timeline.is_exported(tensor):
                self._note_export(tensor, chain, started)
        return chain

    def _note_output(self, operation: Operation, output: torch.Tensor, chain: Chain | None) -> None:
        timeline, kind, tensors = self._timeline, operation.kind, operation.tensors
        if kind is kinds.GRAD_ATTRIBUTE:
            timeline.note_gradient_read(tensors[0])
        else:
            timeline.cuts.forget(output, tensors)
        if not output.requires_grad:
            self._cut_recorder.note_cut(operation, output)
            return
        self._cut_recorder.note_use(operation, output)
        if kind is kinds.GRADIENT or kind is kinds.GRAD_ATTRIBUTE:
            _tag(output, CREATED_TAG, True)
        if operation.site.in_grad_scaler:
            _tag(output, SCALED_TAG, True)
        elif kind is kinds.GRADIENT and any(map(_is_scaled, tensors)):
            _tag(output, OF_SCALED_TAG, frames.user_location())
        if kind is kinds.ADD:
            self._cut_recorder.note_addition(operation, output)
            self._note_sum(output, chain)

    def _note_custom_function(self, frame: FrameType | None, sequence_nr: int) -> None:
        """Record the line of a custom function's node, numbered before its forward runs."""
        caller = caller_of_apply(frame, NEAR)
        chain = None if caller is None else self._chains.here(caller)
        if chain is not None and self._timeline.lines.find(sequence_nr - 1) is None:
            self._timeline.lines.add(sequence_nr - 1, sequence_nr, chain)

    def _note_edit(
        self, operation: Operation, tensor: torch.Tensor, chain: Chain | None, recording: bool
    ) -> None:
        if operation.site.cut_by_region == "numerical":
            return  # gradcheck moves each element there and back
        sets_item = operation.kind is kinds.SET_ITEM
        # A custom function saves when its forward ends, but has its number before.
        in_custom_forward = not recording and caller_of_apply(operation.frame, FAR) is not None
        # Of x[0] += 1, the written value is a view of x, so that it has changed, too.
        is_target = sets_item and tensor is operation.args[0]
        written = Memory.of_item(tensor, operation.args[1]) if is_target else Memory.of(tensor)
        edit = Modification(
            _location(chain),
            self._outside if in_custom_forward else operation.sequence_nr,
            written,
            self._timeline.last_call,
            by_library=operation.site.location is None
            and (recording or operation.func is torch.embedding_renorm_),
            of_a_view=not sets_item and _torch.base_of(tensor) is not None,
            old_checksum=None if is_target else operation.prior_state,
        )
        self._timeline.edited(storage_of(tensor)[0], edit)
        operands = [operand for operand in operation.tensors if operand is not tensor]
        self._cut_recorder.note_replacement(tensor, operands)

    def _note_scaled(self, operation: Operation, call: BackwardCall) -> None:
        """Record that gradients of this scaled call are clipped or unscaled, or the scale is read.

        Report gradients that are unscaled, and clipped to limits of an earlier step, too. A limit
        cannot contain the scale if the program has not read it.
        """
        name = operation.name
        if operation.kind is kinds.READ:
            call.scale_is_read |= operation.site.in_grad_scaler
        elif operation.func is _torch.UNSCALE and operation.site.in_grad_scaler:
            gradients = storages_in(operation.args[0])
            call.unscaled |= gradients
            for key in {call.clipped[g] for g in gradients & call.clipped.keys()}:
                first_call = bounded(self._timeline.limits).setdefault(key, call)
                if first_call is not call and operation.frame.f_locals["self"].get_scale() != 1:
                    self._tell("clipped_while_scaled", key[0], None)
        elif name.endswith("_") and ("clamp" in name or operation.site.in_clip_grad):
            scaled = storages_in(tensors_in(operation.args[:1])) - call.unscaled
            if scaled and not call.scale_is_read and (limits := _limits(operation)):
                call.clipped |= dict.fromkeys(scaled, (frames.user_location(), limits))

    def _note_changed_gradient(self, frame: FrameType | None, tensor: torch.Tensor) -> None:
        """Report a custom function's backward that modifies the gradient that it was given."""
        if _torch.current_node() is None:
            return
        applying = (f for f in outward(frame) if f.f_code is _torch.APPLY_BACKWARD)
        variables = next((f.f_locals for f in applying), None)
        if variables is None:
            return
        function, gradients = _torch.function_of(variables["self"]), tensors_in(variables["args"])
        if function is not None and storage_of(tensor)[0] in storages_in(gradients):
            name = frames.place_of(function, "backward")
            self._tell("gradient_changed_in_backward", frames.user_location(), name)

    def _note_export(self, tensor: torch.Tensor, chain: Chain | None, now: int) -> None:
        """Record a checksum of CPU memory that NumPy shares, if the tensor has at most 1 MB."""
        memory = Memory.of(tensor) if tensor.device.type == "cpu" else None
        if memory is None or len(memory.span) > _MAX_EXPORT:
            return
        alive = _torch.StorageReference(tensor.untyped_storage())
        export = Export(_location(chain), now, checksum(tensor), memory, alive)
        self._timeline.exported(storage_of(tensor)[0], export)

    def _note_sum(self, output: torch.Tensor, chain: Chain | None) -> None:
        """Record the sum that a line adds to."""
        node = _torch.grad_fn_of(output)
        if node is None:
            return
        location, is_scalar = _location(chain), output.numel() == 1
        last_call = self._timeline.last_call
        total, used_up, newest = Sum(location, last_call), False, -1
        for successor, _ in _torch.edges_of(node):
            successor = with_scaled(successor)[-1]
            if successor is None or isinstance(successor, _torch.LEAF):
                continue
            earlier = successor.metadata.get(SUM_TAG)
            if earlier is not None and earlier.location == location:
                total = earlier
            newest = max(newest, _torch.sequence_nr(successor))
            used_up = used_up or freed_by(successor) is not None
        # What was there before the last addition is another term of one iteration.  A sum of larger
        # tensors may be a network's: the backward calls distinguish its iterations.
        total.count += newest > total.sequence_nr if is_scalar else last_call > total.last_call
        total.sequence_nr, total.last_call = _torch.sequence_nr(node), last_call
        node.metadata[SUM_TAG] = total
        if used_up and is_scalar and total.count >= _LEAKING:
            self._tell("graph_grows", location, None)
            total.is_reported = True
        elif total.count == LONG and running_sums.adds_the_same_parameters(node, total):
            # Nothing reads it, and it is released before it can grow over iterations.
            if last_call == total.first_call and location and source.is_unread_and_reset(location):
                return
            self._timeline.sums.add(total, reports_death=is_scalar)
            total.is_reported = is_scalar


def _is_librarys_own(kind: str, func: Callable[..., Any], site: Site) -> bool:
    """Whether a library reads a gradient, or an optimizer computes without changing a tensor."""
    if kind is kinds.GRAD_ATTRIBUTE:
        return site.location is None
    return (
        site.in_optimizer
        and (kind is kinds.OTHER or kind is kinds.ADD)
        and not func.__name__.endswith("_")
        and not torch.is_grad_enabled()
    )


def _limits(operation: Operation) -> frozenset[float]:
    """Return the constants that an operation has limited values, or PyTorch their norm, to."""
    if operation.site.in_clip_grad and "mul" in operation.name:
        return frozenset([operation.frame.f_locals["max_norm"]] if operation.args[1] < 1 else ())
    values = (*operation.args[1:], *operation.kwargs.values())
    numbers = [value for value in values if isinstance(value, int | float)]
    tensors = tensors_in(operation.args[:1])
    return frozenset(abs(n) for n in numbers if any(bool((t == n).any()) for t in tensors))


_LEAKING = 3  # additions of a loss that has been through backward to one sum


def _tag(output: torch.Tensor, tag: str, value: object) -> None:
    """Store a value in the metadata of the node that created a tensor, if it has one."""
    node = _torch.grad_fn_of(output)
    if node is not None:
        node.metadata[tag] = value


def _is_scaled(tensor: torch.Tensor) -> bool:
    """Whether a GradScaler computed the tensor."""
    node = _torch.grad_fn_of(tensor)
    return SCALED_TAG in getattr(node, "metadata", ())


def _location(chain: Chain | None) -> Location | None:
    return frames.user_location() if chain is None else chain.location


def checksum(tensor: torch.Tensor) -> str:
    """Return a hash of the bytes of a tensor's elements."""
    elements = tensor.detach().contiguous().cpu()
    return hashlib.sha1(ctypes.string_at(elements.data_ptr(), elements.nbytes)).hexdigest()
