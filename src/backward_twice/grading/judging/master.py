"""The master of an exercise: the notebook that submissions are rebuilt from.

It is ``solutions/<name>/<name>.ipynb`` in nbgrader's format.  Three kinds of code cells matter:
answer cells (nbgrader's *solution* cells, whose sources a submission replaces), test cells
(nbgrader's *grade* cells, each of which calls ``check("<exercise>.<question>", ...)`` and has the
points), and the given cells between them, such as the imports.  The cell ``bootstrap``, cells that
must raise, and cells that only the solution shows are left out.
"""

import ast
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from backward_twice.cell_sources import defined_names, read
from backward_twice.grading import GradingError
from backward_twice.misconceptions import with_change

_LEFT_OUT_IDS = {"bootstrap"}
_LEFT_OUT_TAGS = {"raises-exception", "solution-only"}
_HEADING = re.compile(r"^#+\s+(.+?)\s*$", re.M)


@dataclass(frozen=True)
class GivenCell:
    """A code cell that the master brings and every submission runs."""

    id: str
    source: str


@dataclass(frozen=True)
class AnswerCell:
    """A cell that the learner writes."""

    id: str
    cell_id: str  # the notebook cell's own id, which survives where nbgrader's metadata does not
    defines: tuple[str, ...]  # the names that questions ask for; if none asks, all


@dataclass(frozen=True)
class QuestionCell:
    """A test cell."""

    id: str
    question: str  # "<exercise>.<question>"
    points: float
    answer: str  # the id of the answer cell that is asked
    title: str  # the heading above it


@dataclass(frozen=True)
class Master:
    """An exercise as it is graded: its cells in notebook order, and all ids of the notebook."""

    name: str
    cells: tuple[GivenCell | AnswerCell | QuestionCell, ...]
    known_ids: frozenset[str]

    @property
    def answers(self) -> list[AnswerCell]:
        return [cell for cell in self.cells if isinstance(cell, AnswerCell)]

    @property
    def questions(self) -> list[QuestionCell]:
        return [cell for cell in self.cells if isinstance(cell, QuestionCell)]

    @property
    def max_points(self) -> float:
        return sum(cell.points for cell in self.questions)

    @property
    def digest(self) -> str:
        """A digest of the name and the cells, with their questions and points."""
        cells = [[type(cell).__name__, *map(str, vars(cell).values())] for cell in self.cells]
        return hashlib.sha256(json.dumps([self.name, cells]).encode()).hexdigest()


@dataclass(frozen=True)
class Answers:
    """The sources of a submission's answer cells, in order, by the answer's id."""

    sources: Mapping[str, tuple[str, ...]]
    missing: Mapping[str, str]  # the reason for each missing answer
    notes: tuple[str, ...]  # for teacher and student

    @property
    def digest(self) -> str:
        """A digest of the sources, the missing answers and the notes."""
        parts = [sorted(self.sources.items()), sorted(self.missing.items()), self.notes]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def read_masters(solutions: Path) -> dict[str, Master]:
    """Read all masters, by name; raise GradingError if there is none, or one cannot be used."""
    # Path.glob would pass over a folder that cannot be read, and its exercise would be none.
    folders = filter(Path.is_dir, solutions.iterdir()) if solutions.is_dir() else []
    files = (path for folder in folders for path in folder.iterdir())
    paths = sorted(path for path in files if path.name == f"{path.parent.name}.ipynb")
    if not paths:
        raise GradingError(
            f"no master notebooks in {solutions}/<name>/<name>.ipynb: "
            "run this in the course's checkout, or say where they are with --solutions"
        )
    return {path.stem: read_master(path) for path in paths}


def read_master(path: Path) -> Master:
    """Read the master at ``path``.

    Raises GradingError if it is not a notebook, it has no test cell, or a test cell asks no
    question that exists, or for a name that no answer cell before it defines.
    """
    # Not where only read masters arrive: these take longer than all the rest.
    import nbformat

    try:
        notebook = nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises much, all of it about this file
        raise GradingError(f"the master {path} cannot be read: {error}") from error
    cells: list[GivenCell | AnswerCell | QuestionCell] = []
    requested: dict[str, set[str]] = {}
    ids = set()
    title = path.stem
    for cell in notebook.cells:
        nbgrader = cell.metadata.get("nbgrader", {})
        ids |= {cell.id, nbgrader.get("grade_id", cell.id)}
        if cell.cell_type != "code":
            headings = _HEADING.findall(cell.source)
            title = headings[-1] if headings else title
        elif nbgrader.get("solution"):
            names = tuple(sorted(defined_names(cell.source)))
            cells.append(AnswerCell(nbgrader["grade_id"], cell.id, names))
        elif nbgrader.get("grade"):
            asks, target = _question(cell.source, f"{path}, cell {nbgrader['grade_id']!r}")
            answers = [c for c in cells if isinstance(c, AnswerCell)]
            answer_id = next((c.id for c in reversed(answers) if target in c.defines), None)
            if answer_id is None:
                raise GradingError(f"{path}: no answer cell before {asks} defines {target!r}")
            requested.setdefault(answer_id, set()).add(target)
            cells.append(
                QuestionCell(
                    nbgrader["grade_id"], asks, float(nbgrader["points"]), answer_id, title
                )
            )
        elif cell.id not in _LEFT_OUT_IDS and _LEFT_OUT_TAGS.isdisjoint(
            cell.metadata.get("tags", ())
        ):
            cells.append(GivenCell(cell.id, cell.source))
    for number, cell in enumerate(cells):
        if isinstance(cell, AnswerCell) and cell.id in requested:
            cells[number] = replace(cell, defines=tuple(sorted(requested[cell.id])))
    master = Master(path.stem, tuple(cells), frozenset(ids))
    if not master.questions:
        raise GradingError(f"the master {path} has no test cell, so there is nothing to grade")
    return master


def _question(source: str, where: str) -> tuple[str, str]:
    """Return the one question that a test cell asks by ``check``, and the name it asks for."""
    from backward_twice.checks import question  # not at the top, as it imports torch

    calls = [
        node.args[0].value
        for node in ast.walk(read(source).tree or ast.Module([]))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "check"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ]
    if len(set(calls)) != 1:
        raise GradingError(f"{where}: a test cell asks one question, by check('<name>', …)")
    try:
        asked = question(calls[0])
        if asked.expect is None:
            with_change(calls[0], "solution", ())
        return calls[0], asked.answer
    except LookupError as error:
        raise GradingError(f"{where}: {error}") from error
