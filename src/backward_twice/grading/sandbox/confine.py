"""The rights that a process gives up permanently before it reads a student's code.

Namespaces decide what a process can see; this module decides what it can do there.  Setuid programs
cannot restore the capabilities, because :func:`.seccomp.load` sets ``no_new_privs``.
"""

import ctypes
import errno
import os
import resource
import struct
from pathlib import Path

from backward_twice.grading.sandbox import seccomp, syscalls

_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63

_OPEN_FILES = 64
_SIGNALS = 64


def limit(*, memory: int, files: int, seconds: float, processes: int) -> None:
    """Set this process's resource limits; they pass to its children and cannot be raised again.

    ``memory`` counts bytes of address space beyond those in use now, ``files`` the bytes of one
    file, ``seconds`` processor time, ``processes`` the processes and threads of its user.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = {
        "RLIMIT_AS": pages * resource.getpagesize() + memory,
        "RLIMIT_FSIZE": files,
        "RLIMIT_CPU": int(seconds) + 1,
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": _OPEN_FILES,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_SIGPENDING": _SIGNALS,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_NPROC": processes,
    }
    for name, value in limits.items():
        which = getattr(resource, name)
        _, hard = resource.getrlimit(which)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def renounce(uid: int | None = None) -> None:
    """Give up the user, all capabilities, and all system calls but those of :mod:`.syscalls`.

    A process of root becomes the user and group ``uid``.  After an OSError it must not go on.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(_LAST_CAPABILITY + 1):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails for those that do not exist
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        # Changing the user hid /proc/self from itself.
        seccomp.call_libc(libc.prctl, _PR_SET_DUMPABLE, 1, 0, 0, 0)
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    seccomp.call_libc(libc.capset, header, bytes(24))
    seccomp.load(syscalls.program())
    status = dict(
        line.split(":\t", 1)
        for line in Path("/proc/self/status").read_text().splitlines()
        if ":\t" in line
    )
    capabilities = {name: status[name] for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")}
    if any(int(value, 16) for value in capabilities.values()) or status["NoNewPrivs"] != "1":
        raise OSError(errno.EPERM, f"privileges are left: {capabilities}")
    if uid is not None and status["Uid"].split() != [str(uid)] * 4:
        raise OSError(errno.EPERM, f"still user {status['Uid']}")
