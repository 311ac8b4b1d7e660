"""Namespaces of bubblewrap; its arguments, :mod:`.policy`, decide what a submission may see.

bubblewrap runs a ``cat``, which only keeps the namespaces alive, and a fork of the warm process
enters them.  A pidfd refers to the first process of the pid namespace: when that process is killed,
the kernel kills all processes inside, and reports the end through the pidfd.
"""

import contextlib
import errno
import itertools
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from backward_twice.grading.sandbox import syscalls
from backward_twice.grading.sandbox.limits import SandboxError, SubmissionLimits
from backward_twice.grading.sandbox.policy import bubblewrap_arguments
from backward_twice.grading.sandbox.process import unnamed_file

_HOLDER = ("/usr/bin/cat",)  # it keeps the namespaces open, for as long as its input is
_ADDRESS_SPACE = 64 << 20  # bytes that each of bubblewrap's own processes may have
_END_SECONDS = 20.0  # for the kernel to end all that is in a sandbox
_FEWEST_USERS, _MOST_USERS = 1 << 10, 1 << 31  # larger numbers some programs make negative


def bubblewrap_command(hide: tuple[Path, ...]) -> list[str]:
    """Return the command that makes namespaces in which these folders are hidden."""
    if (program := shutil.which("bwrap")) is None:
        raise SandboxError("bubblewrap (the program bwrap) is not installed")
    return [program, *bubblewrap_arguments(hide)]


class Namespaces:
    """Fresh namespaces of bubblewrap; the processes in them end together."""

    first_processes = 3  # bubblewrap's two, and the submission's

    def __init__(self, command: Sequence[str], limits: SubmissionLimits) -> None:
        """Start bubblewrap (:func:`bubblewrap_command`), and wait until every mount is in place."""
        self.entrance: int | None = None  # a pidfd of the first process, through which to enter
        self.user: int | None = None  # what the submission becomes if the grader is root
        self._claim: socket.socket | None = None
        program = unnamed_file(syscalls.program())
        info_r, info_w = os.pipe()
        with os.fdopen(info_r, "rb") as info:
            try:
                self._holder = subprocess.Popen(
                    [*command, "--info-fd", str(info_w), "--seccomp", str(program), *_HOLDER],
                    pass_fds=[info_w, program],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    env={},
                    cwd="/",
                    start_new_session=True,
                )
            finally:
                os.close(info_w)
                os.close(program)
            report = info.read()
        try:
            pid = json.loads(report)["child-pid"]
            self.entrance = os.pidfd_open(pid)
        except (ValueError, OSError):
            self._refuse()
        self.folder = Path(f"/proc/{pid}")  # of the first process
        try:
            with contextlib.suppress(BrokenPipeError):
                self._holder.stdin.write(b"\n")
            if self._holder.stdout.read(1) != b"\n":
                self._refuse()
            self._limit(limits)
            if os.geteuid() == 0:
                self.user, self._claim = _claimed_user(pid)
        except BaseException:
            self.close()
            raise

    def _refuse(self) -> NoReturn:
        text = self._holder.stderr.read(1000).decode(errors="replace").strip()
        self.close()
        raise SandboxError(f"bubblewrap refused: {text}")

    def _limit(self, limits: SubmissionLimits) -> None:
        """Limit bubblewrap's own processes: a submission of the same user can write to them."""
        values = {
            "RLIMIT_AS": _ADDRESS_SPACE,
            "RLIMIT_FSIZE": limits.files,
            "RLIMIT_NPROC": limits.processes,
            "RLIMIT_NOFILE": 64,
            "RLIMIT_MSGQUEUE": 0,
            "RLIMIT_CORE": 0,
        }
        inner = (self.folder / "task" / self.folder.name / "children").read_text()
        for pid in (self.folder.name, *inner.split()):
            for which, value in values.items():
                resource.prlimit(int(pid), getattr(resource, which), (value, value))

    def processes(self) -> list[Path]:
        """Return the folders in ``/proc`` of all processes in these namespaces."""
        try:
            with os.scandir(self.folder / "root/proc") as entries:
                return [Path(entry.path) for entry in entries if entry.name.isdigit()]
        except OSError:
            return []

    def kill(self) -> None:
        """Kill every process in these namespaces, without waiting for its end."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.entrance, signal.SIGKILL)

    def close(self) -> None:
        """End every process in these namespaces; raise SandboxError if one does not end."""
        is_left = False
        if self.entrance is not None:
            self.kill()
            end = select.poll()
            end.register(self.entrance, select.POLLIN)
            is_left = not end.poll(1000 * _END_SECONDS)
            os.close(self.entrance)
            self.entrance = None
        for pipe in (self._holder.stdin, self._holder.stdout, self._holder.stderr):
            pipe.close()
        self._holder.kill()
        self._holder.wait()
        if self._claim is not None:
            self._claim.close()
        if is_left:
            raise SandboxError("a process of the submission does not end")


def _claimed_user(pid: int) -> tuple[int, socket.socket]:
    """Return a user for the submission, and a socket that reserves this user until it is closed.

    The kernel counts processes by user.  No two live processes have the same ``pid``, but root may
    have fewer users than there are numbers.
    """
    for number in itertools.count(pid):
        user, claim = _user_beside(number), socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0backward_twice user {user}")  # an abstract name: no file is left behind
        except OSError as error:
            claim.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return user, claim


def _user_beside(number: int) -> int:
    """Return the user of this number, counted from those that neither people nor programs have."""
    first_user, _, count = map(int, Path("/proc/self/uid_map").read_text().splitlines()[-1].split())
    if count < _FEWEST_USERS:
        raise SandboxError(
            f"root has {count} users here and none to spare for a submission: start the container "
            "with a range of them (newuidmap, /etc/subuid), or grade as another user than root"
        )
    users = min(count, _MOST_USERS)
    return first_user + users // 2 + number % (users // 4)
