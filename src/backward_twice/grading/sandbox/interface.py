"""What a sandbox is: a way to start a submission's process, to read from it, and to end it.

Each kind of sandbox implements :class:`Sandbox` and its :class:`Run`; :mod:`.steps` needs to know
nothing else of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from backward_twice.grading import GradingError

Kind = Literal["bubblewrap", "container", "account", "none"]


class SandboxError(GradingError):
    """There is no sandbox, or it failed before anything of the student's ran in it."""


@dataclass(frozen=True)
class Limits:
    """What a submission may use.

    Attributes:
        seconds: of processor time, for each step.
        clock: how many times as long a step, and the submission, may take by the clock: a machine
            that others use too, or that waits for its disk, is no fault of the student's.
        memory: bytes, for all its processes together, beyond what Python and torch take.
        processes: processes and threads at one time.
        output: characters kept of what a step prints.
        files: bytes in all files together; there are no more than 4,096 files.
        total: seconds of processor time for the submission, fresh starts included.
        idle: seconds by the clock that a step may do nothing: no process of it runs, wants to run
            or waits for a disk.  That is no fault of a busy machine.

    Raises:
        ValueError: one of them is not positive.
    """

    seconds: float = 30.0
    clock: float = 2.0
    memory: int = 2 << 30
    processes: int = 32
    output: int = 10_000
    files: int = 64 << 20
    total: float = 120.0
    idle: float = 10.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"the limit {field.name} must be positive")

    def of_kernel(self, *, processes: bool = True) -> dict[str, Any]:
        """The limits that the kernel keeps, as :func:`.confine.limit` takes them."""
        return {
            "memory": self.memory,
            "files": self.files,
            "seconds": self.total + 10,
            "processes": self.processes if processes else None,
        }


class Run(ABC):
    """One submission in one sandbox.

    Attributes:
        job: the file descriptor that the student's process reads from; writing never blocks.
        events: the one that it writes to; reading never blocks.
        status: one that becomes readable when the student's process has ended, if there is one.
        patience: seconds that it may take to the first step.
    """

    job: int
    events: int
    status: int | None
    patience: float

    @abstractmethod
    def how_ended(self) -> str:
        """How the student's process ended, in words; it has, or its events have."""

    @abstractmethod
    def processor(self) -> float:
        """Seconds of processor time that its processes took together; 0 where that is unknown."""

    @abstractmethod
    def is_idle(self) -> bool:
        """Whether all its threads sleep; False where that is unknown."""

    @abstractmethod
    def memory(self) -> int:
        """Bytes that its processes use together; 0 where something else bounds that."""

    @abstractmethod
    def close(self) -> None:
        """End every process of it.

        Raises:
            SandboxError: one is left.
        """


class Sandbox(ABC):
    """A way to start runs; :func:`.kinds.sandbox` makes one."""

    kind: Kind

    @abstractmethod
    def start(self, limits: Limits, exercises: Sequence[str] = ()) -> Run:
        """Start the process of a submission in a sandbox of its own.

        Args:
            exercises: whose questions it will be asked; of no others it has any.

        Raises:
            SandboxError: it could not be started.
        """

    def close(self) -> None:  # noqa: B027
        """Let go of what is held between runs; some hold nothing."""

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
