"""The call sites of operations: whether in a custom function, and where gradients are off."""

import functools
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import FrameType

import torch

from gradtrace import _torch
from gradtrace.autograd import source
from gradtrace.autograd.frames import STAND_IN, Location, is_users, user_frame
from gradtrace.watching.cuts import Cut

NEAR, FAR = 4, 200  # frames from an operation to the custom function that it may be in
_MAX_REGION = 40  # frames from an operation to the region without gradients that it may be in
_MAX_SITES = 5_000
_CALL = (lambda func, args, kwargs: func(*args, **kwargs)).__code__


class Site:
    """A call site: one instruction, and the facts about it that are the same for every call."""

    def __init__(self, frame: FrameType):
        self.code = frame.f_code
        file = self.code.co_filename
        self.location = Location.of(frame) if is_users(self.code) else None
        self.cut = Cut("operation", self.location)  # of results without a derivative
        self.in_optimizer = file.startswith(_torch.OPTIMIZERS)
        self.in_grad_scaler = file == _torch.GRAD_SCALER_FILE
        self.in_clip_grad = file == _torch.CLIP_GRAD_FILE
        self._line = Location.of(frame)
        # The kind of a cut by a region in this code; "" if the code is another library's.
        self.cut_by_region = "region" if self.location is not None else _cause_in(file)
        self.stand_in = _CALL.replace(
            co_filename=file, co_name=STAND_IN, co_qualname=STAND_IN, co_firstlineno=frame.f_lineno
        )

    @functools.cached_property
    def region(self) -> Location | None:
        """The innermost region without gradients around the site, as the source shows."""
        return source.region_at(self._line, source.SWITCHED_OFF) if self.cut_by_region else None


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

    def gradients_off_at(self, frame: FrameType) -> tuple[str, Location | None]:
        """Return the kind of a cut where gradients are off, and the user's line of the region."""
        for running in islice(outward(frame), _MAX_REGION):
            site = self.at(running)
            if site.region is not None:
                caller = None if site.location is not None else user_frame(running)
                region = site.region if caller is None else Location.of(caller)
                return site.cut_by_region, region
        return "region", None


def outward(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frame, its caller, and so on."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def caller_of_apply(frame: FrameType | None, frames: int) -> FrameType | None:
    """Return the caller of the custom function that runs at most ``frames`` outward, or None."""
    callers = map(_torch.caller_of_forward, islice(outward(frame), frames))
    return next((caller for caller in callers if caller is not None), None)


def in_forward(frame: FrameType | None, or_hook: bool = False) -> bool:
    """Whether this frame, or one of the next three outward, runs a ``forward`` of the user's.

    With ``or_hook``, a hook that a module's call runs counts, too.
    """
    codes = [near.f_code for near in islice(outward(frame), NEAR)]
    in_hook = or_hook and _torch.MODULE_CALL in codes
    return in_hook or any(code.co_name == "forward" and is_users(code) for code in codes)


def caller_of(frame: FrameType) -> FrameType:
    """Return the frame that called this one, or the frame itself if it is the outermost."""
    return frame.f_back or frame


@functools.cache
def _cause_in(file: str) -> str:
    """Return the kind of cut that a checkpoint, distribution or gradcheck makes, or ""."""
    return next((cause for name, cause in _LIBRARIES.items() if file.startswith(name)), "")


_TORCH = Path(torch.__file__).parent
_LIBRARIES = {
    str(Path(_TORCH, "utils", "checkpoint")): "checkpoint",
    str(Path(_TORCH, "distributions")): "operation",
    str(Path(_TORCH, "autograd", "gradcheck")): "numerical",
}
