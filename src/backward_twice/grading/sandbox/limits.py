"""The limits of a submission, and the error of a sandbox that fails."""

from dataclasses import dataclass
from typing import Any

from backward_twice.grading import GradingError


class SandboxError(GradingError):
    """The sandbox is missing, did not start, or could not be ended."""


@dataclass(frozen=True)
class SubmissionLimits:
    """The resources that a submission may use.

    Attributes:
        seconds: of processor time, for each step.
        clock: how many times as long a step, and the submission, may take in wall-clock time,
            because a busy machine or a slow disk is not the student's fault.
        memory: bytes that a process may allocate beyond those of Python and torch, and that all
            processes together may take if there are several.
        processes: processes and threads at one time.
        output: characters kept of what a step prints.
        files: bytes in all files together; there are no more than 4,096 files.
        total: seconds of processor time for the submission, including restarts.
        idle: wall-clock seconds that a step may be idle: none of its processes runs, is ready to
            run or waits for a disk, so a busy machine is not the reason.
        idle_again: the same for the steps after one that exceeded ``idle``.
    """

    seconds: float = 30.0
    clock: float = 2.0
    memory: int = 2 << 30
    processes: int = 32
    output: int = 10_000
    files: int = 64 << 20
    total: float = 120.0
    idle: float = 10.0
    idle_again: float = 1.0

    @property
    def of_kernel(self) -> dict[str, Any]:
        """The limits that the kernel enforces, as :func:`.confine.limit` takes them."""
        return {
            "memory": self.memory,
            "files": self.files,
            "seconds": self.total + 10,
            "processes": self.processes,
        }
