"""A user of its own for a submission, where bubblewrap is not.

This is for root inside a container that a platform locked down, such as Gradescope's: a fork of the
warm process becomes a user that is nobody else's, and all of that user's processes are killed at
its end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from backward_twice.grading.sandbox.forks import Fork, WarmProcess
from backward_twice.grading.sandbox.interface import Limits, Run, Sandbox, SandboxError
from backward_twice.grading.sandbox.process import all_sleep, memory_of, processor_of, sockets_of
from backward_twice.grading.sandbox.user import User


class _AccountRun(Fork):
    def __init__(self, warm: WarmProcess, limits: Limits, exercises: Sequence[str]) -> None:
        self._others = sockets_of(Path("/proc/self"))
        self._folder = tempfile.mkdtemp(prefix="submission-")  # closed to every other user
        try:
            user = User()
            self._uid = user.uid
            os.chown(self._folder, user.uid, user.uid)
            terms = {"limits": limits.of_kernel(), "folder": self._folder}
            terms["exercises"] = [*exercises]
            super().__init__(warm, terms, None, user)
        except BaseException:
            shutil.rmtree(self._folder)
            raise

    def _processes(self) -> list[Path]:
        found = []
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if path.name.isdigit() and f"\nUid:\t{self._uid}\t" in (path / "status").read_text(
                    errors="replace"
                ):
                    found.append(path)
        return found

    def processor(self) -> float:
        return processor_of(self._processes())

    def is_idle(self) -> bool:
        return all_sleep(self._processes())

    def memory(self) -> int:
        sockets = sockets_of(Path("/proc/self")) - self._others
        return memory_of(self._processes()) + max(0, sockets)

    def close(self) -> None:
        try:
            self.end_fork()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


class Account(Sandbox):
    kind = "account"

    def __init__(self, hide: tuple[Path, ...]) -> None:
        if os.geteuid() != 0:
            raise SandboxError("a submission gets an account of its own only from root")
        for path in hide:
            if _open_to_others(path):
                raise SandboxError(f"every user can read {path}; give it mode 700")
        for path in map(Path, {sys.prefix, sys.base_prefix}):
            if not _open_to_others(path):
                raise SandboxError(f"another user cannot read Python's own folder, {path}")
        self._warm = WarmProcess()

    def start(self, limits: Limits, exercises: Sequence[str] = ()) -> Run:
        return _AccountRun(self._warm, limits, exercises)

    def close(self) -> None:
        self._warm.close()


def _open_to_others(path: Path) -> bool:
    """Whether a user who is nobody can enter the folder ``path`` or read it."""
    path = path.resolve()
    return (
        path.exists()
        and bool(path.stat().st_mode & 0o5)
        and all(folder.stat().st_mode & 0o1 for folder in path.parents)
    )
