"""A submission's processes, as the grader sees them: environment, memory, time, and their end."""

import contextlib
import importlib.util
import os
import signal
import site
import sys
from collections.abc import Iterable
from pathlib import Path

import backward_twice

OURS = Path(backward_twice.__file__).parent
"""This package's folder."""

START_SECONDS = 120.0
"""How long Python and its imports may take, from a cold disk."""

_MAPPING = 256  # bytes that the kernel keeps of a mapping
_MOST_MAPPINGS = 65530  # of a process, by default (vm.max_map_count)


def folder_of(package: str) -> Path:
    """Return the folder of an importable package, without importing the package."""
    return Path(importlib.util.find_spec(package).origin).parent


def environment() -> dict[str, str]:
    """Return the environment variables with which a process finds the same packages."""
    folders = {str(OURS.parent), str(folder_of("gradtrace").parent)}
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX")
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": ":".join(sorted(path for path in folders if not path.endswith("-packages"))),
        "PYTHONUSERBASE": site.getuserbase(),
        "LANG": "C.UTF-8",
        "HOME": "/tmp",
        "USER": "student",
        "MPLBACKEND": "agg",
        **dict.fromkeys(threads, "1"),
        # The headers that torch.compile would compile beforehand are larger than the folder.
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    }


def unnamed_file(content: bytes) -> int:
    """Return the descriptor of an anonymous file with this content, at position 0."""
    fd = os.memfd_create("given")
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def memory_of(processes: list[Path], own: int) -> int:
    """Return the bytes that processes use, including kernel memory; shared bytes count once.

    It is 0 while there are no more than ``own`` processes, which have their own limits.
    """
    if len(processes) <= own:
        return 0
    return sum(_memory_of_one(process) for process in processes)


def _memory_of_one(process: Path) -> int:
    try:
        return _memory_of_task(process)
    except OSError:
        pass  # it has ended, or only its first thread has, and the others keep its memory
    with contextlib.suppress(OSError):
        for task in (process / "task").iterdir():
            with contextlib.suppress(OSError):
                return _memory_of_task(task)
    return 0


def _memory_of_task(task: Path) -> int:
    """Return the memory of a thread's process in bytes; raise OSError if the thread has ended."""
    try:
        rollup = (task / "smaps_rollup").read_text()
        total = 1024 * int(rollup.partition("\nPss:")[2].split()[0])
        mappings = (task / "maps").read_bytes().count(b"\n")
    except PermissionError:  # it made itself unreadable
        total = os.sysconf("SC_PAGE_SIZE") * int((task / "statm").read_text().split()[1])
        mappings = _MOST_MAPPINGS
    status = (task / "status").read_text(errors="replace")
    tables = status.partition("\nVmPTE:")[2].split()
    return total + _MAPPING * mappings + (1024 * int(tables[0]) if tables else 0)


def sockets_of(process: Path) -> int:
    """Return an upper bound of the bytes that sockets in a process's namespace can hold."""
    try:
        number = (process / "net/unix").read_bytes().count(b"\n") - 1  # a heading
        size = int(Path("/proc/sys/net/core/wmem_default").read_text())
        return number * (size + size // 2)  # the last message may go half of it beyond
    except OSError:
        return 0


def processor_of(processes: Iterable[Path]) -> float:
    """Return the processor time in seconds of processes and of children they waited for."""
    ticks = 0
    for process in processes:
        with contextlib.suppress(OSError):
            # behind the name, which may hold anything: utime, stime, cutime, cstime
            fields = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def all_sleep(processes: Iterable[Path]) -> bool:
    """Whether no thread of the processes is running, runnable or waiting for a disk."""
    for process in processes:
        with contextlib.suppress(OSError):
            for task in (process / "task").iterdir():
                with contextlib.suppress(OSError):
                    fields = (task / "stat").read_text(errors="replace").rpartition(")")[2].split()
                    if fields[0] in ("R", "D"):
                        return False
    return True


def in_words(code: int) -> str:
    """Describe how a process ended, from its exit code, or minus the signal that ended it."""
    if code >= 0:
        return f"the process ended in the middle of the step, with exit code {code}"
    name = signal.Signals(-code).name if -code in iter(signal.Signals) else f"signal {-code}"
    return f"the process was ended by {name}"
