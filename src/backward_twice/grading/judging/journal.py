"""The journal of a grading, ``results.jsonl``: one line for each result, written immediately.

A later line of the same student and assignment replaces the earlier ones, which stay as the history
of the score; a line that says ``dropped`` removes all of them.  An incomplete last line, left when
the grader was killed, is deleted.  As classes are large, memory holds only an index of the lines.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from backward_twice.grading import GradingError
from backward_twice.grading.judging.grader import Json

Key = tuple[str, str]
"""Student and assignment."""


@dataclass(frozen=True)
class Score:
    """The points of a submission, and when it was graded (ISO 8601, UTC)."""

    points: float
    graded: str


@dataclass(frozen=True)
class _Line:
    digest: str
    begins: int
    length: int
    is_crash: bool
    score: Score


class Journal:
    """The results so far; open it with :func:`open_journal`."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._lines: dict[Key, list[_Line]] = {}
        self._end = 0

    def read(self, path: Path) -> None:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    self._index(json.loads(line), len(line))
                except (ValueError, KeyError, TypeError):
                    raise GradingError(
                        f"{path} is damaged in line {number}; delete that line "
                        "to grade its submission again"
                    ) from None
        os.ftruncate(self._file, self._end)

    def _index(self, entry: Json, length: int) -> None:
        if "dropped" in entry:
            student, assignment = entry["dropped"]
            self._lines.pop((student, assignment), None)
        else:
            result = entry["result"]
            score = Score(result["points"], entry.get("graded", ""))
            is_crash = result.get("again", False)
            line = _Line(entry["digest"], self._end, length, is_crash, score)
            self._lines.setdefault((result["student"], result["assignment"]), []).append(line)
        self._end += length

    def keys(self) -> set[Key]:
        """Return the students and assignments that have results."""
        return set(self._lines)

    def points(self, key: Key) -> list[Score]:
        """Return the scores except crashes; of several in a row with equal points, the first."""
        scores = [line.score for line in self._lines.get(key, ()) if not line.is_crash]
        return [next(same) for _, same in groupby(scores, key=lambda score: score.points)]

    def holds(self, key: Key, digest: str) -> bool:
        """Whether the key's last result has this digest, and is not from a grading that crashed."""
        lines = self._lines.get(key)
        return lines is not None and lines[-1].digest == digest and not lines[-1].is_crash

    def add(self, digest: str, result: Json) -> None:
        """Write a result, unless it and the digest equal the last ones of its submission."""
        key = (result["student"], result["assignment"])
        lines = self._lines.get(key)
        if lines is not None and lines[-1].digest == digest and self[key] == result:
            return
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._write({"digest": digest, "graded": now, "result": result})

    def drop(self, key: Key) -> None:
        """Remove a student's results for an assignment, so that no table shows them."""
        self._write({"dropped": key})

    def _write(self, entry: Json) -> None:
        """Append an entry; if that fails, the journal is unchanged."""
        line = json.dumps(entry, sort_keys=True).encode() + b"\n"
        try:
            written = 0
            while written < len(line):
                written += os.pwrite(self._file, line[written:], self._end + written)
        except OSError:
            os.ftruncate(self._file, self._end)
            raise
        self._index(entry, len(line))

    def __getitem__(self, key: Key) -> Json:
        """Return the last result of this student and assignment."""
        line = self._lines[key][-1]
        return json.loads(os.pread(self._file, line.length, line.begins))["result"]

    def close(self) -> None:
        os.close(self._file)

    def lock(self, path: Path) -> None:
        """Lock the journal, if the file system has locks; raise if it is locked already."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another grading is writing {path}; wait until it has ended"
            raise GradingError(message) from None
        except OSError:
            pass


@contextmanager
def open_journal(path: Path) -> Iterator[Journal]:
    """Open the journal for this process; raise GradingError if it is in use or damaged."""
    journal = Journal(path)
    try:
        journal.lock(path)
        journal.read(path)
        yield journal
    finally:
        journal.close()
