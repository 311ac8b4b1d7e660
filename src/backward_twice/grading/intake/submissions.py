"""Read submissions, folders in which one notebook counts, without trusting their content.

A file is opened without following links and without waiting (a FIFO would block), checked through
the open descriptor, and read up to a limit.  Only JSON lists, objects and text are used.
"""

import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from backward_twice.grading import Rejected

MAX_BYTES = 5_000_000
"""The largest notebook that is read, in bytes."""

MAX_ENTRIES = 1_000
"""The most entries that a submission's folder may have."""

TIMESTAMP = "timestamp.txt"
"""The file beside a notebook with the time at which it was handed in."""

MAX_NAME = 128
"""The longest student's name, in characters: nbgrader's gradebook takes no longer one."""

_DENIED = "give the user who runs this access to it: chmod, chown"
_WAYS_OUT = {
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: "choose a folder that can be written",
}
_JOINERS = "\u200c\u200d"  # parts of words in several scripts, though they do not print
_ARCHIVE = re.compile(r"\.(zip|tar|tgz|gz|bz2|xz|7z|rar)$", re.I)
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?)"
    r" ?(?:UTC|GMT|Z|(?P<offset>[+-]\d\d:?\d\d))?"
)


@dataclass(frozen=True)
class SubmissionFolder:
    """The folder of a submission; ``problem`` is the reason why there is nothing to open."""

    student: str
    assignment: str
    problem: str | None = None


@dataclass(frozen=True)
class Handed:
    """The cells of a submission's notebook, remarks on it, and when it was handed in."""

    cells: list[dict[str, Any]]
    notes: tuple[str, ...]
    timestamp: str | None  # ISO 8601, in UTC without zone, as nbgrader's gradebook keeps it


def shown(name: str) -> str:
    r"""Return ``name`` fit for a line of text, with unprintable characters escaped.

    >>> shown("Zoë Müller"), shown("a\tb\udcff")
    ('Zoë Müller', 'a\\tb\\udcff')
    """
    return "".join(c if c.isprintable() or c in _JOINERS else repr(c)[1:-1] for c in name)


def in_words(error: OSError, place: str | os.PathLike[str]) -> str:
    """Describe an error, and its place: the file that the error names, or else ``place``.

    >>> in_words(OSError(30, "Read-only file system", "graded/secret"), "graded")
    'graded/secret: Read-only file system (choose a folder that can be written)'
    """
    way_out = f" ({_WAYS_OUT[error.errno]})" if error.errno in _WAYS_OUT else ""
    return f"{shown(os.fsdecode(error.filename or place))}: {error.strerror or error}{way_out}"


def entries(folder: str | int) -> list[os.DirEntry[str]]:
    """Return a folder's visible entries, by path or descriptor; raise Rejected for too many."""
    with os.scandir(folder) as iterator:
        visible = list(
            islice((entry for entry in iterator if not hidden(entry.name)), MAX_ENTRIES + 1)
        )
    if len(visible) > MAX_ENTRIES:
        raise Rejected(f"more than {MAX_ENTRIES} entries in the folder")
    return visible


def hidden(name: str) -> bool:
    """Whether a name begins with a dot or is ``__MACOSX``, so that no student chose it."""
    return name.startswith(".") or name == "__MACOSX"


def is_archive(name: str) -> bool:
    """Whether a file name has the ending of an archive."""
    return bool(_ARCHIVE.search(name))


def read(submissions: Path, place: SubmissionFolder) -> Handed:
    """Read the submission at ``place``; raise Rejected if it cannot be graded."""
    if place.problem:
        raise Rejected(place.problem)
    try:
        with _folder(submissions, place.student, place.assignment) as folder:
            name, notes = _notebook_in(folder, place.assignment)
            content = _read_bounded(folder, name)
            timestamp, remark = _timestamp_in(folder)
    except OSError as error:
        file_name = shown(error.filename) if isinstance(error.filename, str) else "it"
        raise Rejected(f"{file_name} cannot be read: {error.strerror}") from error
    return Handed(_cells(content), (*notes, *remark), timestamp)


