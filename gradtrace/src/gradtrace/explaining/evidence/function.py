"""Evidence about an error that involves the backward method of a ``torch.autograd.Function``."""

import ast
import contextlib
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from inspect import getattr_static
from itertools import chain, dropwhile
from traceback import walk_tb
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from gradtrace import _torch
from gradtrace.autograd import source, syntax
from gradtrace.autograd.frames import Location, code_of, innermost_of, is_users, place_of
from gradtrace.autograd.traversal import leaves_of, roots_of, walk
from gradtrace.explaining.causes import REPLACEMENTS, gradient_counts
from gradtrace.explaining.evidence.base import Evidence, TextEvidence, where_raised
from gradtrace.watching.call_sites import outward
from gradtrace.watching.record import BackwardCall, freed_by


def node_that_raised(error: BaseException) -> Any:
    """Return the node of the program's custom function whose backward raised; None if none did."""
    node = None
    for frame, _ in walk_tb(error.__traceback__):
        if frame.f_code is _torch.APPLY_BACKWARD:
            node = frame.f_locals.get("self")
        elif node is not None:
            return node if is_users(frame.f_code) else None
    return node if isinstance(error, TypeError) else None  # its parameters did not fit


def raised_again(error: BaseException) -> bool:
    """Whether a checkpoint's function raised this in its second run, not for lack of memory."""
    frames = (frame.f_code for frame, _ in walk_tb(error.__traceback__))
    second_run = dropwhile(lambda code: code.co_filename != _torch.CHECKPOINT_FILE, frames)
    return any(map(is_users, second_run)) and "memory" not in str(error)


def outside_of_backward(frame: FrameType | None) -> FrameType | None:
    """Return the nearest frame outward that runs outside of every custom function's backward."""
    applied = [f for f in outward(frame) if f.f_code is _torch.APPLY_BACKWARD]
    return applied[-1].f_back if applied else frame


class FunctionEvidence(Evidence):
    """Evidence about a custom function whose backward raised."""

    def __post_init__(self) -> None:
        self._node = node_that_raised(self.exception)
        self._inside, _ = where_raised(self.exception)
        self.began_at = self._inside if self.ran_before is None else self.ran_before.location
        self._locate(_torch.sequence_nr(self._node))

    @cached_property
    def ran_before(self) -> BackwardCall | None:
        """The earlier call that ran the function's node, if any."""
        freeing = freed_by(self._node)
        if freeing is not None and freeing is not self.call:
            return freeing
        return self._kept_since(_torch.sequence_nr(self._node))

    @cached_property
    def not_kept(self) -> str | None:
        """The name of a value that backward() reads from ctx, but forward() did not keep there."""
        if attribute := re.search(r"Backward' object has no attribute '(\w+)'", self.error):
            return f"ctx.{attribute[1]}"
        line = "" if self._inside is None else self._inside.text
        read = re.match(r"(?:(.*?) = )?.*\bctx\.saved_tensors\b", line)
        if read is None or not re.match("IndexError|ValueError", self.error):
            return None
        return (read[1] or "ctx.saved_tensors").strip("(), ")

    @property
    def views_other_strides(self) -> bool:
        return "view size is not compatible with input tensor's size and stride" in self.error

    @cached_property
    def names(self) -> Mapping[str, str | None]:
        function = _torch.function_of(self._node)
        name = None if function is None else place_of(function, "backward")
        return {"it": name, "missing": self.not_kept}


class TwiceEvidence(TextEvidence):
    """Evidence about a second derivative through a function marked ``@once_differentiable``."""

    def __post_init__(self) -> None:
        """Find the function, its decorator, and whether its source shows another reason."""
        calls = [c for c in reversed(tuple(self.timeline.calls)) if c.creates_graph]
        functions = (reference() for call in calls for reference in call.functions)
        marked = (f for f in functions if f is not None and _torch.is_once_differentiable(f))
        function: Any = next(marked, None)
        code = None if function is None else code_of(function.backward)
        method = None if code is None else source.function_of(code)
        self.names = {"it": None if function is None else place_of(function, "backward")}
        if code is not None and method is not None:
            marks = (d for d in method.decorator_list if "once_diff" in ast.unparse(d))
            self.began_at = next((Location(code.co_filename, d.lineno) for d in marks), None)
            derived = {reference() for call in calls for reference in call.derived}
            reasons = map(syntax.WITHOUT_GRAPH.search, map(ast.unparse, method.body))
            self.is_only_marked = function not in derived and not any(reasons)


