"""A control group for each submission, where the grader was handed one to divide.

The kernel then counts the memory of all processes of a submission together, with what it keeps for
them itself, at every page and not 20 times a second.  A group is divided only if whoever made it
says so: ``systemd-run --user --scope -p Delegate=yes make grade …`` does.  The processes in it move
into a group of their own first, because the kernel allows no processes beside divided memory
(``cgroup-v2.rst`` in the kernel's documentation; the mark on the folder is systemd's, ``CGROUP
DELEGATION`` in its documentation).
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import time
from pathlib import Path

from backward_twice.grading.sandbox.interface import Limits

_OWN = "grader"
_TRIES = 5
_GONE = 2.0  # s, for the kernel to let go of the processes that were in it


class ControlGroup:
    """The group of one submission, below one that may be divided."""

    def __init__(self, above: Path, limits: Limits) -> None:
        """Make it.

        Raises:
            OSError: the kernel refused.
        """
        self._path = above / f"submission-{secrets.token_hex(8)}"
        self._path.mkdir()
        # Files of the submission lie in memory, and have a limit of their own.
        (self._path / "memory.max").write_text(str(limits.memory + limits.files))
        with contextlib.suppress(FileNotFoundError):  # where the kernel has no swap
            (self._path / "memory.swap.max").write_text("0")

    @property
    def processes(self) -> str:
        """The file to which a process writes ``0`` to become a member."""
        return str(self._path / "cgroup.procs")

    def exceeded(self) -> bool:
        """Whether the kernel has ended a process of it for want of memory."""
        lines = (self._path / "memory.events").read_text().splitlines()
        return int(dict(line.split() for line in lines)["oom_kill"]) > 0

    def close(self) -> None:
        """Remove it, once its processes are gone."""
        give_up = time.monotonic() + _GONE
        while time.monotonic() < give_up:
            with contextlib.suppress(OSError):
                return self._path.rmdir()
            time.sleep(0.01)


def made(limits: Limits) -> ControlGroup | None:
    """A group for a submission; None where there can be none."""
    above = divided()
    try:
        return above and ControlGroup(above, limits)
    except OSError:
        return None


@functools.cache
def divided() -> Path | None:
    """The group of this process, ready to be divided; None where it was not handed over for that.

    This process, and what else is in the group, is in a group below it then.
    """
    try:
        here = _here()
        if here is None or os.getxattr(here, "user.delegate") != b"1":
            return None
        if "memory" not in (here / "cgroup.controllers").read_text().split():
            return None
        (here / _OWN).mkdir(exist_ok=True)
        for last in reversed(range(_TRIES)):
            try:
                _divide(here)
                return here
            except OSError:  # a process has started meanwhile
                if not last:
                    raise
    except OSError:
        pass
    return None


def _here() -> Path | None:
    """The folder of this process's group; of the one above it, if it has moved already."""
    entries = Path("/proc/self/cgroup").read_text().splitlines()
    mounts = (line.split(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines())
    points = [first.split()[4] for first, kind in mounts if kind.startswith("cgroup2 ")]
    names = [entry.removeprefix("0::/") for entry in entries if entry.startswith("0::/")]
    if not points or not names:
        return None
    here = Path(points[0], names[0])
    return here.parent if here.name == _OWN else here


def _divide(here: Path) -> None:
    for pid in (here / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            (here / _OWN / "cgroup.procs").write_text(pid)
    (here / "cgroup.subtree_control").write_text("+memory")
