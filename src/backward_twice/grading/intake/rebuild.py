"""Rebuild a submission from the master: only the sources of the answer cells are the student's.

Definitions in the student's other cells that an answer uses (an import, a helper, a constant) are
put before it, and are trusted as little as the answer.  Nothing else in these cells is run: no
plot, no training, and no setting that would affect the whole notebook.

An answer cell is recognised by its grade id; without metadata, by the cell's own id; without that,
by the name that it defines.  If a cell was split or copied, several cells have its id: they run in
the notebook's order, joined into one if only the whole is valid Python.  Some front ends give the
second part of a split cell no id: it is recognised because it is not valid Python by itself.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backward_twice.cell_sources import (
    MAX_CHARACTERS,
    defined_names,
    needed,
    read,
    used_names,
)
from backward_twice.grading.intake.submissions import Rejected
from backward_twice.grading.judging.master import AnswerCell, Answers, GivenCell, Master

_MOST_PARTS = 20
_SHOWN = 60  # characters of a name


@dataclass(frozen=True)
class _Cell:
    """A cell of a student's notebook, with every field of the right type."""

    kind: str
    source: str
    grade_id: str | None
    cell_id: str | None


def answers(
    cells: list[dict[str, Any]], master: Master, masters: Mapping[str, Master] | None = None
) -> Answers:
    """Extract the answers to ``master`` from a notebook's cells, whose content is not trusted.

    The ``masters`` of all exercises serve to recognise another one's cells.  Raises Rejected if
    there is no answer cell, or if the answers are too long.
    """
    handed = [_read(cell) for cell in cells]
    sources: dict[str, tuple[str, ...]] = {}
    missing: dict[str, str] = {}
    notes: list[str] = []
    taken: set[int] = set()
    for answer in master.answers:
        indices, remark = _cells_of(answer, handed, master)
        taken |= set(indices)
        code = [handed[i].source for i in indices if handed[i].kind == "code"]
        if code:
            sources[answer.id] = _parts(code)
            notes += [remark] if remark else []
        else:
            kind = f" a code cell but {handed[indices[0]].kind}" if indices else " there"
            missing[answer.id] = f"the answer cell is not{kind}"
    if not sources:
        raise Rejected(_whose(handed, master, masters or {}))
    other_sources = [
        cell.source
        for i, cell in enumerate(handed)
        if cell.kind == "code" and i not in taken and not _is_test(cell, master)
    ]
    notes += _with_what_they_use(sources, other_sources, master)
    notes += _defined_elsewhere(handed, taken, sources, master)
    sources, remarks = _without_installs(sources)
    notes += remarks
    length = sum(len(part) for parts in sources.values() for part in parts)
    if length > MAX_CHARACTERS:
        raise Rejected(f"the answers have {length} characters; at most {MAX_CHARACTERS} may run")
    return Answers(sources, missing, tuple(notes))


def _read(cell: dict[str, Any]) -> _Cell:
    """Convert a cell of untrusted JSON to a ``_Cell``; each invalid field has a default."""
    source = cell.get("source")
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    source = source if isinstance(source, str) else ""
    metadata = cell.get("metadata")
    nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    grade_id = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None
    cell_id, kind = cell.get("id"), cell.get("cell_type")
    return _Cell(
        kind if kind in ("code", "markdown", "raw") else "of an unknown kind",
        source.encode(errors="replace").decode(),  # JSON may hold halves of characters
        grade_id if isinstance(grade_id, str) else None,
        cell_id if isinstance(cell_id, str) else None,
    )


def _is_masters(cell: _Cell, master: Master) -> bool:
    return cell.grade_id in master.known_ids or cell.cell_id in master.known_ids


def _cells_of(answer: AnswerCell, handed: list[_Cell], master: Master) -> tuple[list[int], str]:
    """Return the indices of the answer's cells, in the notebook's order, and a remark."""
    names = "|".join(map(re.escape, answer.defines))
    defines = re.compile(rf"^(?:(?:async +def|def|class) +)?(?:{names})\s*(?:\(|:|=(?!=))", re.M)
    indices = [i for i, cell in enumerate(handed) if cell.grade_id == answer.id]
    indices = indices or [i for i, cell in enumerate(handed) if cell.cell_id == answer.cell_id]
    remark = ""
    if not any(handed[i].kind == "code" and defines.search(handed[i].source) for i in indices):
        named = [
            i
            for i, cell in enumerate(handed)
            if cell.kind == "code" and not _is_masters(cell, master) and defines.search(cell.source)
        ]
        if named:
            remark = f"a cell without an id was taken as {answer.id}, whose name it defines"
        indices = sorted({*indices, *named})
    return _with_rest(indices, handed, master), remark


