"""The places that call operations, and functions that run one as if that place had called it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from gradtrace import _torch
from gradtrace.autograd.frames import STAND_IN, Location, is_users
from gradtrace.watching.operation_kinds import tensors_in
from gradtrace.watching.record import Cut

_MAX_SITES = 5_000
_OUR_FOLDER = f"{Path(__file__).parent}{os.sep}"
_CALL_IN_VARIABLES = compile("_call[0](*_call[1], **_call[2])", __file__, "eval")
_CALL = (lambda func, args, kwargs: func(*args, **kwargs)).__code__


class Site:
    """A place that calls operations: one instruction, and what does not depend on the call.

    ``location`` is its line if that is the user's, ``stand_in`` the code of a function with its
    file and line, and ``cut`` the cut of a result that the operation there gives no derivative.
    """

    def __init__(self, frame: FrameType):
        self.code = frame.f_code
        file = self.code.co_filename
        self.location = Location.of(frame) if is_users(self.code) else None
        self.cut = Cut("operation", self.location)
        self.in_optimizer = file.startswith(_torch.OPTIMIZERS)
        self.in_grad_scaler = file == _torch.GRAD_SCALER_FILE
        self.stand_in = _CALL.replace(
            co_filename=file,
            co_name=STAND_IN,
            co_qualname=STAND_IN,
            co_firstlineno=frame.f_lineno,
        )


class Sites:
    """The sites at which operations were called."""

    def __init__(self) -> None:
        self._sites: dict[tuple[int, int], Site] = {}

    def at(self, frame: FrameType) -> Site:
        """Return the site of the frame's current call."""
        key = id(frame.f_code), frame.f_lasti
        site = self._sites.get(key)  # it refers to the code: no identity is used twice
        if site is None:
            if len(self._sites) == _MAX_SITES:
                self._sites.clear()
            site = self._sites[key] = Site(frame)
        return site

    def clear(self) -> None:
        """Forget all sites."""
        self._sites.clear()


def as_if_in(frame: FrameType) -> Callable[..., Any]:
    """Return a stand-in with the frame's variables, after which torch.jit.trace names values."""

    def call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        variables = {**frame.f_locals, "_call": (func, args, kwargs)}
        code = _CALL_IN_VARIABLES.replace(
            co_filename=frame.f_code.co_filename, co_name=STAND_IN, co_firstlineno=frame.f_lineno
        )
        return eval(code, frame.f_globals, variables)

    return call


def remove_our_frames(error: BaseException) -> None:
    """Remove the observer's frames from the beginning of an error's traceback.

    This is a function of its own because the frames of a traceback refer to the observer's frame: a
    local variable there for the traceback would create a cycle, which keeps the tensors of all
    these frames alive until the garbage collector runs.
    """
    traceback = error.__traceback__
    while traceback is not None and _is_ours(traceback.tb_frame.f_code):
        traceback = traceback.tb_next
    error.__traceback__ = traceback


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(_OUR_FOLDER) or code.co_name == STAND_IN


def forget_our_frames(results: list[Any], started: int) -> None:
    """Remove the observer's frames from the stacks that anomaly mode stores on new nodes.

    New are the nodes whose sequence number is at least ``started``.
    """
    pending: list[_torch.LiveNode] = [_torch.grad_fn_of(tensor) for tensor in tensors_in(results)]
    for node in pending:
        if node is None or type(node) is _torch.LEAF or _torch.sequence_nr(node) < started:
            continue
        stack = node.metadata.get("traceback_")
        if isinstance(stack, list):
            our_lines = (f'File "{_OUR_FOLDER}', f"in {STAND_IN}\n")
            stack[:] = [line for line in stack if not any(marker in line for marker in our_lines)]
        pending.extend(successor for successor, _ in _torch.edges_of(node))
