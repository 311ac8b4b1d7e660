"""A user for one submission that no other job has, for a grader that is root.

The kernel counts processes by user, and lets a user signal all of its own.  Two submissions of one
user would share a limit, and the end of one could be the end of the other.  So each has a number
that is drawn, high above those that systems give, and taken: while it is in use no other job on
this machine gets it.  Two containers may share the kernel's users and do not see what the other has
taken; there it is 67 million numbers against one.
"""

from __future__ import annotations

import errno
import secrets
import socket
from pathlib import Path

from backward_twice.grading.sandbox.limits import SandboxError

_MOST_PAIRS = 1 << 26
_TOP = 1 << 31  # of larger numbers some programs make negative ones
_LEFT = 4  # at the top: among a container's usual 65,536 users one of these is nobody


class User:
    """A user of a submission, taken until it is closed.

    Attributes:
        uid: its number.  The one below is taken too, for who ends its processes.
    """

    def __init__(self) -> None:
        """Take one.

        Raises:
            SandboxError: root has too few users here.
        """
        top, pairs = _free(Path("/proc/self/uid_map").read_text())
        while True:
            self.uid = top - 2 * secrets.randbelow(pairs)
            # A name in no folder, which is free again when this process ends, by whatever death.
            self._taken = socket.socket(socket.AF_UNIX)
            try:
                self._taken.bind(f"\0backward-twice-user-{self.uid}")
            except OSError as error:
                self._taken.close()
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return

    def close(self) -> None:
        """Leave the number to others; hardly anybody draws it again."""
        self._taken.close()


def _free(uid_map: str) -> tuple[int, int]:
    """The highest number of a user to take, and how many pairs of them there are from it down.

    >>> _free("0 0 4294967295"), _free("0 1000 1\\n1 100000 65536")
    ((2147483644, 67108864), (65533, 16384))
    """
    first, _, count = map(int, uid_map.splitlines()[-1].split())
    pairs = min(count // 4, _MOST_PAIRS)
    if not pairs:
        raise SandboxError(
            f"root has {count} users here and none to spare for a submission: start the container "
            "with a range of them (newuidmap, /etc/subuid), or grade as another user than root"
        )
    return min(first + count, _TOP) - _LEFT, pairs
