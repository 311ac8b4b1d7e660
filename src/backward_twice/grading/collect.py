"""``python -m backward_twice.grading.collect DOWNLOAD EXERCISE --into SUBMISSIONS``.

A platform's download of one exercise (an archive, or the folder that it was unpacked to) is sorted
into ``SUBMISSIONS/<student>/<exercise>/``, where the grader looks.  How the platform calls each
submission is kept in ``SUBMISSIONS/.collected/<exercise>.json``: by that the feedback finds its way
back (:mod:`.platforms.upload`).

Files are copied, not looked into, and no more of one than a notebook may have.  Only zips are
opened: the download itself, and a small one that a student handed in.
"""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import sys
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path, PurePosixPath

from backward_twice.grading import GradingError
from backward_twice.grading.master import read_masters
from backward_twice.grading.platforms.downloads import CANVAS, MOODLE, File, recognised
from backward_twice.grading.platforms.nbgrader.collected import MAX_NAME
from backward_twice.grading.platforms.upload import Collected, read_collected
from backward_twice.grading.roster import Roster, read_roster
from backward_twice.grading.submissions import MAX_BYTES, shown

_MOST_FILES = 20
_MOST_MEMBERS = 100_000
_UNREADABLE = (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError, OSError)

Content = tuple[bytes, int]
"""The bytes of a file up to what a notebook may have, and its whole size in bytes."""


def collect(
    download: Path, exercise: str, submissions: Path, roster: Roster | None = None
) -> tuple[str, int, list[str]]:
    """Sort a download into the folder of submissions.  Who was collected before is replaced.

    Returns:
        the platform, the number of submissions, and what there is to say of them.

    Raises:
        GradingError: it is no download, or nobody's work is in it.
        OSError: the folder of submissions cannot be written.
    """
    with _opened(download) as (paths, content):
        found = recognised(paths, download.stem if download.is_file() else download.name, exercise)
        if not found.files:
            raise GradingError(
                f"no submission found in {download}: give what the platform offers for download, "
                f"or a folder of <student>/{exercise}.ipynb"
            )
        folders, said = _folders(found.platform, found.files, roster)
        known = read_collected(submissions, exercise)
        if known.platform != found.platform:  # its keys are nothing to the other platform
            known = Collected(found.platform)
        by_folder: dict[str, list[File]] = defaultdict(list)
        for file in found.files:
            by_folder[folders[file.student, file.number]].append(file)
        for student, files in sorted(by_folder.items()):
            problems = _write(submissions / student, exercise, files, content)
            said += [f"{shown(student)}: {problem}" for problem in problems]
            # Canvas gives feedback back under the file's own name, so it goes to a notebook.
            keys = [f.key for f in files if found.platform != CANVAS or f.name.endswith(".ipynb")]
            known.keys[student] = keys[0] if keys else ""
            late = {student} if any(file.late for file in files) else set()
            known.late = sorted({*known.late} - {student} | late)
    if found.strays:
        listed = ", ".join(map(shown, found.strays[:5]))
        said.append(f"{len(found.strays)} files are nobody's by their names: {listed}")
    known.write(submissions, exercise)
    return found.platform, len(by_folder), said


@contextmanager
def _opened(download: Path) -> Iterator[tuple[list[str], Callable[[str], Content]]]:
    """The paths of a download's files, and how each is read."""
    if download.is_dir():
        yield _walked(download), lambda path: _read(download / path)
    elif zipfile.is_zipfile(download):
        with zipfile.ZipFile(download) as archive:
            members = {
                info.filename.replace("\\", "/"): info
                for info in archive.infolist()[:_MOST_MEMBERS]
                if not info.is_dir()
            }
            yield [*members], lambda path: _extracted(archive, members[path])
    elif download.exists():
        raise GradingError(
            f"{download} is neither a folder nor a zip; unpack it and give the folder"
        )
    else:
        raise GradingError(f"there is no {download}")


def _walked(folder: Path) -> list[str]:
    paths = []
    for above, inner, names in os.walk(folder):
        if ".git" in inner:  # that it is a clone is all there is to know
            inner.remove(".git")
            paths.append(str(Path(above, ".git", "HEAD").relative_to(folder)))
        paths += [str(Path(above, name).relative_to(folder)) for name in names]
        if len(paths) > _MOST_MEMBERS:
            raise GradingError(
                f"{folder} has more than {_MOST_MEMBERS} files: give only the download"
            )
    return paths


def _read(path: Path) -> Content:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise OSError("it is no file")
        return file.read(MAX_BYTES), info.st_size


