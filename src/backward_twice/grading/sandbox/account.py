"""A user of its own for a submission, where bubblewrap is not.

This is for root inside a container that a platform locked down, such as Gradescope's: a fork of the
warm process becomes a user of its own, and the keeper kills all of that user's processes
at its end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from backward_twice.grading.sandbox.forks import Enclosure
from backward_twice.grading.sandbox.limits import SandboxError
from backward_twice.grading.sandbox.process import sockets_of
from backward_twice.grading.sandbox.user import User


class Account(Enclosure):
    """A fresh user, with a folder that is closed to all others."""

    def __init__(self) -> None:
        """Take a user.

        Raises:
            SandboxError: root has too few users here.
        """
        self._other_sockets = sockets_of(Path("/proc/self"))
        self.user = User()
        self.folder = tempfile.mkdtemp(prefix="submission-")
        os.chown(self.folder, self.user.uid, self.user.uid)

    def processes(self) -> list[Path]:
        folders = []
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                status = path / "status" if path.name.isdigit() else None
                if status and f"\nUid:\t{self.user.uid}\t" in status.read_text(errors="replace"):
                    folders.append(path)
        return folders

    def socket_bytes(self) -> int:
        return max(0, sockets_of(Path("/proc/self")) - self._other_sockets)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def check_accounts(hide: Iterable[Path]) -> None:
    """Check that submissions can have accounts here, to which these folders are closed.

    Raises:
        SandboxError: they cannot; the message says what to change.
    """
    if os.geteuid() != 0:
        raise SandboxError("a submission gets an account of its own only from root")
    for path in hide:
        if _is_open_to_others(path):
            raise SandboxError(f"every user can read {path}; give it mode 700")
    for path in map(Path, {sys.prefix, sys.base_prefix}):
        if not _is_open_to_others(path):
            raise SandboxError(f"another user cannot read Python's own folder, {path}")


def _is_open_to_others(path: Path) -> bool:
    """Whether a user without rights of its own can enter the folder ``path`` or read it."""
    path = path.resolve()
    return (
        path.exists()
        and bool(path.stat().st_mode & 0o5)
        and all(folder.stat().st_mode & 0o1 for folder in path.parents)
    )
