"""An error that the backward of a ``torch.autograd.Function`` raised, or leads to."""

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
from gradtrace.autograd.frames import is_users, place_of
from gradtrace.explaining.evidence.base import Evidence
from gradtrace.watching.record import BackwardCall, freed_by


def node_that_raised(error: BaseException) -> Any:
    """The node of the custom function whose backward, written by the user, raised; else None."""
    node = None
    for frame, _ in walk_tb(error.__traceback__):
        if frame.f_code is _torch.APPLY_BACKWARD:
            node = frame.f_locals.get("self")
        elif node is not None:
            return node if is_users(frame.f_code) else None
    return None


def outside_of_backward(frame: FrameType | None) -> FrameType | None:
    """The frame from which the outermost of the backwards that run was called."""
    found, here = frame, frame
    while here is not None:
        if here.f_code is _torch.APPLY_BACKWARD:
            found = here.f_back
        here = here.f_back
    return found


class FunctionEvidence(Evidence):
    """``node`` is that of the function, ``ran_before`` the call that ran it before this one."""

    def __init__(self, node: Any, *arguments: Any):
        super().__init__(*arguments)
        self._node = node
        self.began_at = None if self.ran_before is None else self.ran_before.location
        self._was_made(_torch.sequence_nr(node))

    @cached_property
    def ran_before(self) -> BackwardCall | None:
        freeing = freed_by(self._node)
        if freeing is not None and freeing is not self.call:
            return freeing
        return self._kept_since(_torch.sequence_nr(self._node))

    @property
    def names(self) -> Mapping[str, str]:
        function = _torch.function_of(self._node)
        return {} if function is None else {"it": place_of(function, "backward")}


class TwiceEvidence(Evidence):
    """A gradient of a gradient went through a function that says it has none."""

    @property
    def names(self) -> Mapping[str, str]:
        functions = (
            one
            for call in reversed(tuple(self.timeline.calls))
            if call.creates_graph
            for reference in call.functions
            if (one := reference()) is not None and _torch.is_once_differentiable(one)
        )
        function = next(functions, None)
        return {} if function is None else {"it": place_of(function, "backward")}


class RecomputedEvidence(Evidence):
    """A checkpoint's second forward pass saved other tensors than the first."""

    @property
    def names(self) -> Mapping[str, str]:
        """The function that was checkpointed, and the attributes that it assigns."""
        for module, code in _checkpointed(self.exception):
            written = source.attributes_written(code)
            names = {"it": type(module).__name__ if module is not None else code.co_qualname}
            return names | ({"state": ", ".join(written)} if written else {})
        return {}


def _checkpointed(error: BaseException | None) -> Iterator[tuple[Any, CodeType]]:
    """The modules and functions that a checkpoint in this traceback recomputed."""
    for frame, _ in walk_tb(None if error is None else error.__traceback__):
        recomputed = getattr(frame.f_locals.get("frame"), "recompute_fn", None)
        for cell in getattr(recomputed, "__closure__", None) or ():
            function = cell.cell_contents
            method = type(function).forward if isinstance(function, torch.nn.Module) else function
            code = getattr(method, "__code__", None)
            if code is not None and is_users(code):
                yield (function if method is not function else None), code


class NamedEvidence(Evidence):
    """The error names the node of the function."""

    @property
    def names(self) -> Mapping[str, str]:
        named = re.search(r"(\w+)Backward returned", self.error)
        return {} if named is None else {"it": named[1]}
