"""A platform's download of one exercise: the student of each file, by the platform's naming.

No file is opened here; only names decide.  The formats are those of the platforms' own code, which
a change should follow:

* **Moodle** (``mod/assign/classes/downloader.php`` in github.com/moodle/moodle): ``Ada
  Lovelace_4711_assignsubmission_file/…``, until 4.0 with ``_`` before the slash, and if a teacher
  chose one flat folder ``Ada Lovelace_4711_assignsubmission_file_two_losses.ipynb``.  Every ``_``
  of a name became a space, and quotes and apostrophes are left out (``clean_filename``).  The
  number is the participant's in this one assignment; ``Participant_4711`` if names are hidden.  If
  a group hands in together, name and number are the group's, with one folder for the group, or
  ``Default group`` without a number; until 4.0 each member's folder, with the group's name before
  the member's, ``Group A-Ada Lovelace_4711`` (``mod/assign/locallib.php`` there).
* **Canvas** (``lib/content_zipper.rb`` in github.com/instructure/canvas-lms):
  ``lovelaceada_101_5551_two_losses.ipynb``: name, the user's number, the file's number; ``LATE_``
  before the numbers; ``anon_x7Yz1`` in place of name and number if names are hidden.
* **GitHub Classroom** (``gh classroom clone student-repos``; github.com/github/gh-classroom):
  ``two-losses-submissions/two-losses-ada/``, clones with their ``.git``.
* **a folder** that somebody filled by hand: ``ada/…/two_losses.ipynb``, ``ada.ipynb`` or
  ``ada_two_losses.ipynb``.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import takewhile

MOODLE, CANVAS, GITHUB, FOLDER = "Moodle", "Canvas", "GitHub Classroom", "folder"

HIDDEN = "Participant"
"""How Moodle calls everybody whose name is hidden; only the number tells them apart."""

_MOODLE = re.compile(r"([^_]+)(?:_(\d+))?_assignsubmission_([a-z]+)(?:_(.*))?")
_CANVAS = re.compile(r"(.+?)_(LATE_)?(\d+)_(\d+)_(.+)|(LATE_)?anon_([^_]+)_(\d+)_(.+)")
_CANVAS_TEXT = re.compile(r"(.+?)_(LATE_)?(\d+)_(?:text|link)\.html")


@dataclass(frozen=True)
class File:
    """A file of a download: its student, and its name without the platform's additions."""

    path: str  # its path in the download, with ``/`` between the parts
    student: str  # the name that the platform gives
    number: str  # the platform's number of the student, text of digits, or ""
    name: str  # the file's own name, preceded by the student's subfolders
    key: str = ""  # identifies the submission when feedback is uploaded
    late: bool = False  # whether the platform marks it as late


@dataclass(frozen=True)
class Download:
    """A platform's download: its files, and the paths that belong to no student."""

    platform: str
    files: tuple[File, ...]
    strays: tuple[str, ...] = ()


def recognised(paths: Iterable[str], root: str, exercise: str) -> Download:
    """Recognise the platform and each file's student by the paths; ``root`` names the download."""
    paths = sorted(paths)
    visible = [path for path in paths if not _hidden(path)]
    lost = [path for path in paths if _hidden(path) and not _is_nobodys(path)]
    clones = sorted({path.split("/.git/")[0] for path in paths if "/.git/" in path})
    in_clones = _of_clones(clones, root, exercise) if clones else None
    depth = _around(visible)

    def most(reader: Callable[[str], File | None]) -> bool:
        """Whether the reader recognises a file in more than half of the entries at ``depth``."""
        tops: dict[str, bool] = {}
        for path in visible:
            top = path.split("/")[depth]
            tops[top] = tops.get(top, False) or reader(path) is not None
        return 2 * sum(tops.values()) > len(tops)

    if most(_moodle):
        platform, reader = MOODLE, _moodle
    elif len({path.rpartition("/")[0] for path in visible}) == 1 and most(_canvas):  # no folders
        platform, reader = CANVAS, _canvas
    elif in_clones and most(in_clones):
        platform, reader = GITHUB, in_clones
    else:
        platform, reader = FOLDER, _of_folder(depth, exercise)
    files = {path: reader(path) for path in visible}
    return Download(
        platform,
        tuple(
            # As one text: an archive and the folder that it was unpacked to may write ë otherwise.
            replace(file, student=unicodedata.normalize("NFC", file.student))
            for file in files.values()
            if file is not None
        ),
        (*(path for path, file in files.items() if file is None), *lost),
    )