class SecondDerivativeEvidence(TextEvidence):
    """Evidence about an operation whose derivative PyTorch cannot differentiate."""

    def __post_init__(self) -> None:
        """Find the line of the operation that the error names."""
        operation = re.search(r"derivative for '?(?:aten::)?_*(\w+?)_backward", self.error)
        if operation is None:
            return
        name = operation[1]
        replacements = (r for start, r in REPLACEMENTS.items() if name.startswith(start))
        self.names = {"operation": name, "replacement": next(replacements, None)}
        node_name = f"{name.replace('_', '')}backward"
        live = walk(roots_of(self.outputs))[0]
        nodes = (n for n in live if re.sub(r"\d+$", "", n.name().lower()) == node_name)
        self._locate(max(map(_torch.sequence_nr, nodes), default=-1))
        call = rf"([\w.]+\.)?{name[:_PREFIX]}\w*\(.*\)"
        self.made_at = self.made_at or source.only_line(self.files, call)


class NanEvidence(TextEvidence):
    """Evidence about the first gradient that is not a number, which anomaly mode found."""

    def __post_init__(self) -> None:
        """Find the line of the operation, if one line computed all operations of that name."""
        name = re.search(r"Function '(\w+)' returned nan", self.error)
        live = walk(roots_of(self.outputs))[0]
        nodes = [node for node in live if name is not None and node.name() == name[1]]
        stacks = (node.metadata.get("traceback_") or () for node in nodes)
        places = {innermost_of(stack) for stack in stacks}
        if len(places) == 1:
            self.began_at = places.pop()
            self.names = {"call": "the line where it began" if self.began_at else None}


class RecomputedEvidence(TextEvidence):
    """Evidence about a checkpoint whose second forward pass saved other tensors than the first."""

    def __post_init__(self) -> None:
        """Name the checkpointed function, its call, and what may differ in its runs."""
        function, code = next(_checkpointed(self.exception), (None, None))
        owner = getattr(function, "__self__", function)  # of a method, which its module checkpoints
        modules = [*owner.modules()] if isinstance(owner, torch.nn.Module) else []
        pairs = [(owner, code), *((module, code_of(module.forward)) for module in modules[1:])]
        codes = [*chain.from_iterable(map(_codes_of, *zip(*pairs, strict=True)))]
        self.made_at = source.only_line(self.files, _CHECKPOINT)
        draws = next(filter(None, map(source.draw_elsewhere, codes)), None)
        inside, outside = source.state_changed(codes), source.assigned_elsewhere(codes)
        self.changes_state, self.changed_elsewhere = bool(inside), bool(outside) and not inside
        changed, switch = inside or outside, None
        running = modules or self.modules
        has_modes = any(isinstance(module, _WITH_MODES) for module in running)
        if has_modes and not any(module.training for module in running):
            switch = source.only_line(self.files, r".+\.eval\(\)")
            self.in_eval_mode = switch is not None or not changed
        self.draws_elsewhere = draws is not None
        is_drawing = any(isinstance(m, _DRAWING) and m.training for m in modules)
        self.draws_unrestored = not _restores_random_state(self.exception) and (
            is_drawing or any(map(source.draws, codes))
        )
        self.calls_a_transform = not changed and any(source.calls_of(self.files, _TRANSFORMS))
        is_module = isinstance(function, torch.nn.Module)
        name = type(function).__name__ if is_module else getattr(code, "co_qualname", None)
        model = source.receiver_at(switch, "eval")
        self.names = {"it": name, "state": ", ".join(changed) or None, "model": model}
        self.began_at = draws or switch or min(changed.values(), default=None)


