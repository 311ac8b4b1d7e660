"""Evidence about an error that involves the backward method of a ``torch.autograd.Function``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any

import torch

from gradtrace import _torch
from gradtrace.autograd import source
from gradtrace.autograd.frames import Location, is_users, place_of
from gradtrace.explaining.evidence.base import Evidence, TextEvidence
from gradtrace.watching.record import BackwardCall, freed_by


def node_that_raised(error: BaseException) -> Any:
    """Return the node of the custom function whose backward raised; None if no function did."""
    node = None
    for frame, _ in walk_tb(error.__traceback__):
        if frame.f_code is _torch.APPLY_BACKWARD:
            node = frame.f_locals.get("self")
        elif node is not None:
            return node if is_users(frame.f_code) else None
    return None


def outside_of_backward(frame: FrameType | None) -> FrameType | None:
    """Return the frame that called the outermost running backward pass."""
    outermost, current = frame, frame
    while current is not None:
        if current.f_code is _torch.APPLY_BACKWARD:
            outermost = current.f_back
        current = current.f_back
    return outermost


class FunctionEvidence(Evidence):
    """Evidence about a custom function's ``node``, which the call ``ran_before`` ran earlier."""

    def __init__(self, node: Any, *arguments: Any):
        super().__init__(*arguments)
        self._node = node
        self.began_at = None if self.ran_before is None else self.ran_before.location
        self._locate(_torch.sequence_nr(node))

    @cached_property
    def ran_before(self) -> BackwardCall | None:
        freeing = freed_by(self._node)
        if freeing is not None and freeing is not self.call:
            return freeing
        return self._kept_since(_torch.sequence_nr(self._node))

    @cached_property
    def names(self) -> Mapping[str, str | None]:
        function = _torch.function_of(self._node)
        return {"it": None if function is None else place_of(function, "backward")}


class TwiceEvidence(TextEvidence):
    """Evidence about a second derivative through a function marked ``@once_differentiable``."""

    def examine(self, exception: BaseException) -> None:
        calls = (c for c in reversed(tuple(self.timeline.calls)) if c.creates_graph)
        functions = (reference() for call in calls for reference in call.functions)
        marked = (f for f in functions if f is not None and _torch.is_once_differentiable(f))
        function = next(marked, None)
        self.names = {"it": None if function is None else place_of(function, "backward")}


class RecomputedEvidence(TextEvidence):
    """Evidence about a checkpoint whose second forward pass saved other tensors than the first."""

    def examine(self, exception: BaseException) -> None:
        """Name the checkpointed function and the attributes that may differ between its runs."""
        for module, code in _checkpointed(exception):
            changed = source.attributes_changed(code)
            name = type(module).__name__ if module is not None else code.co_qualname
            self.names = {"it": name, "state": ", ".join(changed) or None}
            if changed:
                self.began_at = Location(code.co_filename, min(changed.values()))
            return


def _checkpointed(error: BaseException) -> Iterator[tuple[Any, CodeType]]:
    """Yield the modules and functions that a checkpoint in this traceback recomputed."""
    for frame, _ in walk_tb(error.__traceback__):
        recomputed = getattr(frame.f_locals.get("frame"), "recompute_fn", None)
        for cell in getattr(recomputed, "__closure__", None) or ():
            function = cell.cell_contents
            method = type(function).forward if isinstance(function, torch.nn.Module) else function
            code = getattr(method, "__code__", None)
            if code is not None and is_users(code):
                yield (function if method is not function else None), code


class NamedEvidence(TextEvidence):
    """Evidence about a function whose node the error names."""

    def examine(self, exception: BaseException) -> None:
        named = re.search(r"(\w+)Backward returned", self.error)
        self.names = {"it": None if named is None else named[1]}
