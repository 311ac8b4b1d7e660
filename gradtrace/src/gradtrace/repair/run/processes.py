"""Runs of the program, each in its own process.

On Linux, where processes can be forked safely, one process only imports torch, and each run is a
fork of it, which saves two seconds. That process has no thread of PyTorch, no device and no graph,
because these come with the first operation. Elsewhere each run starts an interpreter.

A run has the program's arguments, folder and environment, an empty standard input, Python's and
NumPy's random numbers seeded, and a process group that is ended with it.
"""

import contextlib
import importlib.machinery
import importlib.util
import json
import linecache
import os
import pickle
import random
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any, NoReturn, Self

from gradtrace.repair.run.observations import ProgramLine, ProgramRun, RunLimits

_FORKS = sys.platform == "linux"
_GRACE = 20.0  # seconds beyond its limit until a run is ended from outside

# The worker's script: the gradtrace of this process, wherever it stands.
_BEGIN = """\
import importlib.util, sys
from os.path import join
spec = importlib.util.spec_from_file_location(
    "gradtrace", join({0!r}, "__init__.py"), submodule_search_locations=[{0!r}])
sys.modules["gradtrace"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from gradtrace.repair.run.processes import serve
serve()
"""


class LauncherEnded(RuntimeError):
    """The process that starts the runs has ended; its messages are on standard error."""


class Launcher:
    """Runs one program any number of times; ``flags`` are options of the Python interpreter."""

    def __init__(self, program: Sequence[str], flags: Sequence[str] = ()):
        self.program = list(program)  # the script, or ``-m`` and a module, and its arguments
        self._folder = tempfile.TemporaryDirectory(prefix="gradtrace-")
        # Its frame is below the program's; frames of files in such a folder are not the user's.
        script = Path(self._folder.name, "site-packages", "begin.py")
        script.parent.mkdir()
        script.write_text(_BEGIN.format(str(Path(__file__).parents[2])), encoding="utf-8")
        self._command = [sys.executable, *flags, str(script)]
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._server is not None and self._server.stdin is not None:
            if error is not None:  # the signal ends the running fork, too: it outlives its parent
                self._server.send_signal(signal.SIGINT if _FORKS else signal.SIGTERM)
            self._server.stdin.close()
            self._server.wait()
        self._folder.cleanup()

    def run(self, edits: Mapping[str, str], limits: RunLimits, reference: str = "") -> ProgramRun:
        """Run the program with these texts in place of its files'; return its record.

        A run that had to be ended from outside has the status ``"time"``; one that ended its own
        process has the status ``"ended"`` and no events.

        Args:
            edits: the new text of each changed file, by absolute path.
            reference: if it is not empty, retain every graph and copy every saved tensor, so that
                each backward call computes the derivative of its loss as the program's statements
                define it.  With ``"allowed"`` the operations that autograd refuses run too; with
                ``"nan"`` they give NaN where they lose a gradient.

        Raises:
            LauncherEnded: no process can run it, for example because torch cannot be imported.
        """
        result = Path(self._folder.name) / "result"
        result.unlink(missing_ok=True)
        job = {
            "program": self.program,
            "edits": dict(edits),
            "limits": limits,
            "reference": reference,
            "result": str(result),
        }
        start = time.monotonic()
        in_time = self._ask(json.dumps(job), limits.seconds + _GRACE)
        if result.exists():
            run: ProgramRun = pickle.loads(result.read_bytes())
        else:
            run = ProgramRun(status="ended" if in_time else "time")
        run.seconds = time.monotonic() - start
        return run

    def _ask(self, job: str, seconds: float) -> bool:
        """Send a job to the server and wait for it; return whether it ended in time."""
        if self._server is None:
            self._server = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        server = self._server
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(f"{seconds}\n{job}\n")
        server.stdin.flush()
        if _FORKS:
            answer = server.stdout.readline()
            if not answer:
                raise LauncherEnded("the process that starts the runs has ended")
            return answer.strip() == "ended"
        try:
            server.wait(seconds)
            return True
        except subprocess.TimeoutExpired:
            server.kill()
            return False
        finally:
            self._server = None


def serve() -> None:
    """Read jobs from standard input and run each in a fork, or a single one in this process."""
    with contextlib.suppress(KeyboardInterrupt):  # the command reports the interruption
        import torch

        # The first optimizer imports PyTorch's compiler: seconds that every run would take.
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.0)
        while seconds := sys.stdin.readline():
            job = json.loads(sys.stdin.readline())
            process = os.fork() if _FORKS else 0
            if not process:
                if _FORKS:
                    os.setsid()
                _run(job)
            print("ended" if _wait(process, float(seconds)) else "late", flush=True)


def _wait(process: int, seconds: float) -> bool:
    """Wait for a process, then end its whole group; return whether it had ended in time."""
    deadline = time.monotonic() + seconds
    ended = False
    try:
        while not ended and time.monotonic() < deadline:
            time.sleep(0.005)
            ended = os.waitpid(process, os.WNOHANG)[0] == process
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process, signal.SIGKILL)
        if not ended:
            os.waitpid(process, 0)
    return ended