_PREFIX = 10  # characters of scaled_dot_product_attention, say
_CHECKPOINT = r"([\w.]+\.)?checkpoint(_sequential)?\(.*\)"
_WITH_MODES = torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._BatchNorm
_DRAWING = torch.nn.modules.dropout._DropoutNd, torch.nn.RReLU  # in training
_TRANSFORMS = ["vmap", "jvp", "vjp", "jacrev", "jacfwd", "hessian", "linearize", "grad_and_value"]


class ReentrantEvidence(TextEvidence):
    """Evidence about a reentrant checkpoint in a gradient that it does not support."""

    def __post_init__(self) -> None:
        """Find the call of the checkpoint: that of the node that refused, or else the only one."""
        frames = [frame for frame, _ in walk_tb(self.exception.__traceback__)]
        refused = [f.f_locals["self"] for f in frames if f.f_code is _torch.APPLY_BACKWARD]
        self._locate(_torch.sequence_nr(refused[0]) if refused else -1)
        self.made_at = self.made_at or source.only_line(self.files, _CHECKPOINT)


def _checkpointed(error: BaseException) -> Iterator[tuple[Any, CodeType]]:
    """Yield the modules, and the program's functions, that a checkpoint here ran again."""
    for recomputed in _recomputing(error):
        for cell in recomputed.__closure__:
            with contextlib.suppress(ValueError):  # a cell may be empty
                function = cell.cell_contents
                is_module = isinstance(function, torch.nn.Module)
                code = getattr(function.forward if is_module else function, "__code__", None)
                if code is not None and (is_module or is_users(code)):
                    yield function, code


def _recomputing(error: BaseException) -> Iterator[Any]:
    """Yield the functions by which checkpoints in this traceback ran the program's again."""
    for frame, _ in walk_tb(error.__traceback__):
        recomputed = getattr(frame.f_locals.get("frame"), "recompute_fn", None)
        if getattr(recomputed, "__closure__", None):
            yield recomputed


def _restores_random_state(error: BaseException) -> bool:
    """Whether the checkpoint in this traceback sets the random state of the first run again."""
    for recomputed in _recomputing(error):
        cells = dict(zip(recomputed.__code__.co_freevars, recomputed.__closure__, strict=True))
        if (flag := cells.get("preserve_rng_state")) is not None:
            return bool(flag.cell_contents)
    return True


def _codes_of(owner: Any, code: CodeType | None) -> list[CodeType]:
    """Return the program's code that a method runs: its own, and that of methods it may call."""
    codes = [code] if code is not None and is_users(code) else []
    for caller in codes:
        methods = (getattr_static(type(owner), name, None) for name in caller.co_names)
        called = (m.__code__ for m in methods if isinstance(m, FunctionType))
        codes += (callee for callee in called if is_users(callee) and callee not in codes)
    return codes


