"""The part of libseccomp that compiles a list of allowed system calls to a BPF program.

libseccomp (https://github.com/seccomp/libseccomp) knows the number of each call on each machine,
and the cases that filters easily miss: the second table of x86-64, other architectures, 64-bit
arguments on a 32-bit machine.  It is a shared library that every Debian, Ubuntu and Fedora has,
because their package managers or systemd need it; the bindings on PyPI are older.
"""

import ctypes
import errno
import os
import struct
import tempfile
from collections.abc import Iterable, Mapping

Allowed = dict[int, tuple[int, int]]
"""A condition on a call's arguments: by number, a mask and the masked value.  {} allows any."""

LOW = 0xFFFFFFFF
"""The mask of an ``int`` argument: the kernel does not look at the other half either."""

_LIBRARY = "libseccomp.so.2"
_GRANT, _REFUSE, _ALLOW = 0x00050000, 0x00050000 | errno.ENOSYS, 0x7FFF0000
_OF_ANOTHER_MACHINE, _OPTIMIZE = 2, 8  # SCMP_FLTATR_ACT_BADARCH, SCMP_FLTATR_CTL_OPTIMIZE
_MASKED_EQUAL = 7
_UNKNOWN = -1
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("how", ctypes.c_int),
        ("mask", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
    )


def library() -> ctypes.CDLL:
    """Return libseccomp."""
    try:
        loaded = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise OSError(
            errno.ENOENT,
            "libseccomp is not installed (apt install libseccomp2, dnf install libseccomp)",
        ) from None
    # The only result that is a pointer; all others are ints, as ctypes takes them for.
    loaded.seccomp_init.restype = ctypes.c_void_p
    return loaded


def compiled(
    allowed: Mapping[str, Iterable[Allowed]],
    granted: Mapping[str, Iterable[Allowed]] | None = None,
    *,
    machine: str | None = None,
) -> bytes:
    """Return a program that allows these calls and refuses all others.

    Each call has, by name, the arguments with which it is allowed.  A name that the library does
    not know is skipped, so the call is refused.  ``granted`` calls do nothing and return 0.
    ``machine`` is libseccomp's name of a machine, such as ``"aarch64"``; by default it is this one.
    Raises OSError if libseccomp is not installed, or cannot compile the list.
    """
    seccomp = library()
    context = ctypes.c_void_p(seccomp.seccomp_init(_REFUSE))
    if not context:
        raise OSError(errno.EINVAL, "libseccomp: seccomp_init")
    try:
        if machine is not None:
            token = seccomp.seccomp_arch_resolve_name(machine.encode())
            _checked(seccomp.seccomp_arch_remove, context, 0)
            _checked(seccomp.seccomp_arch_add, context, token)
        _checked(seccomp.seccomp_attr_set, context, _OF_ANOTHER_MACHINE, _REFUSE)
        seccomp.seccomp_attr_set(context, _OPTIMIZE, 2)  # a tree, which old libraries do not have
        for action, calls in ((_ALLOW, allowed), (_GRANT, granted or {})):
            for name, ways in calls.items():
                number = seccomp.seccomp_syscall_resolve_name(name.encode())
                for way in ways if number != _UNKNOWN else ():
                    rule = action, number, len(way), _conditions(way)
                    _checked(seccomp.seccomp_rule_add_array, context, *rule)
        with tempfile.TemporaryFile() as file:
            _checked(seccomp.seccomp_export_bpf, context, file.fileno())
            file.seek(0)
            return file.read()
    finally:
        seccomp.seccomp_release(context)


def _conditions(way: Allowed) -> ctypes.Array[_Comparison]:
    """Return a condition on a call's arguments as libseccomp takes it."""
    comparisons = [(n, _MASKED_EQUAL, mask, value) for n, (mask, value) in way.items()]
    return (_Comparison * len(way))(*comparisons)


def _checked(function: ctypes._CFuncPtr, *arguments: object) -> None:
    if failed := function(*arguments):
        raise OSError(-failed, f"libseccomp: {function.__name__}: {os.strerror(-failed)}")


def load(program: bytes) -> None:
    """Apply a program to this thread and its descendants, irrevocably."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of instructions, padding, a pointer to them
    filter_program = struct.pack("HP", len(program) // 8, ctypes.addressof(code))
    call_libc(libc.prctl, _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call_libc(libc.prctl, _PR_SET_SECCOMP, 2, filter_program, 0, 0)


def call_libc(function: ctypes._CFuncPtr, *arguments: int | bytes | None) -> None:
    """Call a function of a libc loaded with ``use_errno``; raise OSError if the kernel refused."""
    if function(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{function.__name__}: {os.strerror(number)}")
