"""The directive ``{exercises}``: a table of the exercises, in the order of their chapters.

The facts about an exercise stand at the beginning of its solution notebook (:data:`OPENING`).
"""

import re
from pathlib import Path

import nbformat
from docutils import nodes
from ledger import LedgerDirective
from sphinx.application import Sphinx

OPENING = re.compile(
    r"# Solution: (?P<title>.+)\n\n"
    r"\*\*Chapter\*\*\s\[(?P<number>\d) · [^]]+\]"
    r"\(\.\./\.\./notebooks/(?P<chapter>\w+)\.ipynb\)\s·\s"
    r"\*\*Time\*\*\sabout\s(?P<minutes>\d+)\sminutes\s·\s"
    r"\*\*Difficulty\*\*\s(?P<difficulty>easy|medium|hard):\s[^·]+\s·\s"
    r"\*\*Hand\sin\*\*\s[^·]+\n\n\S"
)
_EASIEST_FIRST = ("easy", "medium", "hard")


class Exercises(LedgerDirective):
    """Renders the exercises as a table: chapter, links, folder, difficulty, time and points."""

    def run(self) -> list[nodes.Node]:
        exercises = []
        for path in Path(self.env.srcdir, "solutions").glob("*/*.ipynb"):
            self.env.note_dependency(str(path))
            cells = nbformat.read(path, as_version=4).cells
            opening = OPENING.match(cells[0].source)
            if opening is None:
                raise self.error(
                    f"{path.name} does not open as an exercise does: {OPENING.pattern}"
                )
            points = sum(cell.metadata.get("nbgrader", {}).get("points", 0) for cell in cells)
            difficulty = _EASIEST_FIRST.index(opening["difficulty"])
            place = opening["number"], difficulty, int(opening["minutes"])
            exercises.append((place, path.stem, opening, points))
        head = ["Chapter", "Exercise", "Folder", "Difficulty", "Time", "Points", "Solution"]
        rows = [self.exercise(*row) for _, *row in sorted(exercises)]
        return [self.table("exercises", [9, 32, 24, 10, 9, 7, 9], head, rows)]

    def exercise(self, name: str, opening: re.Match[str], points: int) -> nodes.row:
        cells = [
            self.link(opening["number"], f"notebooks/{opening['chapter']}"),
            self.link(opening["title"], f"exercises/{name}/{name}"),
            nodes.literal("", name),
            nodes.Text(opening["difficulty"]),
            nodes.Text(f"{opening['minutes']} min"),
            nodes.Text(str(points)),
            self.link("solution", f"solutions/{name}/{name}"),
        ]
        return self.row([nodes.paragraph("", "", cell) for cell in cells])


def setup(app: Sphinx) -> None:
    app.add_directive("exercises", Exercises)