class ReturnedEvidence(TextEvidence):
    """Evidence about a custom function whose backward returned gradients that do not fit."""

    def __post_init__(self) -> None:
        """Find the ``return`` line, and the values that it should return."""
        named = re.search(r"(\w+)Backward returned", self.error)
        self.names = names = {"it": named[1] if named else None}
        nodes: dict[Any, list[Any]] = defaultdict(list)
        for node in walk(roots_of(self.outputs))[0]:
            function = _torch.function_of(node)
            if function and (function.__name__ == names["it"] or named is None):
                nodes[function].append(node)
        if len(nodes) != 1:
            return
        ((function, calls),) = nodes.items()
        needs = [*map(any, zip(*(node.needs_input_grad for node in calls), strict=False))]
        inputs, code = _torch.inputs_of_function(function), code_of(function.backward)
        if len(inputs) != len(needs):
            inputs = [f"input {i}" for i in range(len(needs))]
        place, values = source.last_return(code) if code is not None else (None, [])
        self.began_at, names["it"] = place, function.__name__
        if shapes := re.search(r"index (\d+) - got (\S.*?) but .* with (.*)", self.error):
            index, (got, expected) = int(shapes[1]), map(_numbers, shapes.groups()[1:])
            failed = [
                c for c in calls if _shape_of(_torch.edges_of(c)[index : index + 1]) == expected
            ]
            self._judge_shape(failed, index, got, expected)
            if self.is_misshapen and code is not None:
                returned = "".join(values[index:][:1])
                self.began_at = source.made_at(code, returned) or place
            names["input"] = name = inputs[index]
            names["returned"] = f"a gradient of shape {shapes[2]} for {name}, of shape {shapes[3]}"
            edges = (edge for node in calls for edge in _torch.edges_of(node)[index : index + 1])
            self._look_for_reshaped(leaves_of(node for node, _ in edges), expected)
            return
        kept = 0  # what was returned for numbers must be None
        if counts := gradient_counts(self.error):
            number = "1 value" if counts[1] == 1 else f"{counts[1]} values"
            names["returned"] = f"{number}, but forward takes {', '.join(inputs)}"
            kept = len(values)
        missing = [f"grad_{name}" for name in inputs[len(values) :]]
        gradients = [value for value in values if value != "None"]
        values += missing
        gradients += missing if len(gradients) != sum(needs) else []
        if len(gradients) == sum(needs):  # in the order of the inputs that need one
            values = [gradients.pop(0) if needed else "None" for needed in needs]
        pairs = [*zip(values, needs, strict=False)]
        displayed = [v if needed or i < kept else "None" for i, (v, needed) in enumerate(pairs)]
        if ("None", True) not in pairs:
            names["example"] = f": return {', '.join(displayed)}"

    def _judge_shape(
        self, failed: list[Any], index: int, got: list[int], expected: list[int]
    ) -> None:
        """Compare a gradient's shape with those of the inputs and outputs of the failed nodes."""
        self.same_size = math.prod(got) == math.prod(expected)
        # PyTorch counts tensors only: with a number before this input, the entry is a later one.
        edges = [(_torch.edges_of(node), node.needs_input_grad) for node in failed]
        is_entry = bool(edges) and all(
            [node is not None for node, _ in inputs[: index + 1]] == [*needs[: index + 1]]
            for inputs, needs in edges
        )
        others = [[_shape_of([edge]) for edge in inputs] for inputs, _ in edges]
        self.fits_another_input = is_entry and not self.same_size and all(got in o for o in others)
        outputs = [[[*o.shape] for o in _torch.outputs_of(node)] for node in failed]
        self.fits_an_output = is_entry and self.same_size and all(expected in o for o in outputs)
        larger = any(m > n > 1 for m, n in zip(got, expected, strict=False))
        is_misshapen = larger and len(got) == len(expected) and not self.fits_another_input
        self.is_misshapen = is_misshapen and not self.same_size
        self.other_size = not self.same_size and not self.is_misshapen

    def _look_for_reshaped(self, leaves: list[torch.Tensor], expected: list[int]) -> None:
        """Find a leaf whose shape has changed since its node recorded the expected one."""
        reshaped = [leaf for leaf in leaves if [*leaf.shape] != expected]
        if name := self.names_of(reshaped[:1]):
            self.leaf_is_reshaped = True
            self.names = {**self.names, "input": name}
            write = rf"[\w.]*\b{re.escape(name.rpartition('.')[2])}\.data = .*"
            self.began_at = source.only_line(self.files, write) or self.began_at


def _numbers(shape: str) -> list[int]:
    return [*map(int, re.findall(r"\d+", shape))]


def _shape_of(edges: Sequence[tuple[Any, int]]) -> list[int] | None:
    """Return the shape of the tensor at the first of a node's edges; None if it is not known."""
    for node, place in edges[:1]:
        outputs = () if node is None else _torch.outputs_of(node)
        return [*outputs[place].shape] if outputs else None
    return None
