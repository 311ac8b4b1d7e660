"""Evidence about a tensor without a graph, and about one that a gradient does not reach."""

import ast
import contextlib
import math
import re
from collections.abc import Mapping
from functools import cached_property
from itertools import takewhile
from traceback import walk_tb

import torch

from gradtrace import _torch
from gradtrace.autograd import lost_graph, source
from gradtrace.autograd.frames import Location, place_of
from gradtrace.autograd.syntax import reads
from gradtrace.autograd.tensors import storages_in, tensors_in
from gradtrace.autograd.traversal import leaves_of, reachable, roots_of, users_of, walk
from gradtrace.explaining.evidence import carriers
from gradtrace.explaining.evidence.base import Evidence, NoEvidence, TextEvidence, where_raised
from gradtrace.explaining.evidence.carriers import Holder, name_of, without_index
from gradtrace.explaining.evidence.modified import names_written
from gradtrace.explaining.evidence.optimizers import Training
from gradtrace.watching.call_sites import in_forward
from gradtrace.watching.cuts import Cut
from gradtrace.watching.record import BackwardCall, freed_by

_INFERENCE = r"(torch\.)?inference_mode(\((mode=)?(True)?\))?"
FREEZES = r".*\.requires_grad(_\(False\)| = False)"


class NoGraphEvidence(Evidence):
    """Evidence about the ``cut``, where the first output without ``requires_grad`` lost its graph.

    Only a strict watch records cuts. Without one, the source may show the cut; otherwise the facts
    at the failed call decide.
    """

    observed = False

    def __post_init__(self) -> None:
        outputs = (o for o in self.outputs if isinstance(o, torch.Tensor) and not o.requires_grad)
        output = next(outputs, None)
        self.cut = None if output is None else self._cut_of(output) or self._as_gradient(output)
        self.observed = self.cut is not None and self.cut.shape is None
        in_source = None if self.frame is None else lost_graph.find(self.frame)
        if self.cut is None and not self.timeline.observed and self.frame is not None:
            if in_source is None and not (self.gradients_are_off or self.frozen):
                in_source = lost_graph.find(self.frame, lenient=True)
            self.cut = None if in_source is None else Cut(*in_source)
        # If the source shows only this line, other facts decide first.
        line = in_source.location if in_source is not None and in_source.how == "line" else None
        if line is not None and self._is_cut("line"):
            self.cut = self._by_a_function(line)
        self.began_at = None if self.cut is None else self.cut.location
        self.made_at = line if self.cut is None or self.gradients_are_off else None
        if self.in_inference_mode or (self.began_at is None and self.gradients_are_off):
            self.began_at = source.region_around(self.frame, source.GRADIENTS_DISABLED)
        elif self.began_at is None and self.frozen:
            self.began_at = source.only_line(self.files, FREEZES)

    def _by_a_function(self, line: Location) -> Cut | None:
        """Return the cut in a custom function, if that line computed a gradient with a graph."""
        calls = (c for c in self.timeline.calls if c.creates_graph and c.location == line)
        functions = (reference() for call in calls for reference in call.functions)
        names = (place_of(function, "backward") for function in functions if function is not None)
        return next((Cut("function", line, function=name) for name in names), None)

    def _cut_of(self, output: torch.Tensor) -> Cut | None:
        """Return the tensor's cut, or else the last read of a value since the previous call."""
        numbers = [call.number for call in self.earlier_calls]
        is_recent = self.timeline.left_after == max(numbers, default=0)
        cut, left = self.timeline.cuts.get(output), self.timeline.left if is_recent else None
        if cut is None or self.timeline.cuts.computed_without_gradients(output):
            return cut or left
        # If a value with a graph was read, only a constant was computed without gradients.
        is_constant = cut.how == "region" and left is not None and left.unused
        return left if is_constant else cut

    def _as_gradient(self, output: torch.Tensor) -> Cut | None:
        """Return the call that computed ``.grad`` of an input, if the output has its values."""
        inputs = [tensor for tensor in self.inputs if tensor.is_leaf and tensor.grad is not None]
        is_gradient = output.any() and any(torch.equal(t.grad, output) for t in inputs)
        calls = [call for call in self.earlier_calls if not call.creates_graph]
        return Cut("first_order", calls[-1].location) if is_gradient and calls else None

    @cached_property
    def names(self) -> Mapping[str, str | None]:
        name = None if self.cut is None else self.cut.function
        if name is None and (function := self._derived_function) is not None:
            name = place_of(function, "backward")
        frozen = [v.value for v in self.variables if self.frozen and not v.value.requires_grad]
        trained = Training(self.timeline, storages_in(frozen)).held(frozen)
        holders = {id(v.value): v for v in sorted(self.variables, key=lambda v: bool(v.owners))}
        asked = {id(tensor) for tensor in self.inputs}
        inputs = (v for v in self.variables if v.frame is self.frame and id(v.value) in asked)
        names = name_of(holders[id(tensor)] for tensor in trained)
        return {"it": name, "trained": names, "asked": name_of(inputs)}

    def _is_cut(self, *kinds: str) -> bool:
        return self.cut is not None and self.cut.how in kinds

    cut_by_detach = property(lambda self: self._is_cut("detach", "data"))
    cut_by_copy = property(lambda self: self._is_cut("copy"))
    cut_by_update = property(lambda self: self._is_cut("update"))
    cut_by_first_order = property(lambda self: self._is_cut("first_order"))
    cut_by_operation = property(lambda self: self._is_cut("operation"))
    cut_by_function = property(lambda self: self._is_cut("function"))

    @property
    def gradients_are_off(self) -> bool:
        """Whether the cut is in no_grad(), or, if none was recorded, the failed call is."""
        if self.cut is not None:
            return self.cut.how == "region"
        return self.call is not None and (not self.call.recorded or self.call.inference)

    @property
    def in_inference_mode(self) -> bool:
        return self.call is not None and self.call.inference

    @property
    def in_a_checkpoint(self) -> bool:
        """Whether a reentrant checkpoint cut the graph, as the record or PyTorch's warning says."""
        if self.cut is not None:
            return self.cut.how == "checkpoint"
        return _torch.has_warned("None of the inputs have requires_grad=True")

    @cached_property
    def frozen(self) -> bool:
        """Whether a frozen leaf is the cut; if none is known, whether all known parameters are."""
        if self.cut is not None:
            return self.cut.how == "frozen"
        parameters = [v.value for v in self.variables if isinstance(v.value, torch.nn.Parameter)]
        return bool(parameters) and not any(value.requires_grad for value in parameters)

    @property
    def computed_in_forward(self) -> bool:
        """Whether the previous call ran a custom function that stored a tensor without a graph."""
        if self.cut is not None and not self.cut_by_function:
            return False
        return self._derived_function is not None

    @cached_property
    def _derived_function(self) -> type | None:
        latest = self.earlier_calls[-1:]
        functions = (reference() for call in latest for reference in call.derived)
        return next((function for function in functions if function is not None), None)


