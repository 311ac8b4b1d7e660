"""Sandboxes of bubblewrap: what a submission may see is its argument list, :mod:`.policy`.

The warm kind starts bubblewrap around a ``cat``, which does nothing but last, and a fork of the
warm process enters the namespaces.  The cold kind starts Python in it.  Either way the first
process of the pid namespace is held by a pidfd: when that is killed the kernel kills all that is
inside, and tells when it has.
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
import sys
from pathlib import Path
from typing import NoReturn

from backward_twice.grading.sandbox import control_group, syscalls
from backward_twice.grading.sandbox.forks import Fork, WarmProcess
from backward_twice.grading.sandbox.interface import Limits, Run, Sandbox, SandboxError
from backward_twice.grading.sandbox.policy import policy
from backward_twice.grading.sandbox.process import (
    COLD,
    START,
    UNENDING,
    cold_end,
    environment,
    memory_of,
    processor_of,
    sockets_of,
    unnamed_file,
)
from backward_twice.grading.sandbox.user import User

_OWN = 64 << 20  # bytes of address space that each of bubblewrap's own processes may have
_GONE = 20.0  # s, for the kernel to end all that is in a sandbox


class _Namespaces:
    """A bubblewrap with a command in it; its processes are seen from outside, and end together."""

    def __init__(
        self, bubblewrap: list[str], command: list[str], limits: Limits, own: int, **io: int
    ) -> None:
        """Start it.

        Args:
            own: how many processes are in it before the submission has started any.
            io: standard input and output of the command, as ``subprocess.Popen`` takes them.
        """
        program = syscalls.program()
        info_r, info_w = os.pipe()
        passed, filtering = [info_w], []
        if program:
            passed.append(unnamed_file(program))
            filtering = ["--seccomp", str(passed[-1])]
        self._first: int | None = None
        try:
            self.holder = subprocess.Popen(
                [*bubblewrap, "--info-fd", str(info_w), *filtering, *command],
                pass_fds=passed,
                stderr=subprocess.PIPE,
                bufsize=0,
                env={},
                cwd="/",
                start_new_session=True,
                **io,
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
        self._limits, self._own = limits, own

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

    def memory(self) -> int:
        """Bytes of all processes in them, what they share counted once."""
        return memory_of(self._processes(), self._own) + sockets_of(self._folder)

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


class _WarmRun(Fork):
    def __init__(self, warm: WarmProcess, bubblewrap: list[str], limits: Limits) -> None:
        # cat holds the namespaces open, for as long as its input is
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._limits, self._group = limits, control_group.made(limits)
        try:
            self._inside = _Namespaces(bubblewrap, ["/usr/bin/cat"], limits, 3, **pipes)
        except BaseException:
            self._remove_group()
            raise
        try:
            with contextlib.suppress(BrokenPipeError):
                self._inside.holder.stdin.write(b"\n")
            if self._inside.holder.stdout.read(1) != b"\n":  # every mount is in place now
                self._inside.refused()
            self._inside.limit()
            terms = {"limits": limits.of_kernel(), "folder": "/tmp"}
            if self._group:
                terms["group"] = self._group.processes
            user = User() if os.geteuid() == 0 else None
            super().__init__(warm, terms, self._inside.first, user)
        except BaseException:
            self._inside.end()
            self._remove_group()
            raise

    def _remove_group(self) -> None:
        if self._group:
            self._group.close()

    def processor(self) -> float:
        return self._inside.processor()

    def memory(self) -> int:
        if self._group:
            return self._limits.memory + 1 if self._group.exceeded() else 0
        return self._inside.memory()

    def close(self) -> None:
        try:
            self.end_fork()
        finally:
            self._inside.end()
            self._remove_group()


class Bubblewrap(Sandbox):
    kind = "bubblewrap"

    def __init__(self, hide: tuple[Path, ...]) -> None:
        self._bubblewrap = [_program(), *policy(hide)]
        self._warm = WarmProcess()

    def start(self, limits: Limits) -> Run:
        return _WarmRun(self._warm, self._bubblewrap, limits)

    def close(self) -> None:
        self._warm.close()


def _program() -> str:
    if (program := shutil.which("bwrap")) is None:
        raise SandboxError("bubblewrap (the program bwrap) is not installed")
    return program


class _ColdRun(Run):
    status = None
    patience = START

    def __init__(self, bubblewrap: list[str], limits: Limits) -> None:
        inside = {"BACKWARD_TWICE_LIMITS": json.dumps(limits.of_kernel())}
        variables = [("--setenv", *pair) for pair in (environment() | inside).items()]
        self._inside = _Namespaces(
            [*bubblewrap, *(argument for variable in variables for argument in variable)],
            [sys.executable, *COLD],
            limits,
            2,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.job = self._inside.holder.stdin.fileno()
        self.events = self._inside.holder.stdout.fileno()
        os.set_blocking(self.job, False)
        os.set_blocking(self.events, False)

    def how_ended(self) -> str:
        return cold_end(self._inside.holder)

    def processor(self) -> float:
        return self._inside.processor()

    def memory(self) -> int:
        return self._inside.memory()

    def close(self) -> None:
        self._inside.end()


class ColdBubblewrap(Sandbox):
    kind = "cold"

    def __init__(self, hide: tuple[Path, ...]) -> None:
        if os.geteuid() == 0:
            raise SandboxError(
                "of root's processes the limit on processes would not hold: grade as another user"
            )
        self._program, self._hide = _program(), hide

    def start(self, limits: Limits) -> Run:
        bubblewrap = [self._program, *policy(self._hide, files=limits.files)]
        return _ColdRun(bubblewrap, limits)