def _extracted(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Content:
    if stat.S_ISLNK(info.external_attr >> 16):
        raise OSError("it is a link; links are not followed")
    with archive.open(info) as file:
        return file.read(MAX_BYTES), info.file_size


def _folders(
    platform: str, files: tuple[File, ...], roster: Roster | None
) -> tuple[dict[tuple[str, str], str], list[str]]:
    """How each student's folder is called: by the class list, or else by the platform's name."""
    students = sorted({(file.student, file.number) for file in files})
    alike = Counter(name.casefold() for name, _ in students)
    folders, said, unknown = {}, [], []
    for name, number in students:
        numbered = _folder(f"{name} {number}")
        person = roster and (roster.find(f"{name} {number}") or roster.find(name))
        if roster and person is None:
            unknown.append(numbered)
        # Canvas's number is the person's, Moodle's is another one in each assignment.
        clear = platform != CANVAS and alike[name.casefold()] == 1
        wanted = _folder(person.identifier) if person else _folder(name) if clear else numbered
        taken = folders.values()
        free = (wanted, numbered, *(f"{numbered} ({n})" for n in range(2, len(students) + 2)))
        folders[name, number] = next(each for each in free if each not in taken)
    if unknown:
        said.append(
            f"{len(unknown)} not found in the class list, or not one person there: "
            f"{', '.join(map(shown, unknown[:10]))}"
        )
    twins = sorted(name for name, number in alike.items() if number > 1)
    if platform == MOODLE and twins and (roster is None or unknown):
        said.append(
            f"several students are called {', '.join(map(shown, twins))}: kept apart by Moodle's "
            "number, which is another one in each assignment; with the assignment's grading "
            "worksheet as --roster they keep one name"
        )
    return folders, said


def _folder(name: str) -> str:
    """``name`` as a folder's."""
    plain = "".join(c if c.isprintable() and c not in '/\\:*?"<>|' else " " for c in name)
    return plain.strip(" .")[:MAX_NAME].strip(" .") or "no name"


def _write(
    student: Path, exercise: str, files: list[File], content: Callable[[str], Content]
) -> list[str]:
    """Put the files into the student's folder of the exercise, instead of what was there."""
    half = student / f".{exercise}.new"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    problems = []
    for file in _most_telling(files):
        try:
            head, size = content(file.path)
            inside = _inside(head) if file.name.lower().endswith(".zip") else {}
        except _UNREADABLE as error:
            problems.append(f"{shown(file.name)} cannot be read: {error}"[:300])
            continue
        for name, (start, length) in (inside or {file.name: (head, size)}).items():
            path = half / _free(half, name)
            path.write_bytes(start)
            if length > len(start):
                os.truncate(path, length)  # the grader is to see how large it was
    with suppress(FileNotFoundError):
        shutil.rmtree(student / exercise)
    half.rename(student / exercise)
    return problems


def _most_telling(files: list[File]) -> list[File]:
    """Notebooks first, those that lie nearest to the top first; not endlessly many."""
    return sorted(files, key=lambda f: (not f.name.endswith(".ipynb"), f.name.count("/"), f.name))[
        :_MOST_FILES
    ]


def _inside(head: bytes) -> Mapping[str, Content]:
    """The notebooks in a zip that a student handed in; none of a zip that is too large."""
    with suppress(*_UNREADABLE), zipfile.ZipFile(BytesIO(head)) as archive:
        notebooks = [
            info
            for info in archive.infolist()
            if info.filename.endswith(".ipynb")
            and not any(p.startswith((".", "__MACOSX")) for p in info.filename.split("/"))
        ]
        return {i.filename: _extracted(archive, i) for i in notebooks[:_MOST_FILES]}
    return {}


def _free(folder: Path, name: str) -> str:
    """A name in the folder that nothing there has: a subfolder's file says which subfolder."""
    parts = [_folder(part) for part in PurePosixPath(name).parts if part not in ("/", "..")]
    for first in reversed(range(len(parts))):
        if not (folder / (tried := "-".join(parts[first:])[-200:])).exists():
            return tried
    return f"{len(list(folder.iterdir()))}-{parts[-1] if parts else 'file'}"[:200]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m backward_twice.grading.collect",
        description="Sort what Moodle, Canvas or GitHub Classroom offer for download, or a folder, "
        "into SUBMISSIONS/<student>/<exercise>/.",
    )
    add = parser.add_argument
    add("download", type=Path, metavar="DOWNLOAD", help="the zip, or the folder it was unpacked to")
    add("exercise", metavar="EXERCISE", help="whose notebooks these are, such as two_losses")
    add("--into", type=Path, default=Path("submitted"), metavar="SUBMISSIONS")
    add("--roster", type=Path, metavar="CSV", help="the class list that your platform exports")
    add("--solutions", type=Path, metavar="DIR", default=Path("solutions"), help="the masters")
    options = parser.parse_args(arguments)
    try:
        exercises = read_masters(options.solutions)
        if options.exercise not in exercises:
            raise GradingError(
                f"there is no exercise {options.exercise!r}; there is {', '.join(exercises)}"
            )
        options.into.mkdir(parents=True, exist_ok=True)
        roster = read_roster(options.roster) if options.roster else None
        platform, number, said = collect(options.download, options.exercise, options.into, roster)
    except GradingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        where = f"{shown(os.fsdecode(error.filename))}: " if error.filename else ""
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        return 2
    print(f"{number} submissions of {options.exercise}, from {platform}")
    print(f"  {options.into}")
    for line in said:
        print(f"warning: {line}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