class InferenceEvidence(TextEvidence):
    """Evidence about a tensor, created in inference mode, that is needed or changed outside."""

    made_in_inference_mode = True

    def __post_init__(self) -> None:
        self.began_at = source.only_line(self.files, _INFERENCE)
        created = (v.value for v in self.variables if v.value.is_inference())
        self.names = {"it": names_written([self.raised_at]) or self.names_of(created)}


class RefusedEvidence(TextEvidence):
    """Evidence about a tensor that the copy of an object, an optimizer or a hook refused."""

    def __post_init__(self) -> None:
        *_, (frame, _) = walk_tb(self.exception.__traceback__)
        tensor = frame.f_locals.get("param", frame.f_locals.get("self"))  # of an optimizer first
        holders = [v for v in self.variables if v.value is tensor]
        if frame.f_code.co_name != "__deepcopy__":  # then the variable of the call is enough
            holders = [v for v in holders if not v.owners][:1] or holders
        detached, leaves = (carriers.detached(holders, as_leaves) for as_leaves in (False, True))
        self.names = {"it": name_of(holders), "detached": detached, "leaves": leaves}
        cut = self.timeline.cuts.get(tensor) if isinstance(tensor, torch.Tensor) else None
        disabled = source.region_around(self.frame, source.GRADIENTS_DISABLED)
        self.is_result = disabled is None and not isinstance(tensor, torch.nn.Parameter)
        if cut is not None:
            self.began_at = cut.location
        elif isinstance(tensor, torch.nn.Parameter):
            self.began_at = source.only_line(self.files, FREEZES)
        else:
            self.began_at = self._filled_at(holders)


