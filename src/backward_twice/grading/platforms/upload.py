"""Feedback in the form that Moodle's and Canvas's bulk upload take: one zip for each exercise.

* **Moodle**, *Upload multiple feedback files in a zip*: a file belongs to the participant whose
  number is in the folder's name, ``Ada Lovelace_4711_assignsubmission_file/two_losses.html``
  (``mod/assign/feedback/file/importziplib.php`` in github.com/moodle/moodle).
* **Canvas**, *Upload submissions*: a file belongs to the submission whose name it has, and is
  returned under the name with which it was handed in, so it is a notebook
  (``generate_comments_from_files`` in github.com/instructure/canvas-lms).
"""

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backward_twice.grading import GradingError, atomic
from backward_twice.grading.intake.unpacking import folder_name
from backward_twice.grading.platforms.downloads import CANVAS, FOLDER, MOODLE

_FOLDER = ".collected"


@dataclass
class Collected:
    """The origin of an exercise's submissions, by the names of the students' folders."""

    platform: str = FOLDER
    keys: dict[str, str] = field(default_factory=dict)  # the platform's keys of the submissions
    late: list[str] = field(default_factory=list)  # the folders that it marks as late
    students: dict[str, tuple[str, str]] = field(default_factory=dict)  # its name and number

    @property
    def folders(self) -> dict[tuple[str, str], str]:
        """Map each student's name and number to the student's folder."""
        return {(name, number): folder for folder, (name, number) in self.students.items()}

    def write(self, submissions: Path, exercise: str) -> None:
        """Write this record to the folder of submissions."""
        text = json.dumps(vars(self), indent=1, sort_keys=True)
        atomic.write(submissions / _FOLDER / f"{exercise}.json", text.encode())


def read_collected(submissions: Path) -> dict[str, Collected]:
    """Return the records of all exercises that have one."""
    records = {}
    for path in sorted((submissions / _FOLDER).glob("*.json")):
        try:
            records[path.stem] = Collected(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise GradingError(f"{path} is damaged; collect {path.stem} again") from error
    return records


Participant = tuple[str, str]
"""Name and number of somebody in an assignment of Moodle's."""


def write_upload(
    out: Path,
    exercise: str,
    collected: Collected,
    students: Mapping[str, Sequence[Participant] | None],
    autograded: Path,
) -> None:
    """Write ``out/upload/<exercise>.zip``, if the platform accepts an upload of feedback.

    ``students`` are their folders, each with the members of a group who get the feedback, or None.
    """
    if collected.platform not in (MOODLE, CANVAS):
        return
    path = out / "upload" / f"{exercise}.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic.replacing(path) as half, zipfile.ZipFile(half, "w") as archive:
        for student, members in students.items():
            key = collected.keys.get(student)
            file = out / "feedback" / student / exercise / f"{exercise}.html"
            if members is not None:
                names = [f"{_key(*member)}/{exercise}.html" for member in members]
            elif key and collected.platform == CANVAS:
                names, file = [key], autograded / student / exercise / f"{exercise}.ipynb"
            else:
                names = [f"{key}/{exercise}.html"] if key else []
            for name in names if file.is_file() else ():
                archive.writestr(zipfile.ZipInfo(name), file.read_bytes(), zipfile.ZIP_DEFLATED)


def _key(name: str, number: str) -> str:
    """Return the name of a participant's folder in Moodle's upload: "_" ends the name."""
    return f"{folder_name(name).replace('_', ' ')}_{number}_assignsubmission_file"