def _hidden(path: str) -> bool:
    """Whether a path is hidden; a dot that begins a person's name in Moodle does not count."""
    return any(
        part == "__MACOSX" or (part.startswith(".") and not _MOODLE.fullmatch(part))
        for part in path.split("/")
    )


def _is_nobodys(path: str) -> bool:
    """Whether a hidden path is no notebook, or is a program's, such as one in ``.git``."""
    hidden = [part for part in path.split("/") if part.startswith((".", "__MACOSX"))]
    return not path.endswith(".ipynb") or any(
        part.startswith(("._", ".ipynb_checkpoints", ".git", ".Trash", "__MACOSX"))
        for part in hidden
    )


def _moodle(path: str) -> File | None:
    parts = path.split("/")
    for place, part in enumerate(parts):
        if match := _MOODLE.fullmatch(part):
            student, number, _, rest = match.groups()
            inner = "/".join(filter(None, [rest or "", *parts[place + 1 :]]))
            if place + 1 == len(parts):  # all in one folder
                part = part.removesuffix(rest or "")
            return File(path, student.strip(), number or "", inner, part) if inner else None
    return None


def _canvas(path: str) -> File | None:
    base = path.rsplit("/", 1)[-1]
    if text := _CANVAS_TEXT.fullmatch(base):
        return File(path, text[1], text[3], base.removeprefix(f"{text[1]}_"), "", bool(text[2]))
    match = _CANVAS.fullmatch(base)
    if not match:
        return None
    student, late, user, _, name, late_anonymous, anonymous, _, its_name = match.groups()
    if anonymous:
        return File(path, f"anon {anonymous}", "", its_name, base, bool(late_anonymous))
    return File(path, student, user, name, base, bool(late))


def _of_clones(clones: list[str], root: str, exercise: str) -> Callable[[str], File | None]:
    """Return a reader of clones: the student is the clone's name without the common prefix."""
    bases = [clone.rsplit("/", 1)[-1] for clone in clones]
    above = (clones[0].rsplit("/", 1)[0] if "/" in clones[0] else root).rsplit("/", 1)[-1]
    columns = zip(*(base.split("-")[:-1] for base in bases), strict=False)
    shared = "-".join(parts[0] for parts in takewhile(lambda parts: len({*parts}) == 1, columns))
    prefixes = (above.removesuffix("-submissions"), exercise.replace("_", "-"), shared)
    prefixes = (f"{prefix}-" for prefix in prefixes if prefix)
    prefix = next((p for p in prefixes if all(base.startswith(p) for base in bases)), "")

    def reader(path: str) -> File | None:
        clone = next((clone for clone in clones if path.startswith(f"{clone}/")), None)
        if clone is None:
            return None
        base = clone.rsplit("/", 1)[-1]
        return File(path, base.removeprefix(prefix) or base, "", path.removeprefix(f"{clone}/"))

    return reader


def _around(paths: list[str]) -> int:
    """Count the leading folders that all paths share, without the last two parts of each path."""
    split = [path.split("/") for path in paths]
    depth = 0
    while split and all(len(parts) > depth + 2 for parts in split):
        if len({parts[depth] for parts in split}) > 1:
            break
        depth += 1
    return depth


def _of_folder(around: int, exercise: str) -> Callable[[str], File | None]:
    """Return a reader that takes the student from a folder or file, ``around`` levels down."""

    def reader(path: str) -> File | None:
        parts = path.split("/")[around:]
        if len(parts) > 1:
            return File(path, parts[0], "", "/".join(parts[1:]))
        stem, dot, ending = parts[0].rpartition(".")
        if ending != "ipynb":
            return None
        student = re.sub(rf"^{exercise}[\s_-]+|[\s_-]+{exercise}$", "", stem, flags=re.I)
        return File(path, student, "", parts[0]) if dot and student else None

    return reader
