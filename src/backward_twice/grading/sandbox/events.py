"""Bytes of a stranger's, read as events: one at a time, bounded in number, never believed.

Out of a sandbox comes what a process that the student controls wrote.  A line of it is an event if
it is one JSON object; more bytes than a step may hand back, no line in time, an end, too much
memory or anything else come out as how the step under way failed.
"""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any, Literal

from backward_twice.grading.sandbox.interface import Limits, Run

_WATCH = 0.2  # s, between looks at the memory of a submission of several processes
_LINE = 8 << 20  # bytes that one step may hand back
_ALL = 32 << 20  # bytes that all of them together may

Failure = tuple[Literal["timeout", "memory", "crashed"], str]
"""How a step failed, and that in words."""

NO_EVENT: Failure = ("crashed", "handed back what is no event of this step")


class Events:
    """The events of a run, one at a time: a dict, or how the step under way failed."""

    def __init__(self, run: Run, limits: Limits, end: float) -> None:
        self._run = run
        self._limits = limits
        self._end = end
        self._read = bytearray()
        self._room = _ALL
        self._poll = select.poll()
        self._poll.register(run.events, select.POLLIN)
        if run.status is not None:
            self._poll.register(run.status, select.POLLIN)

    def next(self, seconds: float, *, start: bool = False) -> dict[str, Any] | Failure:
        deadline = time.monotonic() + seconds
        if not start:
            deadline = min(deadline, self._end)
        looked = time.monotonic()
        searched = 0
        while (newline := self._read.find(b"\n", searched)) < 0:
            searched = len(self._read)
            if searched > _LINE or self._room <= 0:
                return "crashed", f"handed back more than {_LINE >> 20} MB"
            now = time.monotonic()
            if now >= deadline:
                if deadline == self._end:
                    return "timeout", f"the submission took longer than {self._limits.total:g} s"
                return "timeout", f"took longer than {seconds:g} s"
            if now - looked > _WATCH:
                looked = now
                if self._run.memory() > self._limits.memory:
                    return "memory", f"took more than {self._limits.memory >> 20} MB of memory"
            ready = dict(self._poll.poll(max(1, 1000 * min(_WATCH, deadline - now))))
            if not ready or self._take():
                continue
            # Nothing more will come, or nothing is there though the process has ended.
            return "crashed", self._run.how_ended()
        line = bytes(self._read[:newline])
        del self._read[: newline + 1]
        return parsed(line)

    def _take(self) -> bool:
        """Read what is there; ``False`` if that was nothing."""
        try:
            read = os.read(self._run.events, 1 << 16)
        except BlockingIOError:
            return False
        self._room -= len(read)
        self._read += read
        return bool(read)

    def rest(self) -> str:
        """What came instead of an event, before anything of the student's ran."""
        return self._read[-2000:].decode("utf-8", "replace")


def parsed(line: bytes) -> dict[str, Any] | Failure:
    """A line as an event; whatever it is, no exception.

    >>> parsed(b'{"began": 0}')
    {'began': 0}
    >>> parsed(b"[" * 100_000)
    ('crashed', 'handed back what is no event of this step')
    """
    try:
        event = json.loads(line, object_pairs_hook=_distinct, parse_constant=_refuse)
    except (ValueError, RecursionError, MemoryError):
        event = None
    return event if isinstance(event, dict) else NO_EVENT


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(constant)
