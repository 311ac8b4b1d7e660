"""Frequent wrong answers of learners, each stored as a change of the right one.

``<exercise>/<question>.diff`` lists the misconceptions about a question.  Each begins with a line
``# <name>: <reply>``: the reply quotes a learner with the misconception, and explains why that is
wrong.  The lines below it change the answer cell of the stored solution:

- `` line`` keeps the answer up to the next line that is equal to it, and that line;
- ``-line`` keeps the answer up to that line, and deletes the line;
- ``-...`` deletes all lines up to the next one that is named, or to the end;
- ``+line`` adds a line.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from backward_twice.cell_sources import defined_names, needed, read, used_names

FOLDER = Path(__file__).parent
_ALL = "..."


class OutdatedChange(ValueError):
    """A change names a line that the stored answer does not have."""


@dataclass(frozen=True)
class Misconception:
    """A wrong answer: its name, the reply to the same result, and the source of the answer cell."""

    name: str
    reply: str
    source: str
    context: str  # the definitions and imports that it uses from the exercise's other cells

    def answer(self, name: str) -> Any:
        """Run the cell, and return what it defines as ``name``."""
        namespace: dict[str, Any] = {"__name__": "misconception"}
        for source in (self.context, self.source):
            exec(_compiled(source), namespace)
        return namespace[name]


_compiled = cache(partial(compile, filename="<string>", mode="exec"))


@cache
def misconceptions_of(question: str) -> tuple[Misconception, ...]:
    """Return the misconceptions about a question ``"<exercise>.<question>"``, in stored order."""
    exercise, _, name = question.partition(".")
    path = FOLDER / exercise / f"{name}.diff"
    if not path.is_file():
        return ()  # such as for a teacher's own question
    return tuple(
        with_change(question, title, change)
        for title, change in _sections(path.read_text(encoding="utf-8"))
    )


def with_change(question: str, title: str, change: Sequence[str]) -> Misconception:
    """Return a misconception: the stored answer, changed; the title is ``"<name>: <reply>"``.

    Raises LookupError if no stored solution answers the question.
    """
    exercise, _, name = question.partition(".")
    grade_id, cells = f"answer-{name.replace('_', '-')}", code_cells(exercise)
    if grade_id not in dict(cells):
        raise LookupError(f"there is no stored solution with the cell {grade_id!r}")
    # Marks of nbgrader, such as "### BEGIN SOLUTION", are no lines of the answer.
    lines = dict(cells)[grade_id].splitlines()
    answer = [line for line in lines if not line.strip().startswith("### ")]
    source = changed(answer, change, f"{question}: {title}")
    defined = defined_names(source)
    others = [read(other).text for id, other in cells if id != grade_id]
    context = "\n".join(needed(used_names(source) - defined, others, defined))
    title_name, _, reply = title.partition(": ")
    return Misconception(title_name, reply, source, context)


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """Return the title of each misconception in a file, and the lines of its change."""
    _, *sections = f"\n{text}".split("\n# ")
    for section in sections:
        title, *change = section.splitlines()
        yield title, change


@cache
def code_cells(exercise: str) -> tuple[tuple[str, str], ...]:
    """Return grade id (or "") and source of the solution's code cells that the exercise has too."""
    if not solution(exercise).is_file():
        return ()
    return tuple(
        (cell["metadata"].get("nbgrader", {}).get("grade_id", ""), "".join(cell["source"]))
        for cell in json.loads(solution(exercise).read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code" and "solution-only" not in cell["metadata"].get("tags", ())
    )


def solution(exercise: str) -> Path:
    """Return the path of an exercise's solution, in a checkout or in an installed package."""
    path = Path("solutions", exercise, f"{exercise}.ipynb")
    checkout = FOLDER.parents[2] / path
    return checkout if checkout.exists() else FOLDER.parent / path


def changed(answer: Sequence[str], change: Sequence[str], where: str) -> str:
    """Apply a change to the lines of an answer, and return the result as source.

    Raises:
        OutdatedChange: a line of the change is not among the lines that follow in the answer.

    >>> changed(["a = 1", "b = a"], ["-b = a", "+b = 2"], "example")
    'a = 1\\nb = 2\\n'
    """
    result, position, omitting = [], 0, False
    for line in change:
        sign, text = line[:1], line[1:]
        if sign == "+":
            result.append(text)
        elif line == f"-{_ALL}":
            omitting = True
        elif sign in ("-", " ") and text in answer[position:]:
            following = answer.index(text, position)
            result += [] if omitting else answer[position:following]
            result += [text] if sign == " " else []
            position, omitting = following + 1, False
        else:
            raise OutdatedChange(f"{where}: the stored answer has no such line here: {line!r}")
    result += [] if omitting else answer[position:]
    return "".join(f"{line}\n" for line in result)
