"""The programs that diagnosis is scored on: what each is, and the truth about it.

``manifest.toml`` tells of the programs in ``failing``.  A repaired twin lies in ``fixed``, where
only files that differ are kept.  ``advised`` has the programs with printed advice obeyed to the
letter: ``# obeys:`` at the top quotes what of the advice; where ``# differs:`` says why, the
gradients may differ from the twin's, but not what is trained, when, and by how many losses.
``layouts`` holds bugs, and layouts that each of them is put into, in the notation of
``tests/programs``.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from gradtrace.explaining.causes import CAUSES

HERE = Path(__file__).resolve().parent
FAILING, FIXED, ADVISED = "failing", "fixed", "advised"
LIBRARY = HERE / "layouts" / "site-packages"  # so named, it counts as not the user's

_HEAD = "import torch, torch.nn as nn, torch.nn.functional as F; torch.manual_seed(0)\n"

Place = tuple[str, int]


@dataclass(frozen=True)
class Case:
    """A program that fails, in a known way.

    ``families`` and ``causes`` are the answers that are right; no cause is right where the tool has
    no word for what happened.  ``raises`` is the line that raises, ``began`` where it began, and
    ``expert`` the line that somebody who knows would point at: (file, line), any of some, or none.
    ``together`` says why one step may have the gradient of several losses.  A case of no family is
    healthy: it has only what else is the twin, and nothing may be said of it.
    """

    name: str
    families: tuple[str, ...]
    causes: tuple[str, ...]
    raises: tuple[Place, ...] = ()
    began: tuple[Place, ...] = ()
    expert: tuple[Place, ...] = ()
    device: str = "cpu"
    together: str | None = None
    bug: str | None = None
    texts: dict[str, dict[str, str]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def main(self) -> str:
        return f"{self.name}.py"

    @property
    def silent(self) -> bool:
        return "silent" in self.families

    @property
    def healthy(self) -> bool:
        return not self.families

    @property
    def advised(self) -> list[str]:
        """The variants in which advice is obeyed."""
        return [variant for variant in self.texts if variant.startswith(ADVISED)]

    def says(self, variant: str, key: str) -> list[str]:
        """What the comments at the top of a variant say: ``# obeys: …``, ``# differs: …``."""
        return re.findall(rf"^# {key}: (.*)$", self.texts[variant][self.main], flags=re.M)

    def files(self, variant: str = FAILING) -> dict[str, str]:
        """The source of each file of the program; ``KeyError`` if there is no such variant."""
        return self.texts[FAILING] | self.texts[variant]


def cases() -> Iterator[Case]:
    """Those of the manifest, in its order."""
    with (HERE / "manifest.toml").open("rb") as file:
        manifest = tomllib.load(file)
    for name, entry in manifest.items():
        names = [f"{name}.py", *entry.get("helpers", ())]
        texts = {FAILING: _texts(FAILING, names), FIXED: _texts(FIXED, names)}
        for path in sorted((HERE / ADVISED).glob(f"{name}*.py")):
            label = path.stem.removeprefix(name)
            texts[ADVISED + label] = _texts(ADVISED, names, label)
        places = {key: _places(entry.get(key), name) for key in ("raises", "began", "expert")}
        yield Case(
            name,
            tuple(entry["families"]),
            tuple(entry["causes"]),
            **places,
            device=entry.get("device", "cpu"),
            together=entry.get("together"),
            texts=texts,
        )


def layouts() -> Iterator[Case]:
    """Each bug in each layout: the answer must not depend on how the lines are laid out."""
    for (bug, usual, raises, *exceptions), prelude in _parts("bugs"):
        for (layout,), body in _parts("layouts"):
            name = f"{bug}_{layout}"
            special = (exception.split(":") for exception in exceptions)
            answer = next((c for start, c in special if layout.startswith(start)), usual)
            causes = tuple(answer.split("|"))
            text = _HEAD + prelude + body
            raised = _tagged(text, raises)
            began = _tagged(text, "began") or _tagged(text, "first")
            yield Case(
                name,
                tuple({str(CAUSES[cause].family) for cause in causes}),
                causes,
                _places(raised, name),
                _places(began, name),
                bug=bug,
                texts={
                    FAILING: {f"{name}.py": _source(text, fixed=False)},
                    FIXED: {f"{name}.py": _source(text, fixed=True)},
                },
            )


def _parts(name: str) -> Iterator[tuple[list[str], str]]:
    """The words after ``===`` and the text of each part of a file of layouts."""
    text = (HERE / "layouts" / f"{name}.txt").read_text(encoding="utf-8")
    for part in re.split(r"^=== ", text, flags=re.M)[1:]:
        head, _, body = part.partition("\n")
        yield head.split(), body.rstrip("\n") + "\n"


def chosen(patterns: list[str]) -> list[Case]:
    """The cases and layouts of these bugs, or with names that begin so or match: ``*_map``."""
    programs = [*cases(), *layouts()]
    for pattern in patterns:
        if not any(_is_named(case, pattern) for case in programs):
            raise SystemExit(f"no case has a name like {pattern!r}")
    return [
        case
        for case in programs
        if not patterns or any(_is_named(case, pattern) for pattern in patterns)
    ]


def _is_named(case: Case, pattern: str) -> bool:
    return case.bug == pattern or fnmatchcase(case.name, pattern + "*")


def _texts(variant: str, names: list[str], label: str = "") -> dict[str, str]:
    """The files of a variant that are there; of a second one the names end in ``.label``."""
    paths = {file: HERE / variant / f"{file.removesuffix('.py')}{label}.py" for file in names}
    return {file: path.read_text(encoding="utf-8") for file, path in paths.items() if path.exists()}


def _places(value: int | str | list[int | str] | None, name: str) -> tuple[Place, ...]:
    """``12`` is a line of the program itself, ``"parts.py:12"`` one of a helper; or a list."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    named = [place if isinstance(place, str) else f"{name}.py:{place}" for place in values]
    return tuple((file, int(line)) for file, _, line in (place.rpartition(":") for place in named))


def _source(text: str, fixed: bool) -> str:
    """A ``#fix`` line stands in the repaired twin only, one that is ``bad`` in the broken one."""
    lines = []
    for line in text.splitlines():
        code, _, tags = line.partition("  #@ ")
        fix = re.match(r"(\s*)#fix (.*)", code)
        if fix:
            code = fix[1] + fix[2] if fixed else ""
        lines.append("" if fixed and "bad" in tags.split() else code)
    return "\n".join(lines) + "\n"


def _tagged(text: str, tag: str) -> list[int | str]:
    lines = enumerate(text.splitlines(), 1)
    return [number for number, line in lines if tag in line.partition("  #@ ")[2].split()]
