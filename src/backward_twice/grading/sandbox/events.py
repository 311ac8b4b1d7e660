"""Read bytes from a sandbox as events: one at a time, bounded in number, never trusted.

A line is an event if it is one JSON object.  Anything else (too many bytes, no line in time, the
end of the stream, too much memory) becomes the failure of the current step.

Processor time is limited, because other work on the machine does not use it up.  A step that waits
uses none, so there is also a limit of wall-clock time, several times as long; a step that exceeds
it is ``slow`` and not ``timeout``, because the machine may have been busy.  A step whose threads
all sleep does not wait for the machine, so it ends sooner and is not repeated; later steps may then
sleep for less time, so that sleeping submissions cannot delay a class.
"""

import json
import os
import select
import time
from typing import Any, Literal

from backward_twice.grading.sandbox.forks import Fork
from backward_twice.grading.sandbox.limits import SubmissionLimits

_WATCH = 0.05  # s, between looks at what a submission takes
_LINE = 8 << 20  # bytes that one step may hand back
_ALL = 32 << 20  # bytes that all of them together may

Failure = tuple[Literal["timeout", "slow", "memory", "crashed"], str]
"""The kind of a step's failure, and its description."""

NO_EVENT: Failure = ("crashed", "returned data that is no event of this step")


class Budget:
    """The time that a submission has left, over all of its sandboxes."""

    def __init__(self, limits: SubmissionLimits) -> None:
        self.processor = limits.total  # seconds
        self.end = time.monotonic() + limits.total * limits.clock  # of the wall-clock time
        self.idle = limits.idle  # wall-clock seconds that a step may be idle

    @property
    def left(self) -> bool:
        return self.processor > 0 and time.monotonic() < self.end


