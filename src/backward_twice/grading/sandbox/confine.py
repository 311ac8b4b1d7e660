"""What a process gives up, for good, before it reads a line of a student's.

Namespaces decide what a process can see; this module decides what it can do there.  Resource limits
bound its memory, processes, files and time.  Its capabilities go, and ``no_new_privs`` keeps every
setuid program from bringing one back.  A seccomp filter refuses the system calls that an exercise
has no use for: those that make namespaces, look into other processes, open a network socket, or
hold memory that belongs to no process and so escapes its limit.  Only Linux has the last two; the
filter is known for x86-64 and arm64.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
import sys
from pathlib import Path

_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63

_OPEN_FILES = 128

# Of each system call the number on x86-64 and on arm64.
_REFUSED = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    # namespaces
    "unshare": (272, 97),
    "setns": (308, 268),
    # memory outside the address space
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    # the kernel's own machinery, and the keys of whoever grades
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_NEW_NAMESPACES = 0x7E020000  # the flags of clone that make one
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def limit(*, memory: int, files: int, seconds: float, processes: int | None) -> None:
    """Set this process's resource limits; they pass to its children and cannot be raised again.

    Args:
        memory: bytes of address space beyond those in use now.
        files: bytes that one file may have.
        seconds: of processor time, then the kernel kills the process.
        processes: how many processes and threads its user may have; ``None`` leaves that alone.
    """
    limits = {
        "RLIMIT_AS": _address_space() + memory,
        "RLIMIT_FSIZE": files,
        "RLIMIT_CPU": int(seconds) + 1,
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": _OPEN_FILES,
        "RLIMIT_MSGQUEUE": 0,
    }
    if processes is not None:
        limits["RLIMIT_NPROC"] = processes
    for name, value in limits.items():
        if (which := getattr(resource, name, None)) is None:
            continue
        _, hard = resource.getrlimit(which)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def _address_space() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except FileNotFoundError:
        return 0
    return pages * resource.getpagesize()


def renounce(uid: int | None = None) -> None:
    """Give up user, capabilities and system calls.

    Args:
        uid: the user and group to become, for a process of root's.

    Raises:
        OSError: the kernel refused, and the process must not go on.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(_LAST_CAPABILITY + 1):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails for those that do not exist
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        # Changing the user hid /proc/self from itself.
        _call(libc.prctl, _PR_SET_DUMPABLE, 1, 0, 0, 0)
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    _call(libc.capset, header, bytes(24))
    _call(libc.prctl, _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if program := system_call_filter():
        code = ctypes.create_string_buffer(program, len(program))
        # struct sock_fprog: the number of instructions, padding, a pointer to them
        described = struct.pack("HP", len(program) // 8, ctypes.addressof(code))
        _call(libc.prctl, _PR_SET_SECCOMP, 2, described, 0, 0)
    status = dict(
        line.split(":\t", 1)
        for line in Path("/proc/self/status").read_text().splitlines()
        if ":\t" in line
    )
    kept = {name: status[name] for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")}
    if any(int(value, 16) for value in kept.values()) or status["NoNewPrivs"] != "1":
        raise OSError(errno.EPERM, f"privileges are left: {kept}")
    if uid is not None and status["Uid"].split() != [str(uid)] * 4:
        raise OSError(errno.EPERM, f"still user {status['Uid']}")


def _call(function: ctypes._CFuncPtr, *arguments: int | bytes) -> None:
    if function(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{function.__name__}: {os.strerror(number)}")


def system_call_filter() -> bytes:
    """The seccomp filter of this machine, as a BPF program; empty where its numbers are unknown."""
    if not sys.platform.startswith("linux") or platform.machine() not in _MACHINES:
        return b""
    column, architecture = _MACHINES[platform.machine()]
    load, equal, at_least, any_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06
    number_at, architecture_at, first_argument_at = 0, 4, 16
    allow, kill = 0x7FFF0000, 0x80000000
    refuse, unknown = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
    program = [
        (load, 0, 0, architecture_at),
        (equal, 1, 0, architecture),
        (give, 0, 0, kill),
        (load, 0, 0, number_at),
        # x86-64's second table of system calls, by other numbers
        (at_least, 0, 1, 0x40000000),
        (give, 0, 0, refuse),
    ]
    for numbers in _REFUSED.values():
        program += [(equal, 0, 1, numbers[column]), (give, 0, 0, refuse)]
    program += [
        # Its flags are behind a pointer, which a filter cannot follow; libc then takes clone.
        (equal, 0, 1, _CLONE3[column]),
        (give, 0, 0, unknown),
        (equal, 0, 3, _CLONE[column]),
        (load, 0, 0, first_argument_at),
        (any_bit, 4, 0, _NEW_NAMESPACES),
        (give, 0, 0, allow),
        (equal, 0, 3, _SOCKET[column]),
        (load, 0, 0, first_argument_at),
        (equal, 1, 0, 1),  # AF_UNIX
        (give, 0, 0, refuse),
        (give, 0, 0, allow),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)
