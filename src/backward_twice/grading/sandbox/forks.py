"""The warm process and its forks, as the grader sees them; :mod:`.forkserver` is what it runs.

A fork receives its steps through one pipe and reports through another.  Its keeper reports through
a socket how it ended, and ends it when this end of that socket closes, by whatever death.  What
confines a fork is its :class:`Enclosure`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backward_twice.grading.sandbox.limits import SandboxError, SubmissionLimits
from backward_twice.grading.sandbox.process import (
    START_SECONDS,
    UNENDING,
    all_sleep,
    environment,
    in_words,
    memory_of,
    processor_of,
)
from backward_twice.grading.sandbox.user import User

_ENTER_SECONDS = 30.0  # from the fork to the first step
_END_SECONDS = 20.0  # for the kernel to end a process
_DOES_NOT_END = "it does not end"


class WarmProcess:
    """The grader's handle of the warm process, which starts when needed and again when it died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._control: socket.socket | None = None

    def fork(self, terms: dict[str, Any], fds: list[int]) -> None:
        """Send file descriptors and the terms under which to run what they hold."""
        message = [json.dumps(terms).encode()]
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._stop()
                self._start()
            socket.send_fds(self._control, message, fds)

    def _start(self) -> None:
        near_end, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far_end:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "backward_twice.grading.sandbox.forkserver"),
                    str(far_end.fileno()),
                ],
                pass_fds=[far_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment(),
                cwd="/",
                start_new_session=True,
            )
        self._control = near_end
        near_end.settimeout(START_SECONDS)
        greeting = b""
        with contextlib.suppress(TimeoutError):
            greeting = near_end.recv(4096)
        if not greeting:
            self._stop()
            raise SandboxError("the warm process did not start; its error stands above")

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


class Enclosure(ABC):
    """The namespaces or the user that confine one submission, seen from outside.

    Attributes:
        folder: where the submission may write, by the path that it sees.
        entrance: a pidfd of the first process of the namespaces to enter; None if there are none.
        user: the user that the submission becomes, if the grader is root.
        first_processes: how many processes there are before the submission starts any.
    """

    folder: str
    entrance: int | None = None
    user: User | None = None
    first_processes: int = 1

    @abstractmethod
    def processes(self) -> list[Path]:
        """Return the folders in ``/proc`` of all processes in it."""

    @abstractmethod
    def socket_bytes(self) -> int:
        """Return the most bytes that the sockets of its processes can hold."""

    @abstractmethod
    def close(self) -> None:
        """End every process in it, and free what it holds.

        Raises:
            SandboxError: a process does not end.
        """


class Fork:
    """A fork of the warm process that runs one submission, and its keeper.

    Attributes:
        job: the file descriptor that the submission reads from; writing never blocks.
        events: the one that it writes to; reading never blocks.
        status: one that becomes readable when the submission has ended.
        patience: seconds that it may take to its first step.
    """

    patience = _ENTER_SECONDS

    def __init__(
        self,
        warm: WarmProcess,
        enclosure: Enclosure,
        limits: SubmissionLimits,
        exercises: Sequence[str],
    ) -> None:
        """Start it; the enclosure is closed with it, or if it cannot start.

        Args:
            exercises: whose questions it will be asked; no others are loaded.

        Raises:
            SandboxError: the warm process does not start.
        """
        self._enclosure = enclosure
        self._end: dict[str, Any] | None = None
        job, self.job = os.pipe()
        self.events, events = os.pipe()
        self._keeper, keeper = socket.socketpair()
        self.status = self._keeper.fileno()
        os.set_blocking(self.job, False)
        os.set_blocking(self.events, False)
        terms = {
            "limits": limits.of_kernel,
            "folder": enclosure.folder,
            "exercises": [*exercises],
            "user": enclosure.user and enclosure.user.uid,
        }
        entrance = [] if enclosure.entrance is None else [enclosure.entrance]
        try:
            warm.fork(terms, [job, events, keeper.fileno(), *entrance])
        except BaseException:
            self._free()
            raise
        finally:
            os.close(job)
            os.close(events)
            keeper.close()

    def _await_end(self) -> dict[str, Any]:
        """Return the keeper's report, which it sends once, when the submission has ended."""
        if self._end is None:
            self._keeper.settimeout(_END_SECONDS)
            try:
                self._end = json.loads(self._keeper.recv(4096) or '{"failed": "it was killed"}')
            except TimeoutError:
                self._end = {"failed": _DOES_NOT_END}
        return self._end

    def how_ended(self) -> str:
        """Describe how the submission ended; it has, or its events have."""
        # Its events may have ended though it goes on.
        self._keeper.shutdown(socket.SHUT_WR)
        end = self._await_end()
        if "failed" in end:
            return f"the keeper failed: {end['failed']}"
        return in_words(end["ended"])

    def processor(self) -> float:
        """Return the seconds of processor time that its processes took together."""
        return processor_of(self._enclosure.processes())

    def is_idle(self) -> bool:
        """Whether all its threads sleep."""
        return all_sleep(self._enclosure.processes())

    def memory(self) -> int:
        """Return the bytes that its processes use together, what they share counted once."""
        processes = self._enclosure.processes()
        used = memory_of(processes, self._enclosure.first_processes)
        return used + self._enclosure.socket_bytes()

    def close(self) -> None:
        """End every process of the submission and of its enclosure.

        Raises:
            SandboxError: one does not end.
        """
        with contextlib.suppress(OSError):
            self._keeper.shutdown(socket.SHUT_WR)
        try:
            end = self._await_end()
        finally:
            self._free()
        if end == {"failed": _DOES_NOT_END}:
            raise SandboxError(UNENDING)

    def _free(self) -> None:
        self._keeper.close()
        os.close(self.job)
        os.close(self.events)
        self._enclosure.close()
        if self._enclosure.user is not None:
            self._enclosure.user.close()
