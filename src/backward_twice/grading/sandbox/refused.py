"""``python -m backward_twice.grading.sandbox.refused FILE``: which system calls would be refused.

For whoever sees an honest answer fail because "the sandbox refuses a system call that this needs",
such as after an update of PyTorch.  FILE is a notebook, whose code cells are run, or Python source;
run only what you trust, because nothing but the list of calls (:mod:`.syscalls`) is between it and
this machine.  Each call that is not on the list fails as in the sandbox, and is printed.

The kernel asks about each such call: the filter that the program is run under says neither yes nor
no but "notify", and this process answers (``seccomp_unotify(2)``, since Linux 5.0).
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import json
import os
import select
import socket
import struct
import sys
from collections import Counter
from pathlib import Path

from backward_twice.grading.sandbox import seccomp, syscalls

# ioctls of a listener, and what they take: struct seccomp_notif (id, process, flags, number of the
# call, architecture, address, arguments) and struct seccomp_notif_resp (id, value, error, flags)
_RECEIVE, _ASKED = 0xC0502100, struct.Struct("QIIiIQ6Q")
_SEND, _ANSWER = 0xC0182101, struct.Struct("QqiI")


def refused(sources: list[str]) -> Counter[str]:
    """Run the cells in a process of its own, and count the calls that were refused, by name.

    Where arguments decide, the first three are in the name.
    """
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            _run(sources, theirs)
        finally:
            os._exit(1)
    theirs.close()
    with ours:
        _, [listener], *_ = socket.recv_fds(ours, 1, 1)
        return _listen(listener, os.pidfd_open(child))


def _run(sources: list[str], told: socket.socket) -> None:
    from backward_twice.grading.sandbox import runner  # torch takes its time

    shell = runner.new_shell()
    program = seccomp.compiled(syscalls.ALLOWED, syscalls.TAKEN_FOR_GRANTED, refuse=seccomp.NOTIFY)
    listener = seccomp.listen(program)
    socket.send_fds(told, [b" "], [listener])
    os.close(listener)
    for source in sources:
        shell.run_cell(source, store_history=True)
    sys.stdout.flush()
    os._exit(0)


def _listen(listener: int, ended: int) -> Counter[str]:
    found: Counter[str] = Counter()
    watch = select.poll()
    watch.register(listener, select.POLLIN)
    watch.register(ended, select.POLLIN)
    while ended not in (ready := dict(watch.poll())):
        if not ready.get(listener, 0) & select.POLLIN:
            break
        asked = bytearray(_ASKED.size)
        with contextlib.suppress(FileNotFoundError):  # who asked was killed meanwhile
            fcntl.ioctl(listener, _RECEIVE, asked)
            identity, _, _, number, architecture, _, *arguments = _ASKED.unpack(asked)
            found[_name(architecture, number, arguments)] += 1
            fcntl.ioctl(listener, _SEND, _ANSWER.pack(identity, 0, -errno.ENOSYS, 0))
    return found


def _name(architecture: int, number: int, arguments: list[int]) -> str:
    known = seccomp.library().seccomp_syscall_resolve_num_arch(architecture, number)
    name = known.decode() if known else f"number {number}"
    if name not in syscalls.ALLOWED:
        return name
    return f"{name}({', '.join(f'{argument:#x}' for argument in arguments[:3])}, …)"


def _sources(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return [text]
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return ["".join(cell["source"]) for cell in cells]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m backward_twice.grading.sandbox.refused", description=__doc__.split("\n")[0]
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a notebook or Python source")
    found = refused(_sources(parser.parse_args().file))
    for name, number in sorted(found.items()):
        print(f"refused {number} times: {name}")
    if not found:
        print("no system call was refused")


if __name__ == "__main__":
    main()
