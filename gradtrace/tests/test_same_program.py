"""The watched program is the same program.

Each program of ``same_program/`` runs three times, in fresh processes: by itself, under
``python -m gradtrace`` and under ``--strict``.  Everything that can be told from outside must be
the same: what it prints, its exit code, its warnings, the files that it writes, and the end state
that ``end_state.py`` writes for it: random states, parameters bit for bit, switches.  Only
gradtrace's own notes are taken out of standard error first.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

PROGRAMS = Path(__file__).parent / "same_program"
MODES = {
    "plain": [],
    "watched": ["-m", "gradtrace"],
    "strict": ["-m", "gradtrace", "--strict"],
}
CODE = """\
import inspect, sys, torch
import end_state
w = torch.ones(2, requires_grad=True)
print(__name__, sys.argv, sys.path[0], __spec__, len(inspect.stack()))
w.exp().sum().backward()
"""
COMMANDS = {
    "interpreter": ["interpreter.py", "--", "-x"],
    "training": ["training.py"],
    "compiled": ["compiled.py"],
    "transforms": ["transforms.py"],
    "modes": ["modes.py"],
    "failures": ["failures.py"],
    "failures, with a hook": ["failures.py", "hook"],
    "concurrent": ["concurrent_programs.py"],
    "processes": ["processes.py"],
    "two ranks": ["two_ranks.py"],
    "module": ["-m", "package", "--", "-x"],
    "code": ["-c", CODE, "-m", "x"],
    "standard input": ["-", "x"],
}
# Addresses, and how log lines of PyTorch begin: W1121 21:41:29.247000 23816
VARYING = re.compile(r"(?<=0x)[0-9a-f]{6,}|^[VIWE]\d{4} [\d:.]+ \d+(?= )", re.MULTILINE)


class Outcome(NamedTuple):
    status: int
    out: str
    error: str
    files: dict[str, str]
    end_state: str


def run(command: list[str], mode: str, folder: Path) -> Outcome:
    folder.mkdir()
    words = [str(PROGRAMS / word) if word.endswith(".py") else word for word in command]
    done = subprocess.run(
        [sys.executable, "-W", "always", *MODES[mode], *words],
        capture_output=True,
        check=False,
        cwd=folder,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(PROGRAMS), "PYTHONHASHSEED": "0"},
        input=CODE,
        timeout=900,
    )
    state = folder / "end_state.json"
    end_state = state.read_text(encoding="utf-8") if state.exists() else ""
    files = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path != state
    }
    out, error, end_state = (
        VARYING.sub("", text).replace(str(folder), "FOLDER")
        for text in (done.stdout, without_notes(done.stderr), end_state)
    )
    return Outcome(done.returncode, out, error, files, end_state)


def without_notes(text: str) -> str:
    """Standard error less gradtrace's notes: their first lines, and what is indented below."""
    kept, ours = [], False
    for line in text.splitlines(keepends=True):
        ours = line.startswith("gradtrace:") or (ours and line.startswith(" "))
        if not ours:
            kept.append(line)
    return "".join(kept)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """The three outcomes of a program, its processes side by side."""
    known: dict[str, dict[str, Outcome]] = {}

    def outcomes(program: str) -> dict[str, Outcome]:
        if program not in known:
            folder = tmp_path_factory.mktemp("program")
            with ThreadPoolExecutor() as pool:
                started = {
                    mode: pool.submit(run, COMMANDS[program], mode, folder / mode) for mode in MODES
                }
                known[program] = {mode: run.result() for mode, run in started.items()}
        return known[program]

    return outcomes


@pytest.mark.parametrize("mode", ["watched", "strict"])
@pytest.mark.parametrize("program", COMMANDS)
def test_same_program(outcomes, program, mode):
    found = outcomes(program)
    differences = []
    for name, plain, seen in zip(Outcome._fields, found["plain"], found[mode], strict=True):
        if isinstance(plain, str):
            lines = difflib.unified_diff(
                plain.splitlines(), seen.splitlines(), f"{name} plain", f"{name} {mode}", "", "", 1
            )
            differences += lines
        elif plain != seen:
            differences.append(f"{name}: {plain} became {seen}")
    assert not differences, "\n".join(line.rstrip() for line in differences)


def test_programs_end_as_they_are_meant_to(outcomes):
    """A program that dies early compares well, and shows nothing."""
    ends = {program: outcomes(program)["plain"].status for program in COMMANDS}
    assert ends == dict.fromkeys(COMMANDS, 0) | {
        "interpreter": 1,
        "training": 7,
        "failures": 1,
        "failures, with a hook": 1,
        "concurrent": -15,
        "module": 1,
    }


def test_notes_are_taken_out():
    text = "Traceback\n  line\nError: x\ngradtrace: because.\n  fix: y\nnext\n  gradtrace: kept\n"
    assert without_notes(text) == "Traceback\n  line\nError: x\nnext\n  gradtrace: kept\n"
