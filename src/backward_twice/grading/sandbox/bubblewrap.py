"""Sandboxes of bubblewrap: what a submission may see is its argument list, :mod:`.policy`.

bubblewrap is started around a ``cat``, which does nothing but last, and a fork of the warm process
enters the namespaces.  The first process of the pid namespace is held by a pidfd: when that is
killed the kernel kills all that is inside, and tells when it has.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from backward_twice.grading.sandbox import syscalls
from backward_twice.grading.sandbox.forks import Fork, WarmProcess
from backward_twice.grading.sandbox.interface import Limits, Run, Sandbox, SandboxError
from backward_twice.grading.sandbox.policy import policy
from backward_twice.grading.sandbox.process import (
    UNENDING,
    all_sleep,
    memory_of,
    processor_of,
    sockets_of,
    unnamed_file,
)
from backward_twice.grading.sandbox.user import User

_HOLDER = ("/usr/bin/cat",)  # it holds the namespaces open, for as long as its input is
_OWN = 64 << 20  # bytes of address space that each of bubblewrap's own processes may have
_OWN_PROCESSES = 3  # in the namespaces before the submission has started any
_GONE = 20.0  # s, for the kernel to end all that is in a sandbox


class _Namespaces:
    """A bubblewrap; the processes in it are seen from outside, and end together."""

    def __init__(self, bubblewrap: list[str], limits: Limits) -> None:
        """Start it."""
        program = syscalls.program()
        info_r, info_w = os.pipe()
        passed, filtering = [info_w], []
        if program:
            passed.append(unnamed_file(program))
            filtering = ["--seccomp", str(passed[-1])]
        self._first: int | None = None
        try:
            self.holder = subprocess.Popen(
                [*bubblewrap, "--info-fd", str(info_w), *filtering, *_HOLDER],
                pass_fds=passed,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env={},
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            os.close(info_r)
            raise
        finally:
            for fd in passed:
                os.close(fd)
        with os.fdopen(info_r, "rb") as info:
            said = info.read()
        try:
            pid = json.loads(said)["child-pid"]
            self._first = os.pidfd_open(pid)
        except (ValueError, OSError):
            self.refused()
        self._folder = Path(f"/proc/{pid}")
        self._proc = self._folder / "root/proc"
        self._limits = limits

    @property
    def first(self) -> int:
        """A pidfd of the first process in them."""
        return self._first

    def refused(self) -> NoReturn:
        """It did not come into being."""
        text = self.holder.stderr.read(1000).decode(errors="replace").strip()
        self.end()
        raise SandboxError(f"bubblewrap refused: {text}")

    def limit(self) -> None:
        """Limit bubblewrap's own processes: a submission of the same user can write to them."""
        most = {
            "RLIMIT_AS": _OWN,
            "RLIMIT_FSIZE": self._limits.files,
            "RLIMIT_NPROC": self._limits.processes,
            "RLIMIT_NOFILE": 64,
            "RLIMIT_MSGQUEUE": 0,
            "RLIMIT_CORE": 0,
        }
        inner = (self._folder / "task" / self._folder.name / "children").read_text()
        for pid in (self._folder.name, *inner.split()):
            for which, value in most.items():
                resource.prlimit(int(pid), getattr(resource, which), (value, value))

    def _processes(self) -> list[Path]:
        try:
            with os.scandir(self._proc) as inside:
                return [Path(entry.path) for entry in inside if entry.name.isdigit()]
        except OSError:
            return []

    def processor(self) -> float:
        """Seconds of processor time of all processes in them."""
        return processor_of(self._processes())

    def is_idle(self) -> bool:
        """Whether all threads in them sleep."""
        return all_sleep(self._processes())

    def memory(self) -> int:
        """Bytes of all processes in them, what they share counted once."""
        return memory_of(self._processes(), _OWN_PROCESSES) + sockets_of(self._folder)

    def end(self) -> None:
        """End all that is in them, and wait until the kernel has.

        Raises:
            SandboxError: a process does not end.
        """
        left = False
        if self._first is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
            gone = select.poll()
            gone.register(self._first, select.POLLIN)
            left = not gone.poll(1000 * _GONE)
            os.close(self._first)
            self._first = None
        for pipe in (self.holder.stdin, self.holder.stdout, self.holder.stderr):
            if pipe is not None:
                pipe.close()
        self.holder.kill()
        self.holder.wait()
        if left:
            raise SandboxError(UNENDING)


class _BubblewrapRun(Fork):
    def __init__(
        self, warm: WarmProcess, bubblewrap: list[str], limits: Limits, exercises: Sequence[str]
    ) -> None:
        self._inside = _Namespaces(bubblewrap, limits)
        try:
            with contextlib.suppress(BrokenPipeError):
                self._inside.holder.stdin.write(b"\n")
            if self._inside.holder.stdout.read(1) != b"\n":  # every mount is in place now
                self._inside.refused()
            self._inside.limit()
            terms = {"limits": limits.of_kernel(), "folder": "/tmp", "exercises": [*exercises]}
            user = User() if os.geteuid() == 0 else None
            super().__init__(warm, terms, self._inside.first, user)
        except BaseException:
            self._inside.end()
            raise

    def processor(self) -> float:
        return self._inside.processor()

    def is_idle(self) -> bool:
        return self._inside.is_idle()

    def memory(self) -> int:
        return self._inside.memory()

    def close(self) -> None:
        try:
            self.end_fork()
        finally:
            self._inside.end()


class Bubblewrap(Sandbox):
    kind = "bubblewrap"

    def __init__(self, hide: tuple[Path, ...]) -> None:
        self._bubblewrap = [_program(), *policy(hide)]
        self._warm = WarmProcess()

    def start(self, limits: Limits, exercises: Sequence[str] = ()) -> Run:
        return _BubblewrapRun(self._warm, self._bubblewrap, limits, exercises)

    def close(self) -> None:
        self._warm.close()


def _program() -> str:
    if (program := shutil.which("bwrap")) is None:
        raise SandboxError("bubblewrap (the program bwrap) is not installed")
    return program
