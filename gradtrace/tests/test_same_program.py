"""The watched program is the same program.

Each program of ``same_program/`` runs three times, in fresh processes: by itself, under
``python -m gradtrace`` and under ``--strict``.  Everything that can be told from outside must be
the same: what it prints, its exit code, its warnings, the files that it writes, and the end state
that ``end_state.py`` writes for it: random states, parameters bit for bit, switches.  Only
gradtrace's own notes are taken out of standard error first.
"""

import difflib
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from torch._C._dynamo import eval_frame

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
# How they are meant to end, where not with 0: one that dies early compares well and shows nothing.
ENDS = {
    "interpreter": 1,
    "training": 7,
    "failures": 1,
    "failures, with a hook": 1,
    "concurrent": -15,
    "module": 1,
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


@pytest.mark.parametrize("program", COMMANDS)
def test_same_program(program, tmp_path):
    if program == "compiled" and not hasattr(eval_frame, "set_code_exec_strategy"):
        pytest.skip("this PyTorch's compiler, before 2.7, looks into the functions that it skips")
    with ThreadPoolExecutor() as pool:  # side by side
        started = {
            mode: pool.submit(run, COMMANDS[program], mode, tmp_path / mode) for mode in MODES
        }
    outcomes = {mode: run.result() for mode, run in started.items()}
    plain = outcomes.pop("plain")
    assert plain.status == ENDS.get(program, 0), plain.error
    differences = [d for mode, seen in outcomes.items() for d in differing(plain, seen, mode)]
    assert not differences, "\n".join(line.rstrip() for line in differences)


def differing(plain: Outcome, seen: Outcome, mode: str) -> Iterator[str]:
    """In which lines a watched program's outcome is another one."""
    for name, one, other in zip(Outcome._fields, plain, seen, strict=True):
        if isinstance(one, str):
            names = f"{name} plain", f"{name} {mode}"
            yield from difflib.unified_diff(one.splitlines(), other.splitlines(), *names, "", "", 1)
        elif one != other:
            yield f"{name} {mode}: {one} became {other}"


def test_notes_are_taken_out():
    text = "Traceback\n  line\nError: x\ngradtrace: because.\n  fix: y\nnext\n  gradtrace: kept\n"
    assert without_notes(text) == "Traceback\n  line\nError: x\nnext\n  gradtrace: kept\n"
