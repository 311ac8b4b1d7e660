"""The kinds of sandbox: make one, or share one for as long as a process lives.

A sandbox starts each submission as a fork of one warm process, in an enclosure of its own.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from backward_twice.grading.sandbox.account import Account, check_accounts
from backward_twice.grading.sandbox.bubblewrap import Namespaces, bubblewrap_command
from backward_twice.grading.sandbox.forks import Enclosure, Fork, WarmProcess
from backward_twice.grading.sandbox.limits import SubmissionLimits

Kind = Literal["bubblewrap", "account"]


class Sandbox:
    """Starts submissions; a context manager, which ends the warm process."""

    def __init__(self, kind: Kind, hide: Iterable[str | os.PathLike[str]] = ()) -> None:
        """Start nothing yet.

        Args:
            kind: ``bubblewrap``; or ``account``, for root in a container that somebody else locked
                down: another user, but the same files, and only the filter against the network.
            hide: folders that a submission must not see; ``account`` refuses those that all can
                read.

        Raises:
            SandboxError: this machine lacks what it needs.
        """
        folders = tuple(map(Path, hide))
        self._command = bubblewrap_command(folders) if kind == "bubblewrap" else None
        if kind == "account":
            check_accounts(folders)
        self._warm = WarmProcess()

    def enclosure(self, limits: SubmissionLimits) -> Enclosure:
        """Make the enclosure of one submission.

        Raises:
            SandboxError: none could be made.
        """
        return Account() if self._command is None else Namespaces(self._command, limits)

    def start(self, limits: SubmissionLimits, exercises: Sequence[str] = ()) -> Fork:
        """Start the process of a submission in an enclosure of its own.

        Args:
            exercises: whose questions it will be asked; no others are loaded.

        Raises:
            SandboxError: it could not be started.
        """
        return Fork(self._warm, self.enclosure(limits), limits, exercises)

    def close(self) -> None:
        """End the warm process."""
        self._warm.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_sharing = threading.Lock()  # a cache alone lets two threads at once each make one


@functools.cache
def _shared(process: int, kind: Kind, hide: tuple[str, ...]) -> Sandbox:
    sandbox = Sandbox(kind, hide)
    atexit.register(sandbox.close)
    return sandbox


def shared(kind: Kind, hide: Iterable[str] = ()) -> Sandbox:
    """Return this process's one sandbox of this kind, kept warm until the process ends."""
    with _sharing:
        return _shared(os.getpid(), kind, tuple(hide))
