"""The warm process and its forks, as the grader sees them; :mod:`.forkserver` is what it runs.

A fork is told what to do through a pipe and reports through another.  Its keeper reports through a
socket how it ended, and ends it when this end of that socket closes, by whatever death.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from typing import Any

from backward_twice.grading.sandbox.interface import Run, SandboxError
from backward_twice.grading.sandbox.process import START, UNENDING, environment, in_words
from backward_twice.grading.sandbox.user import User

_ENTER = 30.0  # s, from the fork to the first step
_GONE = 20.0  # s, for the kernel to end a process


class WarmProcess:
    """The warm process, seen from outside: started when needed, and again when it is gone."""

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
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "backward_twice.grading.sandbox.forkserver"),
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
        self, warm: WarmProcess, terms: dict[str, Any], sandbox: int | None, user: User | None
    ) -> None:
        """Start it.

        Args:
            terms: ``limits``, ``folder`` and ``exercises``, as :mod:`.forkserver` takes them.
            sandbox: a pidfd of the first process of the namespaces to enter, if there are some.
            user: whom it becomes, if the grader is root; the user's number is free at its end.
        """
        self._user = user
        job, self.job = os.pipe()
        self.events, events = os.pipe()
        self._keeper, keeper = socket.socketpair()
        self.status = self._keeper.fileno()
        os.set_blocking(self.job, False)
        os.set_blocking(self.events, False)
        try:
            more = [] if sandbox is None else [sandbox]
            whom = {"user": user and user.uid}
            warm.fork(terms | whom, [job, events, keeper.fileno(), *more])
        except BaseException:
            self._let_go()
            raise
        finally:
            os.close(job)
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
        self._let_go()
        if ended == {"failed": "it does not end"}:
            raise SandboxError(UNENDING)

    def _let_go(self) -> None:
        self._keeper.close()
        os.close(self.job)
        os.close(self.events)
        if self._user is not None:
            self._user.close()
