"""The call sites of operations, and whether a site is in a custom function or in PyTorch."""

import functools
import sys
from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path
from types import FrameType

import torch

from gradtrace import _torch
from gradtrace.autograd.frames import STAND_IN, Location, is_users
from gradtrace.watching.cuts import Cut

NEAR, FAR = 4, 200  # frames from an operation to the custom function that it may be in
_MAX_SITES = 5_000
_CALL = (lambda func, args, kwargs: func(*args, **kwargs)).__code__


class Site:
    """A call site: one instruction, and the facts about it that are the same for every call.

    ``location`` is its line if that is the user's, ``stand_in`` the code of a function with its
    file and line, and ``cut`` the cut of results to which the operation there gives no derivative.
    """

    def __init__(self, frame: FrameType):
        self.code = frame.f_code
        file = self.code.co_filename
        self.location = Location.of(frame) if is_users(self.code) else None
        self.cut = Cut("operation", self.location)
        self.in_optimizer = file.startswith(_torch.OPTIMIZERS)
        self.in_grad_scaler = file == _torch.GRAD_SCALER_FILE
        self.stand_in = _CALL.replace(
            co_filename=file, co_name=STAND_IN, co_qualname=STAND_IN, co_firstlineno=frame.f_lineno
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


def outward(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frame, its caller, and so on."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def caller_of_apply(frame: FrameType | None, frames: int) -> FrameType | None:
    """Return the caller of the custom function that runs at most ``frames`` outward, or None."""
    callers = map(_torch.caller_of_forward, islice(outward(frame), frames))
    return next((caller for caller in callers if caller is not None), None)


def in_forward(frame: FrameType | None) -> bool:
    """Whether this frame, or one of the next three outward, runs a ``forward`` of the user's."""
    codes = (near.f_code for near in islice(outward(frame), NEAR))
    return any(code.co_name == "forward" and is_users(code) for code in codes)


def caller_of(frame: FrameType) -> FrameType:
    """Return the frame that called this one, or the frame itself if it is the outermost."""
    return frame.f_back or frame


def grad_mode_method(frame: FrameType) -> str | None:
    """Return which method of PyTorch's gradient-mode context managers the frame runs, or None."""
    name, file = frame.f_code.co_name, frame.f_code.co_filename
    return name if file == _torch.GRAD_MODE_FILE and name != "__init__" else None


def library_cause() -> str | None:
    """Return the kind of cut that a checkpoint, distribution or gradcheck is making, or None."""
    libraries = takewhile(lambda f: not is_users(f.f_code), outward(sys._getframe(1)))
    causes = (_cause_in(frame.f_code.co_filename) for frame in libraries)
    return next((cause for cause in causes if cause is not None), None)


@functools.cache
def _cause_in(file: str) -> str | None:
    return next((cause for name, cause in _LIBRARIES.items() if file.startswith(name)), None)


_TORCH = Path(torch.__file__).parent
_LIBRARIES = {
    str(Path(_TORCH, "utils", "checkpoint")): "checkpoint",
    str(Path(_TORCH, "distributions")): "operation",
    str(Path(_TORCH, "autograd", "gradcheck")): "numerical",
}