def _with_rest(indices: list[int], handed: list[_Cell], master: Master) -> list[int]:
    """Return the indices, and those of the next cells if only the joined code is valid Python."""
    for _ in range(_MOST_PARTS if indices else 0):
        part = next(
            (i for i in range(indices[-1] + 1, len(handed)) if handed[i].kind == "code"), -1
        )
        if part < 0 or _is_masters(handed[part], master):
            break
        beginning = "\n".join(handed[i].source for i in indices if handed[i].kind == "code")
        is_complete = read(beginning).tree and read(handed[part].source).tree
        if is_complete or not read(f"{beginning}\n{handed[part].source}").tree:
            break
        indices = [*indices, part]
    return indices


def _parts(code: list[str]) -> tuple[str, ...]:
    """Return the cells' sources, joined if they are many, or valid Python only together."""
    joined = "\n".join(code)
    if len(code) > _MOST_PARTS:
        return (joined,)
    if read(joined).tree and not all(read(part).tree for part in code):
        return (joined,)
    return tuple(code)


def _whose(handed: list[_Cell], master: Master, masters: Mapping[str, Master]) -> str:
    ids = {cell.grade_id for cell in handed} | {cell.cell_id for cell in handed}
    owners = [
        name
        for name, candidate in masters.items()
        if name != master.name and any(ids & {a.id, a.cell_id} for a in candidate.answers)
    ]
    if owners:
        return f"it has no answer cell of {master.name}, but those of {', '.join(owners)}"
    return f"it has no answer cell of {master.name}"


def _is_test(cell: _Cell, master: Master) -> bool:
    tests = {question_cell.id for question_cell in master.questions}
    return cell.grade_id in tests or cell.cell_id in {id.replace("_", "-") for id in tests}


def _with_what_they_use(
    sources: dict[str, tuple[str, ...]], other_sources: list[str], master: Master
) -> list[str]:
    """Prepend to each answer the code it uses from other cells; return remarks on that code."""
    available = {"check"}
    for cell in master.cells:
        if isinstance(cell, GivenCell):
            available |= defined_names(cell.source)
    remarks = []
    for answer in master.answers:
        parts = sources.get(answer.id, ())
        names = set().union(*map(defined_names, parts))
        undefined = set().union(*map(used_names, parts)) - available - names
        statements = needed(undefined, other_sources, available | names) if undefined else ()
        if statements:
            helpers = "\n".join(statements)
            sources[answer.id] = (helpers, *parts)
            brought = defined_names(helpers)
            available |= brought
            listed = ", ".join(name[:_SHOWN] for name in sorted(brought)[:5]) + (
                ", …" if len(brought) > 5 else ""
            )
            remarks.append(f"taken from other cells for {answer.id}: {listed}")
        available |= names
    return remarks


def _defined_elsewhere(
    handed: list[_Cell], taken: set[int], sources: Mapping[str, tuple[str, ...]], master: Master
) -> list[str]:
    """Return a remark if a requested name is also defined outside the answer cells."""
    targets = {name for answer in master.answers if answer.id in sources for name in answer.defines}
    sources_read: list[str] = []
    length = 0
    for i, cell in enumerate(handed):
        is_students = not _is_masters(cell, master) or _is_test(cell, master)
        if cell.kind == "code" and i not in taken and is_students:
            length += len(cell.source)
            sources_read += [cell.source] if length <= MAX_CHARACTERS else []
    twice = sorted(targets & set().union(*map(defined_names, sources_read)))
    return [f"only the answer cell counts, no other cell that defines {name}" for name in twice]


def _is_python(source: str) -> bool:
    text, tree = read(source)
    return tree is not None and text == source


_INSTALL = re.compile(r"^(\s*)([%!]\s*(pip|conda|mamba|uv|apt|apt-get|matplotlib)\b.*)$", re.M)


def _without_installs(
    sources: Mapping[str, tuple[str, ...]],
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return the sources without lines that install something or set up plots, and remarks on them.

    The grader has no network to install from, and nobody would see a plot.
    """
    programs: dict[str, None] = {}

    def left_out(found: re.Match[str]) -> str:
        programs[found[3]] = None
        return f"{found[1]}pass  # {found[2]}"

    rest = {
        id: tuple(part if _is_python(part) else _INSTALL.sub(left_out, part) for part in parts)
        for id, parts in sources.items()
    }
    return rest, [f"not run during grading: lines with {program}" for program in programs]