class FlagEvidence(TextEvidence):
    """Evidence about a tensor of which a line tried to change whether it has a gradient."""

    def __post_init__(self) -> None:
        line = "" if self.raised_at is None else self.raised_at.text
        changed = re.search(r"([\w.\[\]]+)\.(requires_grad|retain_grad)", line)
        self.names = {"it": None if changed is None else changed[1]}
        loop = self.frame and source.loop_around(self.frame)
        targets = ast.walk(loop.target) if isinstance(loop, ast.For) else ()
        self.is_loop_variable = self.names["it"] in {ast.unparse(node) for node in targets}
        holder = next((v for v in self.variables if v.name == self.names["it"]), None)
        if holder is not None and holder.node is not None:
            self._locate(_torch.sequence_nr(holder.node))


_TO_NUMPY = "detach().cpu().numpy()"


class NumpyEvidence(TextEvidence):
    """Evidence about a tensor with a graph that was to be converted to an array."""

    def __post_init__(self) -> None:
        *_, (frame, _) = walk_tb(self.exception.__traceback__)
        place, _ = where_raised(self.exception)
        read = (source.receiver_at(place, "numpy") or "").removesuffix(".cpu()")
        tensor = frame.f_locals.get("self")  # of Tensor.__array__(), which numpy calls
        holders = [v for v in self.variables if v.value is tensor or v.name == read]
        self.began_at = place
        self.is_differentiated = self.call is not None or in_forward(self.frame)
        self.graph_was_used = any(v.node and freed_by(v.node) for v in holders)
        node = _torch.grad_fn_of(tensor) if isinstance(tensor, torch.Tensor) else None
        if not holders and not read and node is not None:  # the line itself computed the tensor
            inputs = {successor for successor, _ in _torch.edges_of(node)}
            holders = [v for v in self.variables if v.node is not None and v.node in inputs]
        name = name_of(holders[:1]) or read or None
        self.names = {"it": name, "array": name and f"{name}.{_TO_NUMPY}"}
        full = holders[0].name if holders else ""
        if place is not None and source.is_written(place.file, full):
            self.names = {"it": name, "array": f"{full}.{_TO_NUMPY}"}
        elif full.endswith("]"):
            entries = f"{name}.values()" if isinstance(holders[0].owners[-1], dict) else name
            self.names = {"it": name, "array": f"[x.{_TO_NUMPY} for x in {entries}]"}


class ReadNumberEvidence(TextEvidence):
    """Evidence about a line under ``vmap`` that reads the number of one sample."""

    def __post_init__(self) -> None:
        place = self.began_at = self.raised_at
        statement = place and source.simple_statement(place.file, place.line)
        for node in ast.walk(statement) if statement else ():
            if isinstance(node, ast.Subscript):
                self._note_slices(node.value, getattr(node.slice, "elts", [node.slice]))

    def _note_slices(self, sliced: ast.expr, parts: list[ast.expr]) -> None:
        for i, part in enumerate(parts):
            if not isinstance(part, ast.Slice) or part.lower is None or part.upper is None:
                continue
            if self._is_tensor(part.lower):
                self.sliced_at_a_tensor = True
                is_counted = all(isinstance(earlier, ast.Slice) for earlier in parts[:i])
                self.names = {
                    "it": ast.unparse(sliced),
                    "start": ast.unparse(part.lower),
                    "dimension": str(i) if is_counted else None,
                }

    def _is_tensor(self, number: ast.expr) -> bool:
        """Whether a bound of a slice is a tensor, or computed from one by an operator."""
        if isinstance(number, ast.BinOp):
            return self._is_tensor(number.left) or self._is_tensor(number.right)
        return isinstance(lost_graph.value_of(self.frame, ast.unparse(number)), torch.Tensor)


