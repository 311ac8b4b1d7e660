"""The progress of a long command: a line on standard error at each tenth."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Progress:
    """Counts how many of ``total`` tasks are done.

    >>> progress = Progress(2, sys.stdout)
    >>> progress.advance()
    1 of 2 done, 0:00 left
    >>> progress.advance()
    2 of 2 done, 0:00 left
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._total = total
        self._stream = stream or sys.stderr
        self._done = 0
        self._began = time.monotonic()

    def advance(self) -> None:
        """Count a task as done, and print the progress at each tenth of the total."""
        old_tenth = self._done * 10 // self._total
        self._done += 1
        if self._done * 10 // self._total > old_tenth:
            seconds_each = (time.monotonic() - self._began) / self._done
            minutes, seconds = divmod(round(seconds_each * (self._total - self._done)), 60)
            line = f"{self._done} of {self._total} done, {minutes}:{seconds:02} left"
            print(line, file=self._stream, flush=True)
