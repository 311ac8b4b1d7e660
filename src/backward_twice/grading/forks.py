"""The warm process (:mod:`.warm`) and its forks, as they are seen from outside.

A fork is given the job as a file that is in no folder and reports through a pipe.  Its keeper
reports through a socket how it ended, and ends it when this end of that socket closes, by whatever
death.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import site
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import backward_twice
from backward_twice.grading.place import Run, SandboxError

OURS = Path(backward_twice.__file__).parent
"""This package's folder."""

START = 120.0
"""Seconds that Python and its imports may take, from a cold disk."""

UNENDING = "a process of the submission's does not end"

_ENTER = 30.0  # s, from the fork to the first step
_GONE = 20.0  # s, for the kernel to end a process


def environment() -> dict[str, str]:
    """Of the environment only what finds the same packages."""
    ours = {str(OURS.parent), str(Path(importlib.util.find_spec("gradtrace").origin).parents[1])}
    one = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX")
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": ":".join(sorted(path for path in ours if not path.endswith("-packages"))),
        "PYTHONUSERBASE": site.getuserbase(),
        "LANG": "C.UTF-8",
        "HOME": "/tmp",
        "USER": "student",
        "MPLBACKEND": "agg",
        **dict.fromkeys(one, "1"),
    }


class WarmProcess:
    """The warm process, seen from outside: started when needed, and again when it is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._control: socket.socket | None = None
        self.uid: int | None = None

    def fork(self, terms: dict[str, Any], fds: list[int]) -> None:
        """Send file descriptors and the terms under which to run what they hold."""
        message = [json.dumps(terms).encode()]
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._stop()
                self._start()
            socket.send_fds(self._control, message, fds)

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "backward_twice.grading.warm"),
                    str(theirs.fileno()),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment(),
                cwd="/",
                start_new_session=True,
            )
        self._control = ours
        ours.settimeout(START)
        try:
            said = ours.recv(4096)
        except TimeoutError:
            said = b""
        if not said:
            self._stop()
            raise SandboxError("the warm process did not start; what it said stands above")
        self.uid = json.loads(said)["uid"]

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        with self._lock:
            self._stop()


class Fork(Run):
    """A fork of the warm process, and its keeper."""

    patience = _ENTER

    def __init__(
        self, warm: WarmProcess, job: bytes, terms: dict[str, Any], sandbox: int | None
    ) -> None:
        given = held(job)
        self.events, events = os.pipe()
        self._keeper, keeper = socket.socketpair()
        self.status = self._keeper.fileno()
        os.set_blocking(self.events, False)
        try:
            more = [] if sandbox is None else [sandbox]
            warm.fork(terms, [given, events, keeper.fileno(), *more])
        except BaseException:
            self._keeper.close()
            os.close(self.events)
            raise
        finally:
            os.close(given)
            os.close(events)
            keeper.close()
        self._ended: dict[str, Any] | None = None

    def _await_end(self) -> dict[str, Any]:
        """What the keeper reports, once and for all, when the submission has ended."""
        if self._ended is None:
            self._keeper.settimeout(_GONE)
            try:
                self._ended = json.loads(self._keeper.recv(4096) or '{"failed": "it was killed"}')
            except TimeoutError:
                self._ended = {"failed": "it does not end"}
        return self._ended

    def how_ended(self) -> str:
        # Its events may have ended though it goes on.
        self._keeper.shutdown(socket.SHUT_WR)
        ended = self._await_end()
        if "failed" in ended:
            return f"the keeper failed: {ended['failed']}"
        return in_words(ended["ended"])

    def end_fork(self) -> None:
        """End the submission and its keeper, and let go of both."""
        with contextlib.suppress(OSError):
            self._keeper.shutdown(socket.SHUT_WR)
        ended = self._await_end()
        self._keeper.close()
        os.close(self.events)
        if ended == {"failed": "it does not end"}:
            raise SandboxError(UNENDING)


def in_words(code: int) -> str:
    """How a process ended, by its exit code, or minus the signal that ended it."""
    if code >= 0:
        return f"the process ended in the middle of the step, with exit code {code}"
    name = signal.Signals(-code).name if -code in iter(signal.Signals) else f"signal {-code}"
    return f"the process was ended by {name}"


def held(content: bytes) -> int:
    """A file that is in no folder; its descriptor, at its beginning."""
    fd = os.memfd_create("given")
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def memory_of(processes: list[Path], own: int = 1) -> int:
    """Bytes of several processes, what they share counted once.

    It is 0 while there are no more than ``own``: each has its limit, and this takes time.
    """
    if len(processes) <= own:
        return 0
    total = 0
    for process in processes:
        with contextlib.suppress(OSError, ValueError, IndexError):
            try:
                rollup = (process / "smaps_rollup").read_text()
                total += 1024 * int(rollup.partition("\nPss:")[2].split()[0])
            except PermissionError:  # it made itself unreadable
                total += os.sysconf("SC_PAGE_SIZE") * int(
                    (process / "statm").read_text().split()[1]
                )
    return total


COLD = ("-P", "-m", "backward_twice.grading.runner")
"""What to tell a Python that runs one submission."""


def cold_end(process: subprocess.Popen) -> str:
    """How the process, or its interest in being heard, ended, in words."""
    try:
        code = process.wait(0.2)
    except subprocess.TimeoutExpired:
        return "the process closed what it had to report to"
    return in_words(128 - code if code > 128 else code)  # a signal, as shells tell it
