"""The zip that Gradescope takes as an autograder, made of the course's checkout.

The same checkout gives the same bytes.
"""

from __future__ import annotations

import json
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import backward_twice
import gradtrace
from backward_twice import checks, misconceptions
from backward_twice.grading import GradingError, atomic
from backward_twice.grading.judging.draws import read_draws
from backward_twice.grading.judging.master import read_masters
from backward_twice.grading.judging.modules import modules_of

_HERE = Path(__file__).parent
_MISCONCEPTIONS = Path(misconceptions.__file__).parent
_SCRIPTS = ("setup.sh", "run_autograder")
_CONSTRAINTS = "requirements.txt"


def contents(
    exercise: str,
    checkout: Path,
    private: Path | None = None,
    limits: Mapping[str, float] | None = None,
) -> Iterator[tuple[str, bytes]]:
    """Yield the names and bytes in the zip of ``exercise``, in order.

    Args:
        private: the teacher's folder of hidden variants and, if it is there, a secret.
        limits: those of :data:`.autograder.LIMITS` that are to be other than there.

    Raises:
        GradingError: there is no such exercise, or something private cannot be used.
    """
    masters = read_masters(checkout / "solutions")
    if exercise not in masters:
        raise GradingError(f"there is no exercise {exercise!r}; there is {', '.join(masters)}")
    for name in _SCRIPTS:
        yield name, (_HERE / name).read_bytes()
    yield "requirements.txt", "".join(f"{line}\n" for line in _needs(checkout)).encode()
    yield "constraints.txt", (checkout / _CONSTRAINTS).read_bytes()
    yield "limits.json", json.dumps(dict(limits or {})).encode()
    path = f"solutions/{exercise}/{exercise}.ipynb"
    yield path, (checkout / path).read_bytes()
    for package, above in ((backward_twice, "course"), (gradtrace, "tool")):
        folder = Path(package.__file__).parent
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts and is_shipped(file, exercise):
                yield f"{above}/{folder.name}/{file.relative_to(folder)}", file.read_bytes()
    if private is not None:
        with tempfile.TemporaryDirectory() as nothing:
            read_draws(Path(nothing), private, masters)
        for name in ("secret", f"{exercise}.py"):
            if (private / name).exists():
                yield f"private/{name}", (private / name).read_bytes()


def is_shipped(file: Path, exercise: str) -> bool:
    """Whether a file of our packages belongs in the zip of ``exercise``.

    No other exercise's questions and wrong answers do: they may be an exam's.
    """
    if file.parent == Path(checks.__file__).parent:
        return file in modules_of(exercise).values()
    if not file.is_relative_to(_MISCONCEPTIONS):
        return True
    folder, *inner = file.relative_to(_MISCONCEPTIONS).parts
    return not inner or folder == exercise


def _needs(checkout: Path) -> list[str]:
    """Return the requirements, without our own two packages, which are in the zip.

    Cells import gradtrace without its extras, so no widget and no plot is among it.
    """
    tool, course = (
        tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in (checkout / "gradtrace", checkout)
    )
    return [*tool["dependencies"], *course["optional-dependencies"]["sandbox"]]


def write(
    exercise: str,
    checkout: Path,
    into: Path,
    private: Path | None = None,
    limits: Mapping[str, float] | None = None,
) -> Path:
    """Write ``into/<exercise>.zip`` with what :func:`contents` gives; its path.

    Raises:
        GradingError: there is no such exercise, or something private cannot be used.
    """
    files = list(contents(exercise, checkout, private, limits))
    into.mkdir(parents=True, exist_ok=True)
    path = into / f"{exercise}.zip"
    with atomic.replacing(path) as half:
        half.unlink(missing_ok=True)  # of a run that was killed, with the mode it had
        half.touch(mode=0o600 if private else 0o644)
        with zipfile.ZipFile(half, "w") as archive:
            for name, content in files:
                info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = (0o100755 if name in _SCRIPTS else 0o100644) << 16
                archive.writestr(info, content)
    return path
