"""Run programs under a watch, many in little time.

:func:`run` takes jobs and gives outcomes in the same order.  Each program runs in a process of its
own and an empty folder.  With ``command`` it is started by ``python -m gradtrace``, as a user does.
Without, the process is forked from one that has imported torch already, which is most of what a
start takes; all else is the command's own code: the options as it passes them on, its
``sitecustomize``, its function at exit.  A test holds the two to the same reports.
"""

import atexit
import contextlib
import functools
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from catalogue import HERE, LIBRARY
from gradients import GradientLog

from gradtrace import cli

PLAIN, STRICT, RECORD = "plain", "strict", "record"
LIMIT = 60  # seconds for one program
AT_ONCE = 2  # programs
# One thread each, and the same order of sets and of sums in every run.
_SURROUNDINGS = {
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}


@dataclass(frozen=True)
class Job:
    """A program to run: its files, which of them is the program, and how.

    ``mode`` is a plain or a strict watch; or no watch, and the report is a record of its gradients.
    """

    files: dict[str, str]
    main: str
    mode: str


@dataclass(frozen=True)
class Outcome:
    """``report`` is what ``--json`` wrote, or the record; None if the program broke down."""

    code: int | None  # None: it did not end in time
    report: dict[str, Any] | None
    stderr: str


def run(jobs: Sequence[Job], command: bool = False) -> list[Outcome]:
    """Run all jobs, some at once; from a process in which nothing has run yet.

    Raises:
        RuntimeError: that process has ended; what it said is on standard error.
    """
    launcher = _launcher()
    assert launcher.stdin is not None and launcher.stdout is not None
    request = {"jobs": [asdict(job) for job in jobs], "command": command}
    try:
        print(json.dumps(request), file=launcher.stdin, flush=True)
        answer = launcher.stdout.readline()
    except BrokenPipeError:
        answer = ""
    if not answer:
        _launcher.cache_clear()
        raise RuntimeError("the process that runs the programs has ended")
    return [Outcome(**outcome) for outcome in json.loads(answer)]


@functools.cache
def _launcher() -> subprocess.Popen[str]:
    """The process that all runs begin from; it ends with this one."""
    folder = tempfile.TemporaryDirectory()
    # Frames of ours are below those of each program: in this folder they count as a library's.
    link = Path(folder.name, "site-packages")
    link.symlink_to(HERE)
    launcher = subprocess.Popen(
        [sys.executable, link / Path(__file__).name],
        env=os.environ | _SURROUNDINGS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    @atexit.register
    def end() -> None:
        launcher.communicate()
        folder.cleanup()

    return launcher


def _serve() -> None:
    """Run the jobs of each line that comes, and answer with a line of outcomes."""
    while line := sys.stdin.readline():
        request = json.loads(line)
        outcomes = _run_all([Job(**job) for job in request["jobs"]], request["command"])
        print(json.dumps([asdict(outcome) for outcome in outcomes]), flush=True)


def _run_all(jobs: Sequence[Job], command: bool) -> list[Outcome]:
    if not command:
        _prepare()
    start = _start_command if command else _fork
    outcomes: dict[int, Outcome] = {}
    running: dict[int, tuple[int, tempfile.TemporaryDirectory[str]]] = {}
    waiting = list(enumerate(jobs))[::-1]
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                place, job = waiting.pop()
                folder = tempfile.TemporaryDirectory()
                _write(job, Path(folder.name))
                running[start(job, Path(folder.name))] = place, folder
            process, status = os.wait()
            place, folder = running.pop(process)
            outcomes[place] = _outcome(Path(folder.name), os.waitstatus_to_exitcode(status))
            folder.cleanup()
    finally:
        for process, (_, folder) in running.items():
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            folder.cleanup()
    return [outcomes[place] for place in range(len(jobs))]


def _write(job: Job, folder: Path) -> None:
    (folder / "program").mkdir()
    for name, text in job.files.items():
        (folder / "program" / name).write_text(text, encoding="utf-8")


def _outcome(folder: Path, code: int) -> Outcome:
    report = folder / "report.json"
    return Outcome(
        None if code == -signal.SIGALRM else code,
        json.loads(report.read_text(encoding="utf-8")) if report.exists() else None,
        (folder / "stderr").read_text(encoding="utf-8", errors="replace"),
    )


def _arguments(job: Job, folder: Path) -> list[str]:
    strict = ["--strict"] if job.mode == STRICT else []
    return [*strict, "--json", str(folder / "report.json"), str(folder / "program" / job.main)]


def _start_command(job: Job, folder: Path) -> int:
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "gradtrace", *_arguments(job, folder)],
            cwd=folder / "program",
            env=os.environ | {"PYTHONPATH": str(LIBRARY)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            preexec_fn=lambda: signal.alarm(LIMIT),
        )
    process.returncode = 0  # it is waited for elsewhere
    return process.pid


@functools.cache
def _prepare() -> None:
    """Import what every program needs, and run nothing: no thread may be there when we fork."""
    import numpy  # noqa: F401
    import torch.distributed
    import torch.utils.checkpoint
    import torch.utils.data

    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # imports the compiler: a second
    if threading.active_count() > 1:
        raise RuntimeError("a thread runs already: a process forked now is not as one begun anew")
    gc.freeze()  # a collection in one of them need not copy all this memory


def _fork(job: Job, folder: Path) -> int:
    process = os.fork()
    if process:
        return process
    code = 70
    try:
        signal.alarm(LIMIT)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "stdout"), (2, "stderr")):
            file = os.open(folder / name, os.O_WRONLY | os.O_CREAT)
            os.dup2(file, number)
        code = _run_here(job, folder)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _run_here(job: Job, folder: Path) -> int:
    """What the command and then Python do, in this process."""
    main = folder / "program" / job.main
    for name in ("catalogue", "gradients"):  # the program may have its own
        sys.modules.pop(name, None)
    os.chdir(main.parent)
    atexit._clear()
    sys.argv = [str(main)]
    sys.path[0] = str(main.parent)
    sys.path.insert(1, str(LIBRARY))
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=str(main), __builtins__=__builtins__)
    sys.modules["__main__"] = module
    if job.mode == RECORD:
        recorder = GradientLog()
        code = _execute(main, module)
        record = json.dumps(recorder.record(vars(module)))
        (folder / "report.json").write_text(record, encoding="utf-8")
        return code
    _begin_watch(_arguments(job, folder))
    code = _execute(main, module)
    atexit._run_exitfuncs()
    return code


def _begin_watch(arguments: list[str]) -> None:
    """As the command does, and then Python when it starts."""
    options, program = cli.split(arguments)
    os.environ["PYTHONPATH"] = str(LIBRARY)
    os.environ |= cli.watched_environment(
        cli._session(cli._parser().parse_args(options), program[0])
    )
    sys.path.insert(1, cli.STARTUP)
    sys.modules.pop("sitecustomize", None)  # Ubuntu's Python has one
    with contextlib.suppress(ImportError):  # it asks for the user's own, if any
        __import__("sitecustomize")


def _execute(main: Path, module: types.ModuleType) -> int:
    try:
        exec(compile(main.read_bytes(), str(main), "exec", dont_inherit=True), vars(module))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        traceback = error.__traceback__ and error.__traceback__.tb_next  # without this frame
        error.__traceback__ = traceback
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, traceback
        sys.excepthook(type(error), error, traceback)
        return 1
    return 0


if __name__ == "__main__":
    _serve()