def _run(job: dict[str, Any]) -> NoReturn:
    """Run the program in this process, write its record, and end the process."""
    # Not at the top, as these import torch, which the process of the command does not need.
    from gradtrace._torch_hooks import AllowRefused, retain_graphs
    from gradtrace.explaining.watcher import watch
    from gradtrace.repair.run.recorder import Recorder, graph_variables
    from gradtrace.watching.engine import engine

    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    watching = watch(strict=True)
    libraries = set(sys.modules)

    def finish(status: str, error: BaseException | None = None) -> NoReturn:
        main = vars(sys.modules["__main__"])
        recorder.run.status = status
        run = recorder.close()
        watching.look_back(main)
        run.findings = [finding.to_dict() for finding in watching.findings]
        if isinstance(error, Exception):
            explanation = watching.explain(error)
            run.error = f"{type(error).__name__}: {error}"
            frames = _users_frames(error)
            run.raised_at = tuple(frames.values())
            run.graph_variables = graph_variables(frames)
            run.diagnosis = None if explanation is None else explanation.to_dict()
            run.explanation = "" if explanation is None else explanation.text()
        if run.diagnosis is None and watching.findings:
            run.diagnosis = run.findings[0]
            run.explanation = watching.findings[0].text()
        run.files = _files_of_the_user(job["program"], set(sys.modules) - libraries)
        run.torch = str(sys.modules["torch"].__version__)
        Path(job["result"]).write_bytes(pickle.dumps(run))
        sys.stdout.flush()
        os._exit(0)

    timeline, limits = watching._record.timeline, RunLimits(*job["limits"])
    refused = AllowRefused(job["reference"] == "nan") if job["reference"] else None
    recorder = Recorder(timeline, limits, finish, refused)  # type: ignore[abstract]
    engine.attach(recorder)
    if refused is not None:
        retain_graphs()
        if job["reference"] != "retained":
            refused.__enter__()
    try:
        run_program(job["program"], job["edits"])
    except SystemExit:
        finish("ended")
    except BaseException as error:
        finish("raised", error)
    finish("ended")


def run_program(program: Sequence[str], edits: Mapping[str, str]) -> None:
    """Run a program as ``__main__``, as Python does, with ``edits`` in place of its files."""
    _read_from(edits)
    sys.dont_write_bytecode = True
    random.seed(0)
    if (numpy := sys.modules.get("numpy")) is not None:  # torch has imported it, if it is there
        numpy.random.seed(0)
    if program[0] == "-m":
        sys.argv = ["-m", *program[2:]]
        sys.path[0] = str(Path.cwd())
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        return
    script = program[0]
    sys.argv = list(program)
    sys.path[0] = str(Path(script).resolve().parent)
    main = ModuleType("__main__")
    main.__dict__.update(__file__=script, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    path = str(Path(script).absolute())
    text = edits.get(path)
    source = Path(script).read_bytes() if text is None else text
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def _read_from(edits: Mapping[str, str]) -> None:
    """Make imports and tracebacks read ``edits`` in place of these files."""
    for path, text in edits.items():
        linecache.cache[path] = len(text), None, text.splitlines(True), path
    kind = importlib.machinery.SourceFileLoader
    get_code = kind.get_code

    def get_edited_code(self: Any, fullname: str) -> CodeType | None:
        path = os.path.abspath(self.path)  # noqa: PTH100  # not resolved: it is the code's name
        text = edits.get(path)
        return get_code(self, fullname) if text is None else compile(text, path, "exec")

    kind.get_code = get_edited_code  # type: ignore[method-assign]


def _users_frames(error: BaseException) -> dict[FrameType, ProgramLine]:
    """Return the user's frames from the error outward with their lines, innermost first."""
    from gradtrace.autograd.frames import is_users  # not at the top, as it imports torch

    raising = reversed([*traceback.walk_tb(error.__traceback__)])
    return {
        frame: ProgramLine(frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in (*raising, *traceback.walk_stack(sys._getframe(1)))
        if is_users(frame.f_code)
    }


def _files_of_the_user(program: Sequence[str], modules: set[str]) -> list[str]:
    """Return the paths of the script and of the user's modules that it imported."""
    from gradtrace.autograd.frames import is_users  # not at the top, as it imports torch

    spec = importlib.util.find_spec(program[1]) if program[0] == "-m" else None
    files: list[Any] = [program[0] if spec is None else spec.origin]
    files += [getattr(sys.modules.get(name), "__file__", None) for name in sorted(modules)]
    paths: list[str] = []
    for file in files:
        if isinstance(file, str) and file.endswith(".py"):
            path = str(Path(file).absolute())
            if path not in paths and is_users(compile("", path, "exec")):
                paths.append(path)
    return paths
