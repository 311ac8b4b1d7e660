"""The journal of a grading, ``results.jsonl``: one line a result, written as soon as there is one.

It is what an interrupted grading goes on from, and what gradebook, tables and feedback are made of.
A later line of the same student and assignment stands for the earlier; one that says ``dropped``
takes them out.  A line that was torn when the grader was killed is cut off.  In memory there is
only where each line lies, so that the size of a class does not matter.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from backward_twice.grading import GradingError
from backward_twice.grading.run.judge import Json

Key = tuple[str, str]
"""Student and assignment."""


@dataclass(frozen=True)
class _Line:
    digest: str
    begins: int
    length: int
    again: bool


class Journal:
    """The results so far; open it with :func:`open_journal`."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._lines: dict[Key, _Line] = {}
        self._end = 0

    def read(self, path: Path) -> None:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    entry = json.loads(line)
                    if "dropped" in entry:
                        student, assignment = entry["dropped"]
                        self._forget((student, assignment), len(line))
                    else:
                        self._index(entry["digest"], entry["result"], len(line))
                except (ValueError, KeyError, TypeError):
                    raise GradingError(
                        f"{path} is damaged in line {number}; delete that line, "
                        "and what it said is graded anew"
                    ) from None
        os.ftruncate(self._file, self._end)

    def _index(self, digest: str, result: Json, length: int) -> None:
        line = _Line(digest, self._end, length, result.get("again", False))
        self._lines[result["student"], result["assignment"]] = line
        self._end += length

    def _forget(self, key: Key, length: int) -> None:
        self._lines.pop(key, None)
        self._end += length

    def keys(self) -> set[Key]:
        """Whose results there are."""
        return set(self._lines)

    def holds(self, key: Key, digest: str) -> bool:
        """Whether what has this digest was graded, and need not be again."""
        line = self._lines.get(key)
        return line is not None and line.digest == digest and not line.again

    def add(self, digest: str, result: Json) -> None:
        """Write a result down.  One that is there already is not written again.

        Raises:
            OSError: it cannot be written; the journal stays as it was.
        """
        key = (result["student"], result["assignment"])
        known = self._lines.get(key)
        if known is not None and known.digest == digest and self[key] == result:
            return
        self._index(digest, result, self._write({"digest": digest, "result": result}))

    def drop(self, key: Key) -> None:
        """Take a student's result out: it is in no table any more.

        Raises:
            OSError: it cannot be written; the journal stays as it was.
        """
        self._forget(key, self._write({"dropped": key}))

    def _write(self, entry: Json) -> int:
        line = json.dumps(entry, sort_keys=True).encode() + b"\n"
        try:
            written = 0
            while written < len(line):
                written += os.pwrite(self._file, line[written:], self._end + written)
        except OSError:
            os.ftruncate(self._file, self._end)
            raise
        return len(line)

    def __getitem__(self, key: Key) -> Json:
        """The last result of this student and assignment."""
        line = self._lines[key]
        return json.loads(os.pread(self._file, line.length, line.begins))["result"]

    def close(self) -> None:
        os.close(self._file)

    def lock(self) -> bool:
        """Whether this process has the journal for itself."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass  # a file system without locks
        return True


@contextmanager
def open_journal(path: Path) -> Iterator[Journal]:
    """The journal at ``path``, for this process alone.

    Raises:
        GradingError: another process is writing it, or it is damaged.
        OSError: it cannot be written.
    """
    journal = Journal(path)
    try:
        if not journal.lock():
            raise GradingError(f"another grading is writing {path}; wait until it has ended")
        journal.read(path)
        yield journal
    finally:
        journal.close()
