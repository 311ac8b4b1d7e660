"""Recorder of cuts: which values of a thread lost their graph, and which operations use them."""

from dataclasses import replace
from types import FrameType

import torch

from gradtrace import _torch
from gradtrace.autograd.frames import Location, place_of, user_location
from gradtrace.autograd.tensors import storage_of, storages_in
from gradtrace.watching import operation_kinds as kinds
from gradtrace.watching.call_sites import FAR, Sites, caller_of_apply, in_forward
from gradtrace.watching.cuts import Cut, elements_of, with_origins
from gradtrace.watching.operation_kinds import Operation, requires_grad
from gradtrace.watching.record import Stray, Timeline, freed_by

_RANKS = {"detach": 1, "data": 1, "region": 1, "frozen": 3}  # of kinds of cuts: likely causes first
_EXPLICIT = ("detach", "data", "copy")  # cuts of one tensor
_SELECTING = ("Embedding", "Gather", "Index", "IndexSelect")  # operations that take indices


class CutRecorder:
    """Writes to a timeline where values lose their graph, and which operations use them then."""

    def __init__(self, timeline: Timeline, sites: Sites):
        self._timeline = timeline
        self._sites = sites
        self._cuts = timeline.cuts
        self._off_at: Location | None = None  # the last line that switched gradients off

    def note_grad_mode(self, enabled: bool) -> None:
        """Record the line that switches gradients off, for a region that the source hides."""
        self._off_at = None if enabled else user_location()

    def note_switch(self, tensor: torch.Tensor, was_on: bool) -> None:
        """Record that a leaf was frozen, or unfrozen, which also forgets its cut."""
        if tensor.requires_grad:
            if not was_on and isinstance(tensor, torch.nn.Parameter):
                self._note_unfrozen(tensor)
            cut = self._cuts.get(tensor)
            self._timeline.terms.note_leaf(tensor, cut)
            if cut is not None and self._timeline.suspects:
                self._cuts.set_memory(tensor, cut)
            self._cuts.forget(tensor)
        elif was_on and tensor.is_leaf:
            self._cuts.set(tensor, Cut("frozen", user_location()))
            self._timeline.strays[id(tensor)] = Stray(self._timeline.last_call + 1)

    def _note_unfrozen(self, parameter: torch.Tensor) -> None:
        """Record the line, but only if steps were made meanwhile, not just evaluations."""
        timeline, now = self._timeline, self._timeline.last_call + 1
        frozen = timeline.strays.get(id(parameter), Stray(1))
        has_stepped = bool(timeline.steps) and timeline.steps[-1].last_call >= frozen.first_call
        unfrozen_at = user_location() if has_stepped else None
        timeline.strays[id(parameter)] = Stray(now, unfrozen_at=unfrozen_at)

    def note_replacement(self, tensor: torch.Tensor, values: list[torch.Tensor]) -> None:
        """Record that a tensor's memory was set to computed values, whose graph it lacks."""
        if not self._timeline.suspects and not self._timeline.creates_graph:
            return
        node = _torch.grad_fn_of(tensor)
        if node is not None and _torch.edges_of(node)[0][0] is not None:
            return  # the tensor had a graph before, and has another now
        computed = [value for value in values if value.requires_grad]
        if self._timeline.creates_graph:
            self._timeline.note_written(storage_of(tensor)[0], computed)
        earlier = next(filter(None, map(self._known, values)), None)
        cut = Cut("set_data", user_location()) if computed else earlier
        if cut is not None and self._timeline.suspects:
            self._timeline.cut_off(computed, cut, meant=False)
            self._cuts.forget(tensor)
            self._cuts.set_memory(tensor, cut)

    def note_leaving(self, frame: FrameType, tensor: torch.Tensor, values: object) -> None:
        """Record that Python or NumPy read values, which may become a tensor again."""
        cut = self._known(tensor)
        if cut is None and not tensor.requires_grad:
            return
        timeline = self._timeline
        location = user_location() if cut is None else cut.location
        exit_cut = timeline.left = Cut("copy", location, tuple(tensor.shape))
        exit_cut.origins = () if cut is None else (cut,)
        unused = _unused([tensor])
        exit_cut.unused = bool(unused)
        timeline.left_after = timeline.last_call
        timeline.terms.note_read(values, cut or exit_cut)
        timeline.terms.note_cut(unused, exit_cut, timeline.last_call)
        if timeline.suspects:
            is_shared = tensor.numel() > 0 and not isinstance(values, (float, list))
            self._cuts.set_read(elements_of(tensor) if is_shared else values, exit_cut)
            exit_cut.feeds = in_forward(frame)
            if tensor.requires_grad:
                timeline.cut_off([tensor], exit_cut, meant=False)

    def note_addition(self, operation: Operation, output: torch.Tensor) -> None:
        """Record values whose graph was cut off, and which are added to a value with a graph."""
        # A tensor with a cut that requires grad again is a new leaf.
        constants = [tensor for tensor in operation.tensors if not tensor.requires_grad]
        cuts = {id(t): cut for t in constants if (cut := self._cuts.get(t)) is not None}
        node = _torch.grad_fn_of(output)
        for cut in cuts.values() if node is not None else ():
            # A step against a tensor's own gradient (first-order methods) is meant.
            if cut.how == "first_order" and not cut.of & storages_in(operation.tensors):
                self._timeline.first_order[_torch.sequence_nr(node)] = cut
        removed = (cut for cut in cuts.values() if cut.how in _EXPLICIT or cut.to_integers)
        explicit = next(removed, None)
        if explicit is not None and cuts.get(id(operation.subtrahend)) is explicit:
            self._timeline.terms.note_subtraction(operation, explicit)
        elif output.numel() == 1:
            self._timeline.terms.note_addition(operation, explicit)

    def note_use(self, operation: Operation, output: torch.Tensor) -> None:
        """Record the values without a graph from which a result with a graph was computed."""
        timeline = self._timeline
        if operation.kind is kinds.COPY:  # the result is a leaf
            self._note_copy(operation, output)
        if not timeline.suspects:
            return
        node = _torch.grad_fn_of(output)
        # Not masks and labels: a program may choose with any network.
        values = [t for t in operation.tensors if t.is_floating_point() and not t.requires_grad]
        numbers = [*operation.args, *operation.kwargs.values()]
        cuts = [*filter(None, (*map(self._cut_of, values), self._of_numbers(numbers)))]
        if type(node).__name__.partition("Backward")[0] in _SELECTING:
            indices = [tensor for tensor in operation.tensors if tensor.dtype == torch.long]
            for cut in filter(None, map(self._known, indices)):
                cut.to_integers |= cut.how == "operation"
                cuts.append(cut)
        if node is not None and cuts:
            # A function may return one of its arguments, which another operation computed.
            if _torch.sequence_nr(node) >= operation.sequence_nr:
                self._cuts.use(node, cuts)
            if any(tensor.is_leaf and tensor.requires_grad for tensor in operation.tensors):
                for earlier in with_origins(cut for cut in cuts if not cut.feeds):
                    earlier.feeds = True
        elif operation.kind is kinds.COPY:
            copy = Cut("copy", user_location())
            timeline.cut_off(operation.tensors, copy, meant=False)
            self._cuts.set_memory(output, cuts[0] if cuts else copy)

    def _note_copy(self, operation: Operation, output: torch.Tensor) -> None:
        """Record the cut of the values that a new leaf copies."""
        terms, timeline = self._timeline.terms, self._timeline
        cut = next(filter(None, map(self._cuts.get, operation.tensors)), None)
        if any(map(requires_grad, operation.tensors)):
            cut = Cut("copy", user_location())
            terms.note_cut(_unused(operation.tensors), cut, timeline.last_call)
        terms.note_leaf(output, cut or timeline.left)

    def _cut_of(self, tensor: torch.Tensor) -> Cut | None:
        """Return the cut of a value, also one that returned from Python or NumPy, or None."""
        cut = self._known(tensor) or self._came_back([tensor], tensor)
        if cut is None and tensor.is_leaf and tensor.device.type == "cpu":
            cut = self._of_numbers(elements_of(tensor))
        return cut

    def _of_numbers(self, values: object) -> Cut | None:
        """Return the cut of numbers that Python had read, and record that they returned."""
        cut = self._cuts.of_read(values)
        if cut is not None:
            self._timeline.came_back(cut)
        return cut

    def _known(self, tensor: torch.Tensor) -> Cut | None:
        """Return the cut that is stored for a tensor or its memory, or None."""
        return self._cuts.get(tensor) or self._cuts.of_memory(tensor)

    def note_cut(self, operation: Operation, output: torch.Tensor) -> None:
        """Record why a result has no graph: where it was cut off, or the cut of its inputs."""
        if self._cuts.get(output) is not None:
            return
        cut = self._cut_at(operation, output)
        if cut is None:
            return
        timeline = self._timeline
        origins = {*filter(None, map(self._known, operation.tensors))}
        if origins - {cut} and timeline.suspects:  # the replaced cut is an origin, too
            cut = replace(cut, origins=(*origins, *cut.origins))
        self._cuts.set(output, cut)
        if operation.kind is kinds.DETACH or operation.kind is kinds.COPY or cut.to_integers:
            timeline.terms.note_cut(_unused(operation.tensors), cut, timeline.last_call)
        if not timeline.suspects:
            return
        if operation.kind is kinds.DETACH and not any(t.is_leaf for t in operation.tensors):
            self._cuts.set_memory(output, cut)
        if not operation.takes_shape:
            explicit = cut.how in ("detach", "operation")
            meant = cut.how == "region" or (explicit and not in_forward(operation.frame, True))
            timeline.cut_off(operation.tensors, cut, meant)

    def _cut_at(self, operation: Operation, output: torch.Tensor) -> Cut | None:
        """Return the cut that an operation makes, or that its result inherits, or None."""
        kind = operation.kind
        if kind is kinds.GRADIENT or kind is kinds.GRAD_ATTRIBUTE:
            return self._cut_of_gradient(operation)
        if not any(map(requires_grad, operation.valued_tensors)):
            return self._inherited(operation, output)
        if kind is kinds.DETACH:
            how = "data" if operation.reads_data else "detach"
            return Cut(how, user_location(), of=storages_in(operation.tensors))
        if kind is kinds.EXPORT or kind is kinds.COPY:
            return Cut("copy", user_location())
        if not torch.is_grad_enabled():
            return self._cut_by_mode(operation, output)
        pairs = zip(operation.tensors, operation.versions, strict=True)
        if any(t is output and _torch.version_of(t) == version for t, version in pairs):
            return None  # passed on without a change, as by broadcast_tensors()
        cut = operation.site.cut
        if cut.location is None:  # the site is a library's, which the user's line called
            cut = Cut("operation", user_location())
        is_real = output.is_floating_point() or output.is_complex()
        if is_real or operation.converts_type:
            return cut
        return replace(cut, to_integers=True)

    def _cut_of_gradient(self, operation: Operation) -> Cut | None:
        """Return a gradient's cut: a call without ``create_graph``, a custom function, or None."""
        call = self._timeline.call_after(operation.prior_state)
        if call is None:
            return Cut("first_order", user_location(), of=storages_in(operation.about))
        if not call.creates_graph:
            of = storages_in(operation.about)
            return Cut("first_order", call.location, of=of, through=call.leaves)
        function = next((reference() for reference in call.functions), None)
        if function is None:
            return None
        return Cut("function", user_location(), function=place_of(function, "backward"))

    def _cut_by_mode(self, operation: Operation, output: torch.Tensor) -> Cut:
        """Return the cut of a result that was computed where gradients are off."""
        how, region = self._sites.gradients_off_at(operation.frame)
        region = region or self._off_at
        if how == "region" and self._updates(operation.tensors):
            return Cut("update", user_location())
        cut = Cut(how, region or user_location())
        if region is None and _has_derivative(operation, output):
            cut.intermediate = caller_of_apply(operation.frame, FAR) is not None
        return cut

    def _updates(self, tensors: list[torch.Tensor]) -> bool:
        """Whether the tensors include a leaf and a value computed from the leaf's own gradient."""
        leaves = storages_in(
            tensor for tensor in tensors if tensor.requires_grad and tensor.is_leaf
        )
        cuts = map(self._cuts.get, tensors)
        return any(cut and cut.how == "first_order" and cut.of & leaves for cut in cuts)

    def _inherited(self, operation: Operation, output: torch.Tensor) -> Cut | None:
        """Return the cut that a result inherits from its inputs, or None."""
        tensors = operation.valued_tensors
        if not len(self._cuts) and self._timeline.left is None:
            return None
        cuts = [*filter(None, map(self._known, tensors))]
        if not cuts:
            numbers = [*operation.args, *operation.kwargs.values()]
            return self._of_numbers(numbers) or self._came_back(tensors, output)
        # An explicit cut is the cause only if there is no other; after it comes the tensor's own
        # gradient, as in a step along it.
        storages = storages_in(tensors)
        cut = min(cuts, key=lambda c: (_RANKS.get(c.how, 2 if c.of & storages else 0), c.number))
        if cut.intermediate and not _has_derivative(operation, output):
            return replace(cut, intermediate=False)
        if cut.how != "first_order":
            return cut
        if operation.kind is kinds.DETACH:
            return Cut("detach", user_location())
        of = cut.of.union(*(inherited.of for inherited in cuts))
        through = cut.through.union(*(inherited.through for inherited in cuts))
        return Cut(cut.how, cut.location, of=of, through=through)

    def _came_back(self, tensors: list[torch.Tensor], output: torch.Tensor) -> Cut | None:
        """Return the cut at which Python or NumPy read the value of this new tensor, if any."""
        exit_cut = self._timeline.left
        if exit_cut is None or not output.is_floating_point():
            return None
        if tensors:
            is_exported = self._timeline.is_exported
            back = any(tuple(t.shape) == exit_cut.shape and is_exported(t) for t in tensors)
        else:
            back = tuple(output.shape) in ((), exit_cut.shape)
            if self._timeline.suspects:  # then single numbers themselves are compared
                back = output.shape == exit_cut.shape != ()
        if not back:
            return None
        self._timeline.came_back(exit_cut)
        return exit_cut


def _unused(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors whose graph no backward call has freed."""
    nodes = ((tensor, _torch.grad_fn_of(tensor)) for tensor in tensors)
    return [tensor for tensor, node in nodes if node is not None and freed_by(node) is None]


def _has_derivative(operation: Operation, output: torch.Tensor) -> bool:
    return output.is_floating_point() and not operation.has_zero_derivative