@contextmanager
def _folder(root: Path, *names: str) -> Iterator[int]:
    """Open ``root/names...`` without following links below ``root``, and yield its descriptor."""
    opened = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
    try:
        for name in names:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            opened.append(os.open(name, flags, dir_fd=opened[-1]))
        yield opened[-1]
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _notebook_in(folder: int, assignment: str) -> tuple[str, list[str]]:
    """Return the name of the notebook that counts, and remarks on the choice."""
    names = sorted(entry.name for entry in entries(folder))
    expected = f"{assignment}.ipynb"
    notebooks = [name for name in names if name.endswith(".ipynb")]
    other_names = ", ".join(shown(name) for name in notebooks if name != expected)
    if expected in notebooks:
        return expected, [f"only {expected} counts, not {other_names}"] if other_names else []
    if len(notebooks) == 1:
        return notebooks[0], [f"named {other_names} instead of {expected}"]
    if notebooks:
        raise Rejected(f"no {expected}, and several notebooks with other names: {other_names}")
    if archives := [shown(name) for name in names if is_archive(name)]:
        raise Rejected(f"no notebook but an archive, {archives[0]}; hand in the notebook itself")
    if names:
        only = ", ".join(shown(name) for name in names[:5])
        raise Rejected(f"no notebook in the folder, only {only}")
    raise Rejected("nothing was handed in: the folder is empty")


def _read_bounded(folder: int, name: str, limit: int = MAX_BYTES) -> bytes:
    """Return the bytes of a file; reject one that is not regular or has more than ``limit``."""
    _only_regular(os.stat(name, dir_fd=folder, follow_symlinks=False), name)
    # Without O_NONBLOCK a FIFO put there meanwhile would wait for its writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
        info = os.fstat(file.fileno())
        _only_regular(info, name)
        content = b"" if info.st_size > limit else file.read(limit + 1)
    if info.st_size > limit or len(content) > limit:
        megabytes = max(info.st_size, len(content)) / 1e6
        raise Rejected(
            f"{shown(name)} is too large: {megabytes:.3g} MB, at most {limit / 1e6:g} MB"
        )
    return content


def _only_regular(info: os.stat_result, name: str) -> None:
    if stat.S_ISREG(info.st_mode):
        return
    kinds = {
        stat.S_IFLNK: "a link; links are not followed",
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
    }
    kind = kinds.get(stat.S_IFMT(info.st_mode), "a device")
    raise Rejected(f"{shown(name)} is not a file but {kind}")


def _timestamp_in(folder: int) -> tuple[str | None, list[str]]:
    """Return when the submission was handed in, and a remark if that cannot be read."""
    try:
        text = _read_bounded(folder, TIMESTAMP, 1000).decode().strip()
        return _utc(text).isoformat(), []
    except FileNotFoundError:
        return None, []
    except (Rejected, OSError, ValueError, OverflowError):
        return None, [f"{TIMESTAMP} contains no readable time"]


def _utc(text: str) -> datetime:
    """Parse nbgrader's ``2026-03-01 12:30:00.5 UTC``; its own parser takes +0100 as 100 seconds."""
    match = _TIMESTAMP.fullmatch(text)
    if not match:
        raise ValueError(text)
    time = datetime.fromisoformat(match[1] + (match["offset"] or ""))
    return time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time


def _cells(content: bytes) -> list[dict[str, Any]]:
    """Return the cells of a notebook of format 4; reject anything else, and an empty one."""
    if not content.strip():
        raise Rejected("the notebook is an empty file")
    try:
        notebook = json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise Rejected("the notebook is not UTF-8 text") from error
    except RecursionError as error:
        raise Rejected("the notebook is nested too deeply") from error
    except ValueError as error:
        raise Rejected(f"the notebook is not JSON: {error}") from error
    version = notebook.get("nbformat") if isinstance(notebook, dict) else None
    if type(version) is not int or not 0 < version < 1000:
        raise Rejected("it is JSON, but not a notebook")
    if version != 4:
        raise Rejected(f"it is a notebook of format {version}; save it as format 4")
    cells = notebook.get("cells")
    cells = [cell for cell in cells if isinstance(cell, dict)] if isinstance(cells, list) else []
    if not cells:
        raise Rejected("the notebook has no cells")
    return cells
