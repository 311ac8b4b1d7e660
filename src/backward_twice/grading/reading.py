"""Read what students hand in, in a process of its own with limits on its time and memory.

Whatever a file does to a parser (Python's own takes time that grows with the square of some
sources), it does there.  When that process has used up the time for one submission the kernel ends
it, the submission is rejected, and the next is read by a fresh one.  What comes back is plain JSON.

It imports no torch, so it is there in a moment.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from backward_twice.grading import GradingError
from backward_twice.grading.master import Master
from backward_twice.grading.rebuild import Answers, answers
from backward_twice.grading.submissions import Handed, Rejected

SECONDS = 5.0
"""Processor time for one submission; honest ones take some hundredths."""

_BY_THE_CLOCK = 120.0  # s, whatever else the machine does
_MEMORY = 1 << 30  # bytes beyond those of the process at its start
_MOST = 16 << 20  # bytes that may come back

Json = dict[str, Any]


@dataclass(frozen=True)
class Submission:
    """What a submission is graded by, and what has to be said about it."""

    answers: Answers
    notes: tuple[str, ...]
    timestamp: datetime | None


class Reader:
    """Reads submissions in another process; a context manager, that ends it."""

    def __init__(self, masters: Mapping[str, Master]) -> None:
        self._masters = masters
        self._process: subprocess.Popen | None = None

    def read(self, assignment: str, opened: Callable[[], Handed]) -> Submission:
        """Open a submission and rebuild its answers.

        Args:
            opened: opens it; a function of a module's top level, or a ``partial`` of one.

        Raises:
            Rejected: it is none that can be graded, or reading it takes too much time or memory.
            GradingError: nothing can be read here.
        """
        if self._process is None:
            self._start()
        try:
            self._connection.send((assignment, opened))
            came = self._received()
        except BaseException:
            self.close()  # what it still has to say belongs to no later submission
            raise
        if "rejected" in came:
            raise Rejected(came["rejected"])
        sources = {name: tuple(parts) for name, parts in came["sources"].items()}
        when = came["timestamp"] and datetime.fromisoformat(came["timestamp"])
        given = Answers(sources, came["missing"], tuple(came["notes"]))
        return Submission(given, (*came["said"], *given.notes), when)

    def _received(self) -> Json:
        try:
            if self._connection.poll(_BY_THE_CLOCK):
                return json.loads(self._connection.recv_bytes(_MOST))
        except EOFError:
            if self._process.wait() != -signal.SIGPROF:
                raise Rejected("reading it ended the process that read it") from None
        raise Rejected(f"it cannot be read within {SECONDS:g} s")

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
                start_new_session=True,  # Ctrl-C is for the process that asks
            )
        self._connection = Connection(ours.detach())
        try:
            self._connection.send(self._masters)
            self._connection.recv()
        except OSError as error:
            self.close()
            raise GradingError("the process that reads submissions does not start") from error

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def main(descriptor: int) -> None:
    """Read what the process at the other end of a socket asks for, until it closes its end."""
    connection = Connection(descriptor)
    masters = connection.recv()
    _limit_memory()
    connection.send(None)
    while True:
        try:
            assignment, opened = connection.recv()
        except EOFError:
            return
        # The signal's own answer is to end the process, wherever it is.
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            came = _rebuilt(opened(), assignment, masters)
        except Rejected as why:
            came = {"rejected": str(why)}
        except MemoryError:
            came = {"rejected": f"it cannot be read within {_MEMORY >> 20} MB of memory"}
        said = json.dumps(came).encode()
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send_bytes(said)


def _rebuilt(handed: Handed, assignment: str, masters: Mapping[str, Master]) -> Json:
    given = answers(handed.cells, masters[assignment], masters)
    return {
        "sources": given.sources,
        "missing": given.missing,
        "notes": given.notes,
        "said": handed.notes,
        "timestamp": handed.timestamp and handed.timestamp.isoformat(),
    }


def _limit_memory() -> None:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except FileNotFoundError:  # no Linux
        return
    most = pages * resource.getpagesize() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    main(int(sys.argv[1]))
