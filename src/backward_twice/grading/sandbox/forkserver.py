"""The warm process: ``import torch`` once, then a fork into a sandbox for each submission.

It is started by exec, so that it contains nothing of its parent's memory, imports what the
exercises need, and waits.  For each submission it receives four file descriptors, never the
submission itself, so that no later fork can find an earlier one in memory.  It holds no exercise's
questions either; each fork loads its own.  It then forks twice::

    warm process ── keeper ── the submission
                    setns     limit, renounce, read the job, run it

The keeper enters the namespaces of a fresh bubblewrap sandbox, all at once through a pidfd of its
first process; only a child of the keeper is inside its pid namespace.  The keeper waits, outside
the submission's reach, and reports its exit code, or minus the signal that ended it.
bubblewrap ends the submission with the grader, even if all other processes are killed.
"""

import contextlib
import ctypes
import gc
import io
import json
import os
import resource
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from IPython.core.interactiveshell import InteractiveShell

from backward_twice.grading.sandbox import confine, runner, syscalls
from backward_twice.grading.sandbox.forget import forget_folder, load_questions
from backward_twice.grading.sandbox.seccomp import call_libc

_NAMESPACES = {
    "mnt": 0x20000,
    "uts": 0x4000000,
    "ipc": 0x8000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
_MS_NOSUID, _MS_NODEV, _MS_REMOUNT = 2, 4, 32
_FILES = 4096
_MESSAGE = 4096


def main(control: int) -> None:
    """Serve submissions that come over the socket ``control`` until its other end closes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are reaped by the kernel
    torch.set_num_threads(1)
    forget_folder()
    shell = runner.new_shell()
    _import_what_comes_late(shell)
    syscalls.program()  # compiled once
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        sys.exit("a module started a thread: a process with threads cannot enter a namespace")
    gc.collect()
    gc.freeze()
    connection = socket.socket(fileno=control)
    try:
        connection.send(b"ready")
    except BrokenPipeError:  # whoever wanted it was interrupted
        return
    while True:
        message, fds, *_ = socket.recv_fds(connection, _MESSAGE, 4)
        if not message:
            return
        status = fds[2]
        try:
            if os.fork() == 0:
                _keep(json.loads(message), shell, *fds)
        except OSError as error:
            _report(status, {"failed": f"fork: {error}"})
        for fd in fds:
            os.close(fd)


def _import_what_comes_late(shell: InteractiveShell) -> None:
    """Import the modules that torch, gradtrace and IPython would import on first use."""
    # No backward pass: where there is a GPU it starts threads.
    from gradtrace import explain, snapshot, watch  # noqa: F401 (what cells import of it)

    weight = torch.zeros(1, requires_grad=True)
    weight.grad = torch.zeros(1)
    torch.optim.SGD([weight], lr=1.0).step()
    with contextlib.redirect_stdout(io.StringIO()):
        for source in ("%xmode Plain", "%who", "1", "1 / 0"):
            shell.run_cell(source, store_history=True)
    shell.reset(new_session=True)
    # Which the reset takes away, and multiprocessing reads of the main module.
    shell.user_ns.update(__spec__=None, __doc__=None, __package__=None, __loader__=None)
    shell.execution_count = 1


def _keep(
    terms: dict[str, Any], shell: InteractiveShell, job: int, events: int, status: int, sandbox: int
) -> None:
    """Run as the keeper of a submission until it ends; do not return."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _close_all_but(job, events, status, sandbox)
        _be_ended_first()
        load_questions(terms["exercises"])  # their folder is out of sight in there
        _enter(sandbox, terms["limits"]["files"], os.geteuid() != 0)
        os.close(sandbox)
        submission = os.fork()
        if submission == 0:
            os.close(status)
            _become(terms, shell, job, events)
        os.close(job)
        os.close(events)
        _, end = os.waitpid(submission, 0)
        _report(status, {"ended": os.waitstatus_to_exitcode(end)})
    except BaseException as error:
        _report(status, {"failed": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def _be_ended_first() -> None:
    """Make the kernel end this process, not the grader, if the machine runs out of memory."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _close_all_but(*kept: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        if standard not in kept:
            os.dup2(nothing, standard)
    low = 3
    for fd in [*sorted(fd for fd in kept if fd > 2), resource.getrlimit(resource.RLIMIT_NOFILE)[0]]:
        os.closerange(low, fd)
        low = fd + 1


def _enter(sandbox: int, files: int, user: bool) -> None:
    """Enter the namespaces of the process of the pidfd ``sandbox``; limit ``/tmp`` to ``files``."""
    libc = ctypes.CDLL(None, use_errno=True)
    flags = sum(flag for name, flag in _NAMESPACES.items() if user or name != "user")
    call_libc(libc.setns, sandbox, flags)
    # bubblewrap's own --size is younger than the bubblewrap of many systems, and bounds no inodes.
    bound = f"size={files},nr_inodes={_FILES}".encode()
    call_libc(libc.mount, None, b"/tmp", None, _MS_REMOUNT | _MS_NOSUID | _MS_NODEV, bound)


def _become(terms: dict[str, Any], shell: InteractiveShell, job: int, events: int) -> None:
    """Run as the submission until it ends; do not return."""
    try:
        os.setsid()
        os.chdir("/tmp")
        confine.limit(**terms["limits"])
        confine.renounce(terms["user"])
        runner.run(job, events, shell)
    except BaseException:
        with contextlib.suppress(BaseException):
            os.write(events, traceback.format_exc(limit=-3).encode())
        os._exit(1)
    finally:
        os._exit(0)


def _report(status: int, what: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        os.write(status, json.dumps(what).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]))
