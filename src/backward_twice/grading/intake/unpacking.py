"""List the files of a download, unpack its zips, and copy the files into a student's folder.

Unpacking a student's zip may take any amount of time and memory, so these functions are called in a
process with limits (:class:`.Limited`).
"""

import errno
import os
import shutil
import stat
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from io import BytesIO
from pathlib import Path, PurePosixPath

from backward_twice.grading import GradingError
from backward_twice.grading.intake.submissions import MAX_BYTES, MAX_NAME, in_words, shown

_MOST_FILES = 20
_MOST_MEMBERS = 100_000
_LARGEST = 1 << 30  # bytes that a file is made to look like
_LONGEST_NAME = 200  # bytes
_OF_THE_FILE = (None, errno.ELOOP, errno.ENXIO)
"""Errors that say what a file is (a link, a socket), and not that it cannot be read here."""

Content = tuple[bytes, int]
"""The bytes of a file up to what a notebook may have, and its whole size in bytes."""


def listed(download: Path) -> list[str]:
    """Return the paths of a download's files; raise GradingError if it is none, or has too many."""
    if download.is_dir():
        return _walked(download)
    if not download.exists():
        raise GradingError(f"there is no {download}")
    with download.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise GradingError(
                f"{download} is neither a folder nor a zip: unpack it and give the folder"
            )
    return [*_members(download)[1]]


@cache
def _members(download: Path) -> tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]:
    """Open the zip, which stays open for further calls; return it, and its files by path."""
    try:
        archive = zipfile.ZipFile(download)
    except Exception as error:  # zipfile and its decompressors raise many kinds
        raise GradingError(f"{download} cannot be read: {error}") from error
    infos = archive.infolist()
    _check_number(download, len(infos))
    return archive, {i.filename.replace("\\", "/"): i for i in infos if not i.is_dir()}


def _content(download: Path, path: str) -> Content:
    if download.is_dir():
        return _read(download / path)
    archive, members = _members(download)
    return _extracted(archive, members[path])


def _walked(folder: Path) -> list[str]:
    def stop(error: OSError) -> None:
        raise error  # else whoever's work lies there would be left out in silence

    paths = []
    for above, inner, names in os.walk(folder, onerror=stop):
        if ".git" in inner:  # that it is a clone is all there is to know
            inner.remove(".git")
            paths.append(str(Path(above, ".git", "HEAD").relative_to(folder)))
        paths += [str(Path(above, name).relative_to(folder)) for name in names]
        _check_number(folder, len(paths))
    return paths


def _check_number(download: Path, files: int) -> None:
    if files > _MOST_MEMBERS:
        raise GradingError(f"{download} has more than {_MOST_MEMBERS} files: give a part of it")


def _read(path: Path) -> Content:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise OSError("it is not a file")
        return file.read(MAX_BYTES), info.st_size


def _extracted(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Content:
    if stat.S_ISLNK(info.external_attr >> 16):
        raise OSError("it is a link; links are not followed")
    with archive.open(info) as file:
        return file.read(MAX_BYTES), info.file_size


def folder_name(name: str) -> str:
    """Return ``name`` without characters that file systems refuse, shortened; or "no name"."""
    short = _plain(name)[:MAX_NAME].encode()[:_LONGEST_NAME].decode(errors="ignore")
    return short.strip(" .") or "no name"


def _plain(name: str) -> str:
    return "".join(c if c.isprintable() and c not in '/\\:*?"<>|' else " " for c in name).strip(
        " ."
    )


def copied(
    download: Path,
    files: Iterable[tuple[str, str]],
    student: Path,
    exercise: str,
    look_inside: bool = True,
) -> list[str]:
    """Replace the content of a student's folder for an exercise with files of the download.

    ``files`` are paths in the download, each with its name; ``look_inside`` takes notebooks out of
    zips.  Returns remarks; a single one, and nothing is replaced, if the download cannot be read.
    """
    half = student / f".{exercise}.new"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    problems = []
    for path, name in sorted(files, key=_place)[:_MOST_FILES]:
        try:
            head, size = _content(download, path)
        except Exception as error:  # zipfile and its decompressors raise many kinds
            if isinstance(error, OSError) and error.errno not in _OF_THE_FILE:
                shutil.rmtree(half)
                with suppress(OSError):  # there is something from before
                    student.rmdir()
                return [f"{in_words(error, path)}; the earlier collection stays unchanged"]
            problems.append(f"{shown(name)} cannot be read: {error}"[:300])
            continue
        members = _inside(head) if look_inside and name.lower().endswith(".zip") else {}
        for inner, (start, length) in (members or {name: (head, size)}).items():
            written = half / _free(half, inner)
            written.write_bytes(start)
            if length > len(start):
                os.truncate(written, min(length, _LARGEST))  # the grader is to see that it is large
    with suppress(FileNotFoundError):
        shutil.rmtree(student / exercise)
    half.rename(student / exercise)
    return problems


def _place(file: tuple[str, str]) -> tuple[bool, int, str]:
    """Return the place of a file among others: notebooks and shallow paths come first."""
    name = file[1]
    return not name.endswith(".ipynb"), name.count("/"), name


def _inside(head: bytes) -> Mapping[str, Content]:
    """Return the notebooks in a student's zip; none if it cannot be read or is too large."""
    with suppress(Exception), zipfile.ZipFile(BytesIO(head)) as archive:
        notebooks = [
            info
            for info in archive.infolist()
            if info.filename.endswith(".ipynb")
            and not any(p.startswith((".", "__MACOSX")) for p in info.filename.split("/"))
        ]
        return {i.filename: _extracted(archive, i) for i in notebooks[:_MOST_FILES]}
    return {}


def _free(folder: Path, name: str) -> str:
    """Return an unused name in the folder, with names of subfolders prepended if it is taken."""
    parts = [plain for part in PurePosixPath(name).parts if (plain := _plain(part))]
    for first in reversed(range(len(parts))):
        if not (folder / (tried := _short("-".join(parts[first:])))).exists():
            return tried
    return _short(f"{len(list(folder.iterdir()))}-{parts[-1] if parts else 'file'}")


def _short(name: str) -> str:
    """Shorten a name to the length that a file system takes, keeping its informative end."""
    return name.encode()[-_LONGEST_NAME:].decode(errors="ignore").lstrip(" .")
