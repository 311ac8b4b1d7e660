"""The system calls that a submission may make; the kernel refuses all others.

This module lists what is *allowed*, so a new kernel's call is refused until somebody has examined
it.  The list was measured: ``strace -f`` of a Python that imports torch and IPython and runs every
exercise's right answers, every stored wrong one, and the other things that learners do (files,
threads, processes, data loaders, shell commands).  Calls that programs can do without are left off
although they were seen: ``splice`` and similar calls, advice on the page cache.  A call not on the
list fails with ``ENOSYS``, as on a kernel too old to have it, so libraries use their fallback;
hardly anything else causes that error, so :mod:`.runner` reports it as a refusal.

A call that locks a file reports success instead, but locks nothing (:data:`TAKEN_FOR_GRANTED`).
sqlite3 and ``torch.compile`` require a lock, on files that no other process can write to, and have
no fallback.

Each call that was left off could once do harm: ``vmsplice``, ``memfd_create``, ``shmget``,
``fcntl(F_SETLK)``, ``setxattr`` and ``io_uring`` hold kernel memory that is charged to no process,
and so does shared memory without a file, which stays when a process has released it, and a socket
that takes messages from others which are closed by then; ``fcntl(F_SETLEASE)`` and a real ``flock``
make others wait for files that they share with the submission; ``inotify``, keys and message queues
are counted for the user who grades.

To allow one more: find its name with ``strace -f`` (``book/promises.md`` says how), read its manual
(what does it allocate, whom can it block or reach?), and add it here, with its arguments if needed.
"""

import fcntl
import functools
import mmap
import termios
from collections.abc import Iterable
from types import ModuleType

from backward_twice.grading.sandbox.seccomp import LOW, Allowed, compiled

_FREELY = """
    read write readv writev pread64 pwrite64 preadv pwritev lseek close close_range
    dup dup2 dup3 pipe pipe2
    open openat creat access faccessat faccessat2 stat lstat fstat newfstatat statx statfs fstatfs
    readlink readlinkat getcwd chdir fchdir getdents getdents64 umask
    mkdir mkdirat rmdir rename renameat renameat2 link linkat symlink symlinkat unlink unlinkat
    chmod fchmod fchmodat fchmodat2 utime utimes futimesat utimensat
    truncate ftruncate fallocate fsync fdatasync
    getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
    poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait

    brk munmap mprotect mremap msync

    fork vfork execve exit exit_group wait4 waitid arch_prctl
    set_tid_address set_robust_list rseq futex sched_yield restart_syscall
    sched_getaffinity sched_setaffinity sched_getparam sched_getscheduler
    sched_get_priority_max sched_get_priority_min getpriority getcpu
    getpid getppid gettid getpgid getpgrp getsid setpgid setsid
    getuid geteuid getgid getegid getgroups getresuid getresgid capget capset
    getrlimit setrlimit getrusage times sysinfo uname getrandom

    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait
    sigaltstack kill tkill tgkill pause alarm getitimer setitimer
    nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time

    bind listen accept accept4 connect getsockname getpeername getsockopt shutdown
    sendto recvfrom sendmsg recvmsg
"""

# Flags of clone(2) that create a namespace, a sibling, or a child that is already traced.
_NEW_NAMESPACES, _PARENT, _PTRACE = 0x7E020000, 0x8000, 0x2000
_AF_UNIX, _SOL_SOCKET, _SO_REUSEADDR = 1, 1, 2
_SOCK_TYPE, _SOCK_STREAM = 0xF, 1
_MAP_TYPE, _MAP_PRIVATE, _MAP_ANONYMOUS = 0xF, 2, 0x20

_FCNTL = "DUPFD GETFD SETFD GETFL SETFL DUPFD_CLOEXEC GETPIPE_SZ"
_LOCKS = "SETLK SETLKW OFD_SETLK OFD_SETLKW"
_IOCTL = "TCGETS TIOCGPGRP TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX"
_TCGETS2 = 0x802C542A
_MADVISE = """NORMAL RANDOM SEQUENTIAL WILLNEED DONTNEED FREE DONTFORK DOFORK HUGEPAGE NOHUGEPAGE
    DONTDUMP DODUMP"""
_PRCTL = {
    "PR_SET_PDEATHSIG": 1,
    "PR_GET_PDEATHSIG": 2,
    "PR_GET_DUMPABLE": 3,
    "PR_SET_NAME": 15,
    "PR_GET_NAME": 16,
    "PR_CAPBSET_READ": 23,
    "PR_GET_NO_NEW_PRIVS": 39,
}


def _numbers(module: ModuleType, names: str, prefix: str = "") -> list[int]:
    """Look up the kernel's constants of these names in a Python module."""
    return [getattr(module, prefix + name) for name in names.split()]


def _one_of(argument: int, values: Iterable[int]) -> list[Allowed]:
    return [{argument: (LOW, value)} for value in values]


# With these arguments only.  What else is in a call's arguments lies behind pointers, where no
# filter can look: so clone3, whose flags do, is not on the list, and libc takes clone.
_WITH: dict[str, list[Allowed]] = {
    "clone": [{0: (_NEW_NAMESPACES | _PARENT | _PTRACE, 0)}],
    "fcntl": _one_of(1, _numbers(fcntl, _FCNTL, "F_")),
    "ioctl": _one_of(1, [*_numbers(termios, _IOCTL), _TCGETS2]),
    "madvise": _one_of(2, _numbers(mmap, _MADVISE, "MADV_")),
    "mmap": [{3: (_MAP_TYPE, _MAP_PRIVATE)}, {3: (_MAP_ANONYMOUS, 0)}],
    "prctl": _one_of(0, _PRCTL.values()),
    "prlimit64": [{0: (LOW, 0)}],  # its own limits
    "setsockopt": [{1: (LOW, _SOL_SOCKET), 2: (LOW, _SO_REUSEADDR)}],
    "socket": [{0: (LOW, _AF_UNIX), 1: (_SOCK_TYPE, _SOCK_STREAM)}],
    "socketpair": [{0: (LOW, _AF_UNIX), 1: (_SOCK_TYPE, _SOCK_STREAM)}],
}

ALLOWED: dict[str, list[Allowed]] = {name: [{}] for name in _FREELY.split()} | _WITH
"""For each allowed call, the conditions on its arguments, of which one must hold."""

TAKEN_FOR_GRANTED: dict[str, list[Allowed]] = {
    "flock": [{}],
    "fcntl": _one_of(1, _numbers(fcntl, _LOCKS, "F_")),
}
"""The same for calls that report success, but do nothing."""


@functools.cache
def program() -> bytes:
    """Compile the list of allowed system calls into a seccomp filter for this machine."""
    return compiled(ALLOWED, TAKEN_FOR_GRANTED)
