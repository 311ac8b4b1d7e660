"""A progress bar on standard error; where that is no terminal, a line at each tenth."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 30


class Progress:
    """How many of ``total`` things are done, and how long the rest will take.

    >>> with Progress(2, sys.stdout) as progress:
    ...     progress.advance()
    ...     progress.advance()
    1 of 2 done
    2 of 2 done
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._total = total
        self._stream = stream or sys.stderr
        self._bar = self._stream.isatty()
        self._done = 0
        self._began = time.monotonic()
        self._drawn = float("-inf")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar and self._done:
            self._draw()
            print(file=self._stream)

    def advance(self) -> None:
        """One more is done."""
        before = self._done * 10 // self._total
        self._done += 1
        if self._bar:
            if time.monotonic() - self._drawn > 0.1:
                self._draw()
        elif self._done * 10 // self._total > before:
            print(f"{self._done} of {self._total} done", file=self._stream, flush=True)

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        full = self._done * _WIDTH // self._total
        left = (self._drawn - self._began) / self._done * (self._total - self._done)
        minutes, seconds = divmod(round(left), 60)
        line = f"{'█' * full:░<{_WIDTH}} {self._done}/{self._total}, {minutes}:{seconds:02} left"
        print(f"\r{line}\033[K", end="", file=self._stream, flush=True)
