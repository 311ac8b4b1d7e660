"""The limits of a submission, and the error of a sandbox that fails."""

from dataclasses import dataclass
from typing import Any

from backward_twice.grading import GradingError


class SandboxError(GradingError):
    """The sandbox is missing, did not start, or could not be ended."""


@dataclass(frozen=True)
class SubmissionLimits:
    """The resources that a submission may use; :mod:`.events` has the reasons for those of time."""

    seconds: float = 30.0  # of processor time, for each step
    clock: float = 2.0  # how many times as long steps and submission may take in wall-clock time
    # Bytes that a process may allocate beyond those of Python and torch, and that all processes
    # together may take if there are several.
    memory: int = 2 << 30
    processes: int = 32  # processes and threads at one time
    output: int = 10_000  # characters kept of what a step prints
    files: int = 64 << 20  # bytes in all files together; there are no more than 4,096 files
    total: float = 120.0  # seconds of processor time for the submission, including restarts
    idle: float = 10.0  # wall-clock seconds that a step may be idle (process.all_sleep)
    idle_again: float = 1.0  # the same for the steps after one that exceeded ``idle``

    @property
    def of_kernel(self) -> dict[str, Any]:
        """The limits that the kernel enforces, as :func:`.confine.limit` takes them."""
        return {
            "memory": self.memory,
            "files": self.files,
            "seconds": self.total + 10,
            "processes": self.processes,
        }