class StoredEvidence(TextEvidence):
    """Evidence about the ``.grad`` of a tensor that is not a leaf, so that it is None."""

    def __post_init__(self) -> None:
        read = re.findall(r"([\w.\[\]]+)\.grad\b", self.raised_at.text if self.raised_at else "")
        results = [v for v in self.variables if v.name in read and v.node is not None]
        if isinstance(self.exception, RuntimeError) or not results:
            raise NoEvidence
        nodes = {results[0].node}
        self.names = {"it": results[0].name}
        self.made_at = self._filled_at(results[:1])
        leaves = storages_in(leaves_of(walk(nodes)[0]))
        held = storages_in(v.value for v in self.variables if v.value.is_leaf)
        self.of_no_variable = leaves.isdisjoint(held)
        began = min((c.sequence_nr for c in self.timeline.calls), default=math.inf)
        is_newer = max(map(_torch.sequence_nr, nodes)) >= began
        self.cut_by_update = self.of_no_variable and is_newer and self._is_updated(results[0].value)

    def _is_updated(self, tensor: torch.Tensor) -> bool:
        """Whether a variable of the tensor is assigned a value that is computed from it."""
        held = (without_index(v.name) for v in self.variables if v.value is tensor)
        names = {name.rpartition(".")[2] for name in held}
        values = (v for file in self.files for name in names for v in source.values_of(file, name))
        parts = {part.rpartition(".")[2] for value in values for part in reads(value)}
        return not names.isdisjoint(parts)


class ScalarEvidence(TextEvidence):
    """Evidence about a tensor of several elements that backward() or grad() was called on."""

    def __post_init__(self) -> None:
        frames = [frame for frame, _ in walk_tb(self.exception.__traceback__)]
        calls = [frame for frame in frames if frame.f_code is torch.autograd.grad.__code__]
        inputs = tensors_in([frame.f_locals["inputs"] for frame in calls])
        self.of_inputs = any(not isinstance(tensor, torch.nn.Parameter) for tensor in inputs)
        outputs = [t for t in frames[-1].f_locals.get("outputs", ()) if t.numel() != 1]
        self.names = {"it": self.names_of(outputs[:1])}
        self._locate(max(map(_torch.sequence_nr, roots_of(outputs[:1])), default=-1))


