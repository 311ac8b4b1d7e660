"""Where an operation was called: in a custom function, a module's forward, or in PyTorch."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import FrameType

import torch

from gradtrace import _torch
from gradtrace.autograd.frames import is_users

NEAR, FAR = 4, 200  # frames from an operation to the custom function that it may be in


def caller_of_apply(frame: FrameType | None, frames: int) -> FrameType | None:
    """Return the frame that called the custom function whose forward is running near ``frame``.

    Returns None if no custom function's forward is among the next ``frames`` frames.
    """
    for _ in range(frames):
        if frame is None:
            return None
        if (caller := _torch.caller_of_forward(frame)) is not None:
            return caller
        frame = frame.f_back
    return None


def in_forward(frame: FrameType | None) -> bool:
    """Whether the frame runs in the forward pass of one of the user's modules."""
    for _ in range(NEAR):
        if frame is None:
            return False
        if frame.f_code.co_name == "forward" and is_users(frame.f_code):
            return True
        frame = frame.f_back
    return False


def caller_of(frame: FrameType) -> FrameType:
    """Return the frame that called this one, or the frame itself if it is the outermost."""
    return frame.f_back or frame


def grad_mode_method(frame: FrameType) -> str | None:
    """Return which method of PyTorch's gradient-mode context managers the frame runs, or None."""
    name, file = frame.f_code.co_name, frame.f_code.co_filename
    return name if file == _torch.GRAD_MODE_FILE and name != "__init__" else None


def library_cause() -> str | None:
    """Return the kind of cut if PyTorch itself, not the program, disabled gradients; else None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code):
        cause = _cause_in(frame.f_code.co_filename)
        if cause is not None:
            return cause
        frame = frame.f_back
    return None


@functools.cache
def _cause_in(file: str) -> str | None:
    return next((cause for name, cause in _LIBRARIES.items() if file.startswith(name)), None)


_TORCH = Path(torch.__file__).parent
_LIBRARIES = {
    str(Path(_TORCH, "utils", "checkpoint")): "checkpoint",
    str(Path(_TORCH, "distributions")): "operation",
    str(Path(_TORCH, "autograd", "gradcheck")): "numerical",
}