class Events:
    """The events of a run, one at a time: a dict, or the failure of the current step."""

    def __init__(self, run: Fork, limits: SubmissionLimits, budget: Budget) -> None:
        self._run = run
        self._limits = limits
        self._budget = budget
        self._unsent = b""
        self._read = bytearray()
        self._room = _ALL
        self._poll = select.poll()
        self._poll.register(run.events, select.POLLIN)
        self._poll.register(run.status, select.POLLIN)
        self._deadline = float("inf")
        self._seen: float | None = None  # s of the processor, when it was last looked at
        self._looked = 0.0  # when, by the clock
        self._idle = 0.0  # s by the clock that this step did nothing
        self._before = self._used = 0.0  # s of it: before this step, and by it

    def why_not_ready(self) -> str:
        """Describe why the process did not start; "" if it did, and student code may run."""
        self._deadline = time.monotonic() + self._run.patience
        self._idle = float("-inf")  # a step may not sleep, but a busy machine may be slow to start
        event = self._next(float("inf"))
        if event == {"ready": True}:
            return ""
        if isinstance(event, tuple) and event[0] == "slow":
            return f"it did not start within {self._run.patience:g} s"
        text = self._read[-2000:].decode("utf-8", "replace")  # in the place of an event
        return f"{self._run.how_ended()} {text}".rstrip()

    def begin(self) -> None:
        """Begin a step, to which the resources used from now on are charged."""
        # What a step before this one has used up was seen as it ended.
        self._before = self._run.processor() if self._seen is None else self._seen
        self._used = 0.0
        self._idle = 0.0
        self._looked = time.monotonic()
        by_clock = time.monotonic() + self._limits.seconds * self._limits.clock
        self._deadline = min(by_clock, self._budget.end)

    def ask(self, what: dict[str, Any]) -> dict[str, Any] | Failure:
        """Send the step's next task, and return the event that answers it, or the failure."""
        self._unsent += json.dumps(what).encode() + b"\n"
        self._poll.register(self._run.job, select.POLLOUT)
        return self._next(min(self._limits.seconds, self._budget.processor))

    def end(self) -> float:
        """End a step; subtract its processor time from the budget, and return it in seconds."""
        self._look()
        self._budget.processor -= self._used
        return self._used

    def _look(self) -> None:
        """Measure the step's idle time, and its processor time including ended processes."""
        now, processor_seconds = time.monotonic(), self._run.processor()
        if self._run.is_idle():  # now; it may have worked a little since the last look
            worked = processor_seconds - (self._seen or 0.0)
            self._idle += max(0.0, min(now - self._looked, 2 * _WATCH) - worked)
        self._looked, self._seen = now, processor_seconds
        self._used = max(self._used, self._seen - self._before)

    def _next(self, seconds: float) -> dict[str, Any] | Failure:
        looked = time.monotonic()
        searched = 0
        while (newline := self._read.find(b"\n", searched)) < 0:
            searched = len(self._read)
            if searched > _LINE or self._room <= 0:
                return "crashed", f"returned more than {_LINE >> 20} MB"
            now = time.monotonic()
            if now >= self._deadline:
                return "slow", self._took(self._deadline == self._budget.end, by_clock=True)
            if now - looked > _WATCH:
                looked = now
                if self._run.memory() > self._limits.memory:
                    return "memory", too_much_memory(self._limits)
                self._look()
                if self._used > seconds:
                    return "timeout", self._took(seconds < self._limits.seconds)
                if self._idle > (patience := self._budget.idle):
                    self._budget.idle = min(patience, self._limits.idle_again)
                    return "timeout", f"did nothing for {patience:g} s by the clock"
            ready = dict(self._poll.poll(max(1, 1000 * min(_WATCH, self._deadline - now))))
            if ready.pop(self._run.job, 0):
                self._send()
            if not ready or self._take():
                continue
            # Nothing more will come, or nothing is there though the process has ended.
            if self._run.memory() > self._limits.memory:
                return "memory", too_much_memory(self._limits)
            return "crashed", self._run.how_ended()
        line = bytes(self._read[:newline])
        del self._read[: newline + 1]
        return parsed(line)

    def _took(self, all_of_it: bool, by_clock: bool = False) -> str:
        """Format the message for a step, or a submission, that exceeded its time limit."""
        who, seconds = (
            ("the submission ", self._limits.total) if all_of_it else ("", self._limits.seconds)
        )
        if by_clock:
            return f"{who}took longer than {seconds * self._limits.clock:g} s by the clock"
        return f"{who}took longer than {seconds:g} s of processor time"

    def _send(self) -> None:
        """Send as many bytes as fit into the pipe; stop polling it if all are sent or it broke."""
        try:
            self._unsent = self._unsent[os.write(self._run.job, self._unsent) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # its end is reported elsewhere
            self._unsent = b""
        if not self._unsent:
            self._poll.unregister(self._run.job)

    def _take(self) -> bool:
        """Read the available bytes; return whether there were any."""
        try:
            read = os.read(self._run.events, 1 << 16)
        except BlockingIOError:
            return False
        self._room -= len(read)
        self._read += read
        return bool(read)


def too_much_memory(limits: SubmissionLimits) -> str:
    """Format the message for a step that exceeded its memory limit."""
    return f"took more than {limits.memory >> 20} MB of memory"


def parsed(line: bytes) -> dict[str, Any] | Failure:
    """Parse a line as an event; return a failure, and never raise, if it is not one.

    >>> parsed(b'{"began": 0}')
    {'began': 0}
    >>> parsed(b"[" * 100_000)
    ('crashed', 'returned data that is no event of this step')
    """
    try:
        event = json.loads(line, object_pairs_hook=_distinct, parse_constant=_refuse)
    except (ValueError, RecursionError, MemoryError):
        event = None
    return event if isinstance(event, dict) else NO_EVENT


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    event = dict(pairs)
    if len(event) < len(pairs):
        raise ValueError("a key twice")
    return event


def _refuse(constant: str) -> None:
    raise ValueError(constant)
