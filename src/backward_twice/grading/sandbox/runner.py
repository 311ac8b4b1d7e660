"""Run a submission's steps inside the sandbox, one after another, in an IPython shell.

A task is a cell, run as a notebook's kernel would run it, or a question with one draw of inputs,
asked of the names that the cells defined.  An exception of any kind ends only its own step.

All of this lives in the student's own interpreter.  Nothing here is a defence: :mod:`.events` reads
its output as untrusted bytes.
"""

import contextlib
import errno
import io
import json
import mmap
import os
import random
import subprocess
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import backward_twice
from backward_twice.checks import question

_ERROR = 2_000
_RESERVE = 4 << 20
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_REFUSED = os.strerror(errno.ENOSYS)
_OURS = str(Path(backward_twice.__file__).parent)


class _Kept(io.TextIOBase):
    """A text stream that keeps the beginning of its text, and counts the rest."""

    def __init__(self, room: int) -> None:
        self._parts: list[str] = []
        self._room = room
        self._lost = 0

    def write(self, text: str) -> int:
        if self._room:
            self._parts.append(text[: self._room])
        self._lost += max(0, len(text) - self._room)
        self._room = max(0, self._room - len(text))
        return len(text)

    def writable(self) -> bool:
        return True

    def text(self) -> str:
        omission = f"\n… and {self._lost} more characters" if self._lost else ""
        return "".join(self._parts) + omission


def new_shell() -> InteractiveShell:
    """Return the shell that the cells run in, without history, configuration files and colours."""
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.xmode = "Plain"
    with tempfile.TemporaryDirectory() as folder:
        shell = InteractiveShell.instance(config=config, ipython_dir=folder)
    shell.ask_exit = lambda: None  # exit() in a cell is no error in a notebook either

    def system(command: str) -> None:
        """Run ``!command`` without the terminal that IPython would need."""
        command = shell.var_expand(command, depth=1)
        shell.user_ns["_exit_code"], output = subprocess.getstatusoutput(command, errors="replace")
        print(output, end="\n" if output else "")

    shell.system = system
    return shell


def run(job: int, events: int, shell: InteractiveShell) -> None:
    """Run the tasks from the file descriptor ``job``, and report to the descriptor ``events``.

    A line is ``{"kind": "cell", "source": ..., "output": characters}`` or
    ``{"kind": "question", "question": ..., "inputs": ..., "output": characters}``.  First comes
    ``{"ready": true}``, then for the k-th line, counted from 0, ``{"done": k}`` with ``output``,
    ``error``, ``ename`` and ``observed``.
    """
    me = os.getpid()
    _emit(events, {"ready": True})
    with os.fdopen(job, "rb") as lines:
        for number, line in enumerate(iter(lines.readline, b"")):
            step_end = _step(shell, json.loads(line))
            if os.getpid() != me:
                os._exit(0)  # a cell forked, and this is the copy
            _emit(events, {"done": number, **step_end})


def _step(shell: InteractiveShell, step: dict[str, Any]) -> dict[str, Any]:
    # Memory for the report of a step that has used up all other.  Nothing fills its pages.
    reserve = mmap.mmap(-1, _RESERVE, _PRIVATE)
    output = _Kept(step["output"])
    observed = error = None
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            torch.default_generator.manual_seed(0)  # of the CPU, where the inputs are
            random.seed(0)
            if step["kind"] == "cell":
                result = shell.run_cell(step["source"], store_history=True)
                error = result.error_before_exec or result.error_in_exec
            else:
                observed = _ask(shell, step)
    except BaseException as raised:
        error = raised
        reserve.close()
        with contextlib.suppress(BaseException):
            output.write(_traceback_text(raised))
    step_end = {"output": output.text(), "error": None, "ename": None, "observed": observed}
    if error is not None:
        step_end["ename"], step_end["error"] = _name_and_text(error)
    return step_end


def _ask(shell: InteractiveShell, step: dict[str, Any]) -> str:
    asked_question = question(step["question"])
    if asked_question.answer not in shell.user_ns:
        raise NameError(f"no cell defines {asked_question.answer}")
    return asked_question.observe(shell.user_ns[asked_question.answer], step["inputs"])


def _name_and_text(error: BaseException) -> tuple[str, str]:
    """Return an error's name (MemoryError also for torch's) and text, whatever its class does."""
    name = type(error).__name__
    try:
        text = str(error)[:_ERROR]
    except BaseException as another:
        text = f"(no text: {type(another).__name__})"
    if "can't allocate memory" in text:  # so says torch
        name = "MemoryError"
    elif _REFUSED in text:
        text += " (the sandbox refuses a system call that this needs)"
    return name, f"{name}: {text}" if text else name


def _traceback_text(error: BaseException) -> str:
    """Format the error with the last 50 frames, without those of this package."""
    frames = traceback.extract_tb(error.__traceback__, limit=-50)
    student_frames = [frame for frame in frames if not frame.filename.startswith(_OURS)]
    return "".join([*traceback.format_list(student_frames), f"{_name_and_text(error)[1]}\n"])


def _emit(events: int, event: dict[str, Any]) -> None:
    line = json.dumps(event).encode() + b"\n"
    while line:
        line = line[os.write(events, line) :]
