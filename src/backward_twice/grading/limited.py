"""Call functions in a helper process, with or without limits on time and memory.

A file may make a parser take any amount of time and memory (Python's own takes quadratic time for
some sources, and an archive may unpack to more than fits).  When the process has used up the time
for one call, the kernel ends it; the next call starts a new one.  The results are plain JSON.  The
process imports only the modules that the functions need; without torch it starts quickly.
"""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from backward_twice.grading import GradingError, Rejected

SECONDS = 5.0
"""Seconds of processor time for one call; an ordinary submission takes some hundredths."""

_BY_THE_CLOCK = 120.0  # s, whatever else the machine does
_MEMORY = 1 << 30  # bytes beyond those of the process at its start
_MOST = 64 << 20  # bytes that may come back

_ERRORS = {error.__name__: error for error in (Rejected, GradingError, OSError)}

Json = Any


class Limited(AbstractContextManager):
    """A helper process that calls functions on request; leaving the context ends it."""

    def __init__(self, seconds: float | None = SECONDS) -> None:
        """Set the seconds of processor time for each call; None lifts limits on time and memory."""
        self._seconds = seconds
        self._process: subprocess.Popen | None = None

    def call(self, function: Callable[..., Json]) -> Json:
        """Call ``function()`` in the helper process, and return its result.

        The other process must be able to import the function, or that of a ``partial``.

        Raises:
            Rejected: it took too much time or memory, ended the process, or raised another error.
            OSError, GradingError: raised by the function; the second also without a process.
        """
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._start()
        try:
            self._connection.send(function)
            reply = self._received()
        except BaseException:
            self.close()  # a late reply must not answer a later call
            raise
        if "raised" in reply:
            raise _ERRORS[reply["raised"]](*reply["arguments"])
        return reply["gave"]

    def _received(self) -> Json:
        try:
            if not self._connection.poll(self._seconds and _BY_THE_CLOCK):
                raise Rejected(f"it cannot be read within {_BY_THE_CLOCK:g} s by the clock")
            return json.loads(self._connection.recv_bytes(_MOST))
        except (EOFError, ConnectionResetError):
            if self._process.wait() == -signal.SIGPROF:
                raise Rejected(f"it cannot be read within {self._seconds:g} s") from None
            raise Rejected("the process for it was ended") from None
        except OSError:
            raise Rejected(f"it is more than {_MOST >> 20} MB when it is read") from None

    def _start(self) -> None:
        near_end, far_end = socket.socketpair()
        with far_end:
            arguments = str(far_end.fileno()), str(self._seconds or 0)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, *arguments],
                pass_fds=[far_end.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is for the process that asks
            )
        self._connection = Connection(near_end.detach())
        try:
            self._connection.recv()
        except (OSError, EOFError) as error:
            self.close()
            raise GradingError("a process for submissions did not start") from error

    def kill(self) -> None:
        """End the process; a call that waits for it in another thread is rejected."""
        if (process := self._process) is not None:
            process.kill()

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.wait()
            self._process = None

    def __exit__(self, *_: object) -> None:
        self.close()


def main(descriptor: int, seconds: float) -> None:
    """Call the functions that the process at the other end of a socket requests."""
    connection = Connection(descriptor)
    if seconds:
        _limit_memory()
    connection.send(None)
    while True:
        try:
            function = connection.recv()
        except EOFError:
            return
        # The signal's own answer is to end the process, wherever it is; 0 sends none.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            outcome = {"gave": function()}
        except (Rejected, GradingError) as why:
            kind = "Rejected" if isinstance(why, Rejected) else "GradingError"
            outcome = {"raised": kind, "arguments": [str(why)]}
        except OSError as why:
            place = why.filename and os.fsdecode(why.filename)
            arguments = [why.errno, why.strerror or str(why), place]
            outcome = {"raised": "OSError", "arguments": arguments}
        except MemoryError:
            reason = f"it cannot be read within {_MEMORY >> 20} MB of memory"
            outcome = {"raised": "Rejected", "arguments": [reason]}
        except Exception as why:
            outcome = {"raised": "Rejected", "arguments": [f"{type(why).__name__}: {why}"]}
        answer = json.dumps(outcome).encode()
        signal.setitimer(signal.ITIMER_PROF, 0)
        with suppress(OSError):  # the process that asked has ended
            connection.send_bytes(answer)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    address_space = pages * resource.getpagesize() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
