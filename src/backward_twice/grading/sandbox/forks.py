"""The warm process and its forks, as the grader sees them; :mod:`.forkserver` is what it runs.

The :class:`.Namespaces` of a fork end with the process that made them, for whatever reason.
"""

import atexit
import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from backward_twice.grading.sandbox import process
from backward_twice.grading.sandbox.bubblewrap import Namespaces, bubblewrap_command
from backward_twice.grading.sandbox.limits import SandboxError, SubmissionLimits

_END_SECONDS = 20.0  # for the kernel to end a process


class Sandbox(contextlib.AbstractContextManager):
    """Starts each submission as a fork of one warm process, which ends with the context."""

    def __init__(self, hide: Iterable[str | os.PathLike[str]] = ()) -> None:
        """Set the folders to ``hide`` from submissions."""
        self._command = bubblewrap_command(tuple(map(Path, hide)))
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._control: socket.socket | None = None

    def namespaces(self, limits: SubmissionLimits) -> Namespaces:
        """Make the namespaces of one submission."""
        return Namespaces(self._command, limits)

    def start(self, limits: SubmissionLimits, exercises: Sequence[str] = ()) -> "Fork":
        """Start a submission in its own namespaces, with the questions of these exercises."""
        return Fork(self, self.namespaces(limits), limits, exercises)

    def fork(self, terms: dict[str, Any], fds: list[int]) -> None:
        """Send the warm process the file descriptors and limits of a submission to run."""
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
                env=process.environment(),
                cwd="/",
                start_new_session=True,
            )
        self._control = near_end
        near_end.settimeout(process.START_SECONDS)
        greeting = b""
        with contextlib.suppress(TimeoutError):
            greeting = near_end.recv(4096)
        if not greeting:
            self._stop()
            raise SandboxError("the warm process did not start; its error is printed above")

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End the warm process."""
        with self._lock:
            self._stop()

    def __exit__(self, *_: object) -> None:
        self.close()


@functools.cache
def shared(hide: tuple[str, ...]) -> Sandbox:
    """Return the cached sandbox that hides these folders; it is closed when this process ends."""
    sandbox = Sandbox(hide)
    atexit.register(sandbox.close)
    return sandbox


class Fork:
    """A fork of the warm process that runs one submission, and its keeper."""

    patience = 30.0  # s, within which it must be ready for its first step

    def __init__(
        self,
        warm: Sandbox,
        namespaces: Namespaces,
        limits: SubmissionLimits,
        exercises: Sequence[str],
    ) -> None:
        """Start the fork; the namespaces are closed with it, or if it cannot start."""
        self._namespaces = namespaces
        job, self.job = os.pipe()  # the submission reads from it
        self.events, events = os.pipe()  # the submission writes to it
        self._keeper, keeper = socket.socketpair()
        self.status = self._keeper.fileno()  # readable when the submission has ended
        os.set_blocking(self.job, False)
        os.set_blocking(self.events, False)
        terms = {"limits": limits.of_kernel, "exercises": [*exercises], "user": namespaces.user}
        try:
            warm.fork(terms, [job, events, keeper.fileno(), namespaces.entrance])
        except BaseException:
            self.close()
            raise
        finally:
            os.close(job)
            os.close(events)
            keeper.close()

    @functools.cached_property
    def _end(self) -> dict[str, Any]:
        """The keeper's report on the submission's end; a failure if none comes in time."""
        self._keeper.settimeout(_END_SECONDS)
        try:
            return json.loads(self._keeper.recv(4096) or '{"failed": "it was killed"}')
        except TimeoutError:
            return {"failed": "it does not end"}

    def how_ended(self) -> str:
        """End the submission if it is still running, and describe how it ended."""
        self._namespaces.kill()  # it may go on after its events have ended
        if "failed" in self._end:
            return f"the keeper failed: {self._end['failed']}"
        return process.in_words(self._end["ended"])

    def processor(self) -> float:
        """Return the total processor time of the submission's processes in seconds."""
        return process.processor_of(self._namespaces.processes())

    def is_idle(self) -> bool:
        """Whether all threads of the submission's processes sleep."""
        return process.all_sleep(self._namespaces.processes())

    def memory(self) -> int:
        """Return the bytes of the processes, if there are several, plus a bound for the sockets."""
        used = process.memory_of(self._namespaces.processes(), Namespaces.first_processes)
        return used + process.sockets_of(self._namespaces.folder)

    def close(self) -> None:
        """End every process of the submission; raise SandboxError if one does not end."""
        self._keeper.close()
        os.close(self.job)
        os.close(self.events)
        self._namespaces.close()