class AskedEvidence(Evidence):
    """Evidence about a gradient requested for a tensor that has none (``grad`` or ``inputs=``)."""

    def __post_init__(self) -> None:
        inputs = [tensor for tensor in self.inputs if isinstance(tensor, torch.Tensor)]
        off = [tensor for tensor in inputs if not tensor.requires_grad]
        self.asked_of_what_is_off = bool(off)
        self._nodes = set() if off else set(walk(roots_of(self.outputs))[0])
        self.missing = off or [t for t in inputs if self._nodes.isdisjoint(roots_of([t]))]
        self._leaves = leaves_of(self._nodes)
        cuts = (self.timeline.cuts.get(tensor) for tensor in self.missing)
        self.cut = next((cut for cut in cuts if cut is not None), None)
        if self.cut is None and not off:  # it may have been cut after it was created
            self.cut = self.timeline.cuts.of(storages_in(self.missing))
        self.began_at = None if self.cut is None else self.cut.location
        constant = next((t for t in off if not isinstance(t, torch.nn.Parameter)), None)
        if constant is not None and not self.timeline.cuts.computed_without_gradients(constant):
            # What lost its graph may be another tensor, from which this one was computed.
            named = [v for v in self.variables if v.value is constant]
            self.began_at = next(filter(None, map(carriers.filled_at, named)), self.began_at)
        if self.others_take_part and not off:
            self.began_at = self.raised_at
        elif self.cut is None and not off:
            once = self.differentiated_once
            self.began_at = self._computed_at() if once is None else once.location
            self.made_at = self._filled_at([] if self.unused is None else [self.unused])

    def _computed_at(self) -> Location | None:
        """Return the line of the first variable that the outputs were computed from."""
        nodes = ((v.node, v) for v in self.variables if not v.owners)
        ages = {_torch.sequence_nr(node): v for node, v in nodes if node in self._nodes}
        missing = filter(None, map(_torch.grad_fn_of, self.missing))
        age = max(map(_torch.sequence_nr, missing), default=-1)
        # Those that are younger than the missing inputs come first.
        in_order = sorted(ages, key=lambda number: (number < age, number))
        places = (carriers.filled_at(ages[number]) for number in in_order)
        return next((place for place in places if place not in (None, self.raised_at)), None)

    @property
    def others_take_part(self) -> bool:
        """Whether some, but not all, of the requested inputs receive a gradient."""
        return 0 < len(self.missing) < len(self.inputs)

    @property
    def a_copy_takes_part(self) -> bool:
        """Whether none of several inputs is in the graph, but other leaves of their shapes are."""
        shapes = [tensor.shape for tensor in self.missing]
        copied = [tensor.shape for tensor in self._leaves]
        several = len(shapes) > 1 and len(shapes) == len(self.inputs)
        return several and all(copied.count(shape) >= shapes.count(shape) for shape in shapes)

    @property
    def an_equal_copy_takes_part(self) -> bool:
        """Whether that holds, and the inputs are leaves, too, which still have the same values."""
        are_leaves = all(tensor.is_leaf for tensor in self.missing)
        is_copied = self.a_copy_takes_part and are_leaves
        return is_copied and all(map(_are_equal, self.missing, self._copies))

    @cached_property
    def _copies(self) -> list[torch.Tensor]:
        """Of each missing input the leaf of its shape, and if any of its values, named alike."""
        names = {id(v.value): v.name.split(".")[::-1] for v in reversed(self.variables)}

        def likeness(leaf: torch.Tensor, tensor: torch.Tensor) -> tuple[bool, int]:
            parts = zip(names.get(id(leaf), ()), names.get(id(tensor), ()), strict=False)
            same_end = takewhile(lambda pair: pair[0] == pair[1], parts)
            return _are_equal(leaf, tensor), len([*same_end])

        alike = [[leaf for leaf in self._leaves if leaf.shape == t.shape] for t in self.missing]
        pairs = zip(alike, self.missing, strict=True)
        return [max(leaves, key=lambda x: likeness(x, t)) for leaves, t in pairs if leaves]

    @cached_property
    def of_views(self) -> list[torch.Tensor]:
        """The tensors in the graph from which all missing inputs were taken as new views."""
        bases = [base for base in map(_torch.base_of, self.missing) if base is not None]
        used = [base for base in bases if not self._nodes.isdisjoint(roots_of([base]))]
        return used if len(used) == len(self.missing) else []

    @property
    def frozen(self) -> bool:
        return self.cut is not None and self.cut.how == "frozen"

    @cached_property
    def differentiated_once(self) -> BackwardCall | None:
        """The call, without create_graph, on a result of inputs none of which the outputs use."""
        if self.unused is None or len(self.missing) < len(self.inputs):
            return None
        number = _torch.sequence_nr(self.unused.node)
        calls = (c for c in self.timeline.calls if number in c.roots and not c.creates_graph)
        return next(calls, None)

    @cached_property
    def unused(self) -> Holder | None:
        """The last variable that is computed from a missing input but not used for the outputs."""
        missing = {*roots_of(self.missing)}
        nodes = {v.node: v for v in self.variables if "." not in v.name}
        live, links = walk(nodes.keys() - {None} - set(walk(roots_of(self.outputs))[0]))
        starts = [i for i, node in enumerate(live) if node in missing]
        computed = {live[i] for i in reachable(users_of(links), starts)} & nodes.keys()
        return nodes[max(computed, key=_torch.sequence_nr)] if computed else None

    @cached_property
    def names(self) -> Mapping[str, str | None]:
        ids, line = {id(tensor) for tensor in self.missing}, self.raised_at and self.raised_at.text
        holders = [v for v in self.variables if id(v.value) in ids]
        written = [v for v in holders if without_index(v.name) in re.findall(r"[\w.]+", line or "")]
        name = name_of(written or holders)
        last, copy = self.unused and name_of([self.unused]), self.names_of(self._copies)
        ids = {id(tensor) for tensor in self.of_views}
        whole = carriers.tensors_of((v for v in self.variables if id(v.value) in ids), None)
        return {"it": name, "last": last or name, "asked": name, "copy": copy, "whole": whole}


def _are_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one kind have the same values."""
    with contextlib.suppress(RuntimeError):  # they may have none
        return a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
    return False
