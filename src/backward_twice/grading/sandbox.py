"""Run a submission's steps where they can reach nothing, and believe nothing of what comes back.

Each submission has a sandbox of its own.  Where bubblewrap works it is bubblewrap's, entered by a
fork of a warm process (:mod:`.warm`), so that it costs milliseconds; elsewhere a locked-down
container, or, inside a platform's own container, a user of its own.  What goes in is a job as JSON,
what comes out are lines of JSON from a process that the student controls: they are bytes of bounded
number, and all that is not exactly the event expected next ends the step that was under way.

A step that hangs, dies or takes too much memory ends its sandbox, and a fresh one goes on with that
step left out: cells run again, questions that were answered do not.  So such a step costs itself
and whatever needed it.  When :func:`run_steps` returns, on whichever path, no process of the
submission's is left.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import json
import os
import secrets
import select
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypedDict

import backward_twice
from backward_twice.grading import GradingError

Kind = Literal["bubblewrap", "container", "account", "none"]

_START = 120.0  # s, for imports from a cold disk
_ENTER = 30.0  # s, from the fork to the first step
_GONE = 20.0  # s, for the kernel to end all processes of a sandbox
_WATCH = 0.2  # s, between looks at the memory of a submission of several processes
_LINE = 8 << 20  # bytes that one step may hand back
_ALL = 32 << 20  # bytes that all of them together may
_TEXT = 12_000  # characters of an error
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_OURS = Path(backward_twice.__file__).parent


class SandboxError(GradingError):
    """There is no sandbox, or it failed before anything of the student's ran in it."""


@dataclass(frozen=True)
class Limits:
    """What a submission may use.

    Attributes:
        seconds: wall clock, for each step.
        memory: bytes, for all its processes together, beyond what Python and torch take.
        processes: processes and threads at one time.
        output: characters kept of what a step prints.
        files: bytes in all files together; there are no more than 4,096 files.
        total: seconds of wall clock for the submission, fresh starts included.

    Raises:
        ValueError: one of them is not positive.
    """

    seconds: float = 30.0
    memory: int = 2 << 30
    processes: int = 32
    output: int = 10_000
    files: int = 64 << 20
    total: float = 120.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"the limit {field.name} must be positive")

    def of_kernel(self, *, processes: bool = True) -> dict[str, Any]:
        """The limits that the kernel keeps, as :func:`.confine.limit` takes them."""
        return {
            "memory": self.memory,
            "files": self.files,
            "seconds": self.total + 10,
            "processes": self.processes if processes else None,
        }


class StepResult(TypedDict):
    """How a step ended, and what it handed back.  All texts come from the student's process.

    ``outcome`` is ``done`` for a step that ended by itself, be it with an exception (``error``,
    ``ename``); ``observed`` are the texts of plain data that a question's draws gave.
    """

    id: str
    kind: Literal["cell", "question"]
    outcome: Literal["done", "timeout", "memory", "crashed", "skipped"]
    output: str
    error: str | None
    ename: str | None
    observed: list[str] | None


class Run(ABC):
    """One submission in one sandbox.

    Attributes:
        events: the file descriptor that the student's process writes to; it never blocks.
        status: one that becomes readable when the student's process has ended, if there is one.
        patience: seconds that it may take to the first step.
    """

    events: int
    status: int | None
    patience: float

    @abstractmethod
    def how_ended(self) -> str:
        """How the student's process ended, in words; it has, or its events have."""

    @abstractmethod
    def memory(self) -> int:
        """Bytes that its processes use together; 0 where something else bounds that."""

    @abstractmethod
    def close(self) -> None:
        """End every process of it.

        Raises:
            SandboxError: one is left.
        """


class Sandbox(ABC):
    """A way to start runs; see :func:`sandbox`."""

    kind: Kind

    @abstractmethod
    def start(self, job: bytes, limits: Limits) -> Run:
        """Start the submission ``job`` in a sandbox of its own.

        Raises:
            SandboxError: it could not be started.
        """

    def close(self) -> None:  # noqa: B027
        """Let go of what is held between runs; some hold nothing."""

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Steps


def run_steps(steps: list[dict[str, Any]], limits: Limits, sandbox: Sandbox) -> list[StepResult]:
    """Run a submission's steps in order; a result for each.

    Args:
        steps: ``{"kind": "cell", "id": ..., "source": ...}`` or
            ``{"kind": "question", "id": ..., "question": ..., "draws": [text, ...]}``.
        limits: what the submission may use.
        sandbox: from :func:`sandbox`.

    Raises:
        SandboxError: the sandbox failed, whatever the student did.

    >>> from backward_twice.grading.sandbox import Limits, run_steps, sandbox
    >>> with sandbox("none") as trusted:
    ...     [result] = run_steps(
    ...         [{"kind": "cell", "id": "hello", "source": "print(6 * 7)"}], Limits(), trusted
    ...     )
    >>> result["outcome"], result["output"]
    ('done', '42\\n')
    """
    results: list[StepResult | None] = [None] * len(steps)
    failed: set[int] = set()
    end = time.monotonic() + limits.total
    while None in results and time.monotonic() < end:
        todo = [
            k
            for k, step in enumerate(steps)
            if k not in failed and (results[k] is None or step["kind"] == "cell")
        ]
        left_out = _attempt(steps, todo, results, limits, sandbox, end)
        if left_out is not None:
            failed.add(left_out)
    unreached = f"not run: the submission's {limits.total:g} s were used up"
    return [
        _result(step, "skipped", unreached) if result is None else result
        for step, result in zip(steps, results, strict=True)
    ]


def _result(step: dict[str, Any], outcome: str, error: str | None, **more: Any) -> StepResult:
    return {
        **{"id": step["id"], "kind": step["kind"], "outcome": outcome, "output": ""},
        **{"error": error, "ename": None, "observed": None},
        **more,
    }


_Failure = tuple[Literal["timeout", "memory", "crashed"], str]


def _attempt(
    steps: list[dict[str, Any]],
    todo: list[int],
    results: list[StepResult | None],
    limits: Limits,
    sandbox: Sandbox,
    end: float,
) -> int | None:
    """Run the steps ``todo`` in one sandbox, up to the last that has no result yet.

    Returns:
        the step that ended the sandbox and has to be left out of the next.
    """
    while results[todo[-1]] is not None:
        todo = todo[:-1]
    job = json.dumps({"steps": [steps[k] for k in todo], "output": limits.output}).encode()
    run, stream = _started(job, limits, sandbox, end)
    try:
        for place, k in enumerate(todo):
            event: dict[str, Any] | _Failure = {"began": 0}
            if place:
                event = stream.next(limits.seconds)
            if event == {"began": place}:
                event = stream.next(limits.seconds)
                if isinstance(event, dict):
                    event = _done(event, place, steps[k], limits)
            elif isinstance(event, dict):
                event = _NO_EVENT
            if isinstance(event, tuple):
                results[k] = _result(steps[k], *event)
                return k
            results[k] = event
            if event["outcome"] == "memory":
                return k  # what it filled the memory with may still be there
        return None
    finally:
        run.close()


def _started(job: bytes, limits: Limits, sandbox: Sandbox, end: float) -> tuple[Run, _Events]:
    """A run that has begun its first step.  A start that fails is tried once more."""
    for tried_before in (False, True):
        run = sandbox.start(job, limits)
        try:
            stream = _Events(run, limits, end)
            if stream.next(run.patience, start=True) == {"began": 0}:
                return run, stream
            why = f"the sandbox did not start: {run.how_ended()} {stream.rest()}"
        except BaseException:
            run.close()
            raise
        run.close()
        if tried_before:
            raise SandboxError(why)


_NO_EVENT: _Failure = ("crashed", "handed back what is no event of this step")


def _done(
    event: dict[str, Any], place: int, step: dict[str, Any], limits: Limits
) -> StepResult | _Failure:
    """The step's result, if the event is what a step's end looks like."""
    output, error, ename, observed = (
        event.get(name) for name in ("output", "error", "ename", "observed")
    )
    draws = len(step["draws"]) if step["kind"] == "question" and error is None else None
    fits = (
        event.keys() == {"done", "output", "error", "ename", "observed"}
        and type(event["done"]) is int
        and event["done"] == place
        and isinstance(output, str)
        and (error is ename is None or (isinstance(error, str) and isinstance(ename, str)))
        and (
            observed is None
            if draws is None
            else isinstance(observed, list)
            and len(observed) == draws
            and all(isinstance(text, str) for text in observed)
        )
    )
    if not fits:
        return _NO_EVENT
    return _result(
        step,
        "memory" if ename == "MemoryError" else "done",
        None if error is None else _clean(error, _TEXT),
        ename=None if ename is None else _clean(ename, 100),
        output=_clean(output, limits.output + 100),
        observed=observed,
    )


def _clean(text: str, length: int) -> str:
    """A student's text, fit to be stored: no lone surrogates, no control characters.

    >>> _clean("a\\0b\\ud800\\r\\nc", 100)
    'a�b?\\nc'
    """
    text = text[:length].encode("utf-8", "replace").decode()
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)


class _Events:
    """The events of a run, one at a time: a dict, or how the step under way failed."""

    def __init__(self, run: Run, limits: Limits, end: float) -> None:
        self._run = run
        self._limits = limits
        self._end = end
        self._read = bytearray()
        self._room = _ALL
        self._poll = select.poll()
        self._poll.register(run.events, select.POLLIN)
        if run.status is not None:
            self._poll.register(run.status, select.POLLIN)

    def next(self, seconds: float, *, start: bool = False) -> dict[str, Any] | _Failure:
        deadline = time.monotonic() + seconds
        if not start:
            deadline = min(deadline, self._end)
        looked = time.monotonic()
        searched = 0
        while (newline := self._read.find(b"\n", searched)) < 0:
            searched = len(self._read)
            if searched > _LINE or self._room <= 0:
                return "crashed", f"handed back more than {_LINE >> 20} MB"
            now = time.monotonic()
            if now >= deadline:
                if deadline == self._end:
                    return "timeout", f"the submission took longer than {self._limits.total:g} s"
                return "timeout", f"took longer than {seconds:g} s"
            if now - looked > _WATCH:
                looked = now
                if self._run.memory() > self._limits.memory:
                    return "memory", f"took more than {self._limits.memory >> 20} MB of memory"
            ready = dict(self._poll.poll(max(1, 1000 * min(_WATCH, deadline - now))))
            if not ready or self._take():
                continue
            # Nothing more will come, or nothing is there though the process has ended.
            return "crashed", self._run.how_ended()
        line = bytes(self._read[:newline])
        del self._read[: newline + 1]
        return _parsed(line)

    def _take(self) -> bool:
        """Read what is there; ``False`` if that was nothing."""
        try:
            read = os.read(self._run.events, 1 << 16)
        except BlockingIOError:
            return False
        self._room -= len(read)
        self._read += read
        return bool(read)

    def rest(self) -> str:
        """What came instead of an event, before anything of the student's ran."""
        return self._read[-2000:].decode("utf-8", "replace")


def _parsed(line: bytes) -> dict[str, Any] | _Failure:
    """A line as an event; whatever it is, no exception.

    >>> _parsed(b'{"began": 0}')
    {'began': 0}
    >>> _parsed(b"[" * 100_000)
    ('crashed', 'handed back what is no event of this step')
    """
    try:
        event = json.loads(line, object_pairs_hook=_distinct, parse_constant=_refuse)
    except (ValueError, RecursionError, MemoryError):
        event = None
    return event if isinstance(event, dict) else _NO_EVENT


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(constant)


# bubblewrap


def policy(hide: Iterable[Path] = (), *, warm: bool = True) -> list[str]:
    """bubblewrap's arguments: all that a submission may see.

    Its own namespaces, ``/usr``, the Python installation and its packages, all of it read-only, and
    one writable folder, ``/tmp``.  The environment of whoever grades is not there.

    Args:
        hide: folders that stay out of sight even if they lie within one of those, such as the
            submissions.  The checkout that this package is part of is hidden anyway.
        warm: whether the process brings this package along in its memory; it is then hidden too,
            and with it what the questions expect.
    """
    root = os.geteuid() == 0
    namespaces = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    links = []
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            links += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            links += ["--ro-bind", str(path), str(path)]
    devices = [f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")]
    return [
        *namespaces,
        # Root becomes a user of its own later; a user namespace would make it root again.
        *([] if root else ["--unshare-user"]),
        *("--hostname", "sandbox", "--die-with-parent", "--new-session", "--clearenv"),
        *("--cap-drop", "ALL", "--ro-bind", "/usr", "/usr", *links),
        *("--dir", "/dev", "--dir", "/etc"),
        *("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"),
        *("--ro-bind-try", "/etc/alternatives", "/etc/alternatives"),
        *("--perms", "1777", "--tmpfs", "/tmp"),
        *_folders(hide, warm),
        *("--proc", "/proc"),
        # Not --dev: its devpts needs a second user namespace, and setns enters but one.
        *(argument for device in devices for argument in ("--dev-bind", device, device)),
        *("--symlink", "/tmp", "/dev/shm"),
        *("--remount-ro", "/", "--chdir", "/tmp"),
    ]


def _folders(hide: Iterable[Path], warm: bool) -> Iterator[str]:
    """The folders to show, and those to hide within them, outer ones first."""
    shown = {Path(sys.prefix), Path(sys.base_prefix)}
    for name in ("torch", "IPython", "gradtrace", "backward_twice"):
        folder = Path(importlib.util.find_spec(name).origin).parent
        shown.add(folder.parent if folder.parent.name.endswith("-packages") else folder)
    covered = []
    hidden = {Path(path).resolve() for path in hide}
    if (checkout := _OURS.parent.parent / "pyproject.toml").exists():
        hidden.add(checkout.parent)
    if warm:
        hidden.add(_OURS)
        shown.discard(_OURS)
    shown = {path.resolve() for path in shown} | shown
    for path in sorted(shown | hidden, key=lambda path: len(path.parts)):
        around = [other for other in (*shown, Path("/usr")) if other in path.parents]
        if path in hidden:
            if around:
                yield from ("--perms", "0755", "--tmpfs", str(path))
                covered += ["--remount-ro", str(path)]
        elif not around or any(other in path.parents for other in hidden):
            # bubblewrap itself makes what is above a folder, but for root alone to enter.
            for above in reversed(path.parents[:-1]):
                inner = [other for other in hidden if other in above.parents]
                if inner or not any(
                    other in (above, *above.parents) for other in (*shown, Path("/usr"))
                ):
                    yield from ("--dir", str(above))
            yield from ("--ro-bind", str(path), str(path))
    yield from covered


def _environment() -> dict[str, str]:
    """Of the environment only what finds the same packages."""
    ours = {str(_OURS.parent), str(Path(importlib.util.find_spec("gradtrace").origin).parents[1])}
    one = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX")
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": ":".join(sorted(path for path in ours if not path.endswith("-packages"))),
        "PYTHONUSERBASE": site.getuserbase(),
        "LANG": "C.UTF-8",
        "HOME": "/tmp",
        "USER": "student",
        "MPLBACKEND": "agg",
        **dict.fromkeys(one, "1"),
    }


class _Warm:
    """The warm process, seen from outside: started when needed, and again when it is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._control: socket.socket | None = None
        self.uid: int | None = None

    def fork(self, terms: dict[str, Any], fds: list[int]) -> None:
        """Send file descriptors and the terms under which to run what they hold."""
        message = [json.dumps(terms).encode()]
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._stop()
                self._start()
            socket.send_fds(self._control, message, fds)

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "backward_twice.grading.warm"),
                    str(theirs.fileno()),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=_environment(),
                cwd="/",
                start_new_session=True,
            )
        self._control = ours
        ours.settimeout(_START)
        try:
            said = ours.recv(4096)
        except TimeoutError:
            said = b""
        if not said:
            self._stop()
            raise SandboxError("the warm process did not start; what it said stands above")
        self.uid = json.loads(said)["uid"]

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        with self._lock:
            self._stop()


class _WarmRun(Run):
    """A fork of the warm process; the processes of a submission are found by ``_processes``."""

    patience = _ENTER

    def __init__(self, warm: _Warm, job: bytes, terms: dict[str, Any], sandbox: int | None) -> None:
        given = _held(job)
        self.events, events = os.pipe()
        self._keeper, keeper = socket.socketpair()
        self.status = self._keeper.fileno()
        os.set_blocking(self.events, False)
        try:
            more = [] if sandbox is None else [sandbox]
            warm.fork(terms, [given, events, keeper.fileno(), *more])
        except BaseException:
            self._keeper.close()
            os.close(self.events)
            raise
        finally:
            os.close(given)
            os.close(events)
            keeper.close()
        self._ended: dict[str, Any] | None = None

    def _await_end(self) -> dict[str, Any]:
        """What the keeper reports, once and for all, when the submission has ended."""
        if self._ended is None:
            self._keeper.settimeout(_GONE)
            try:
                self._ended = json.loads(self._keeper.recv(4096) or '{"failed": "it was killed"}')
            except TimeoutError:
                self._ended = {"failed": "it does not end"}
        return self._ended

    def how_ended(self) -> str:
        # Its events may have ended though it goes on.
        self._keeper.shutdown(socket.SHUT_WR)
        ended = self._await_end()
        if "failed" in ended:
            return f"the keeper failed: {ended['failed']}"
        return _in_words(ended["ended"])

    def memory(self) -> int:
        return _memory(self._processes())

    @abstractmethod
    def _processes(self) -> list[Path]:
        """The folders in /proc of its processes."""

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self._keeper.shutdown(socket.SHUT_WR)
        ended = self._await_end()
        self._keeper.close()
        os.close(self.events)
        if ended == {"failed": "it does not end"}:
            raise SandboxError("a process of the submission's does not end")


def _in_words(code: int) -> str:
    if code >= 0:
        return f"the process ended in the middle of the step, with exit code {code}"
    name = signal.Signals(-code).name if -code in iter(signal.Signals) else f"signal {-code}"
    return f"the process was ended by {name}"


def _held(job: bytes) -> int:
    """The job as a file that is in no folder; its descriptor, at its beginning."""
    fd = os.memfd_create("job")
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(job)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _memory(processes: list[Path]) -> int:
    """Bytes of several processes, what they share counted once; 0 for one, which has its limit."""
    if len(processes) < 2:
        return 0
    total = 0
    for process in processes:
        with contextlib.suppress(OSError, ValueError, IndexError):
            try:
                rollup = (process / "smaps_rollup").read_text()
                total += 1024 * int(rollup.partition("\nPss:")[2].split()[0])
            except PermissionError:  # it made itself unreadable
                total += os.sysconf("SC_PAGE_SIZE") * int(
                    (process / "statm").read_text().split()[1]
                )
    return total


class _BubblewrapRun(_WarmRun):
    def __init__(self, warm: _Warm, bubblewrap: list[str], job: bytes, limits: Limits) -> None:
        said_r, said_w = os.pipe()
        # cat holds the sandbox open, for as long as its input is
        self._holder = subprocess.Popen(
            [*bubblewrap, "--info-fd", str(said_w), "/usr/bin/cat"],
            pass_fds=[said_w],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={},
            cwd="/",
            start_new_session=True,
        )
        self._first: int | None = None
        try:
            os.close(said_w)
            with os.fdopen(said_r, "rb") as said:
                info = said.read()
            self._holder.stdin.write(b"\n")
            if self._holder.stdout.read(1) != b"\n":  # every mount is in place now
                text = self._holder.stderr.read().decode(errors="replace").strip()
                raise SandboxError(f"bubblewrap refused: {text}")
            pid = json.loads(info)["child-pid"]
            self._first = os.pidfd_open(pid)
            self._proc = Path(f"/proc/{pid}/root/proc")
            terms = {"limits": limits.of_kernel(), "folder": "/tmp"}
            super().__init__(warm, job, terms, self._first)
        except BaseException:
            self._release()
            raise

    def _processes(self) -> list[Path]:
        try:
            found = [path for path in self._proc.iterdir() if path.name.isdigit()]
        except OSError:
            return []
        return [path for path in found if int(path.name) > 2]  # without bubblewrap's own

    def close(self) -> None:
        try:
            self._end()
        finally:
            self._release()

    def _release(self) -> None:
        """End the pid namespace, and wait until the kernel has ended all that was in it."""
        if self._first is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
            gone = select.poll()
            gone.register(self._first, select.POLLIN)
            left = not gone.poll(1000 * _GONE)
            os.close(self._first)
            self._first = None
            if left:
                raise SandboxError("a process of the submission's does not end")
        for pipe in (self._holder.stdin, self._holder.stdout, self._holder.stderr):
            pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._holder.wait(1)
        self._holder.kill()
        self._holder.wait()


class _Bubblewrap(Sandbox):
    kind = "bubblewrap"

    def __init__(self, hide: tuple[Path, ...]) -> None:
        program = shutil.which("bwrap")
        if program is None:
            raise SandboxError("bubblewrap (the program bwrap) is not installed")
        self._bubblewrap = [program, *policy(hide)]
        self._warm = _Warm()

    def start(self, job: bytes, limits: Limits) -> Run:
        return _BubblewrapRun(self._warm, self._bubblewrap, job, limits)

    def close(self) -> None:
        self._warm.close()


# An account of its own


class _AccountRun(_WarmRun):
    def __init__(self, warm: _Warm, job: bytes, limits: Limits) -> None:
        self._warm = warm
        self._folder = tempfile.mkdtemp(prefix="submission-")
        Path(self._folder).chmod(0o1777)
        try:
            terms = {"limits": limits.of_kernel(), "folder": self._folder}
            super().__init__(warm, job, terms, None)
        except BaseException:
            shutil.rmtree(self._folder)
            raise

    def _processes(self) -> list[Path]:
        found = []
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if path.name.isdigit() and f"\nUid:\t{self._warm.uid}\t" in (
                    path / "status"
                ).read_text(errors="replace"):
                    found.append(path)
        return found

    def close(self) -> None:
        try:
            self._end()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


class _Account(Sandbox):
    kind = "account"

    def __init__(self, hide: tuple[Path, ...]) -> None:
        if os.geteuid() != 0:
            raise SandboxError("a submission gets an account of its own only from root")
        for path in hide:
            if _open_to_others(path):
                raise SandboxError(f"every user can read {path}; give it mode 700")
        for path in map(Path, {sys.prefix, sys.base_prefix}):
            if not _open_to_others(path):
                raise SandboxError(f"another user cannot read Python's own folder, {path}")
        self._warm = _Warm()

    def start(self, job: bytes, limits: Limits) -> Run:
        return _AccountRun(self._warm, job, limits)

    def close(self) -> None:
        self._warm.close()


def _open_to_others(path: Path) -> bool:
    """Whether a user who is nobody can enter the folder ``path`` or read it."""
    path = path.resolve()
    return (
        path.exists()
        and bool(path.stat().st_mode & 0o5)
        and all(folder.stat().st_mode & 0o1 for folder in path.parents)
    )


# A process of its own


class _ColdRun(Run):
    status = None
    patience = _START

    def __init__(self, command: list[str], job: bytes, env: dict[str, str], end: list[str]) -> None:
        self._end = end
        self._folder = tempfile.TemporaryDirectory(prefix="submission-")
        with tempfile.TemporaryFile() as given:
            given.write(job)
            given.seek(0)
            self._process = subprocess.Popen(
                command,
                stdin=given,
                stdout=subprocess.PIPE,
                env=env,
                cwd=self._folder.name,
                start_new_session=True,
            )
        self.events = self._process.stdout.fileno()
        os.set_blocking(self.events, False)

    def how_ended(self) -> str:
        try:
            code = self._process.wait(_WATCH)
        except subprocess.TimeoutExpired:
            return "the process closed what it had to report to"
        return _in_words(128 - code if code > 128 else code)  # docker's way to tell a signal

    def memory(self) -> int:
        return 0

    def close(self) -> None:
        if self._end:
            subprocess.run(self._end, capture_output=True, check=False)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()


class _Container(Sandbox):
    kind = "container"

    def __init__(self, image: str | None) -> None:
        self._program = shutil.which("docker") or shutil.which("podman")
        if self._program is None:
            raise SandboxError("neither docker nor podman is installed")
        if not image:
            raise SandboxError("name a container image that has this package installed")
        self._image = image

    def start(self, job: bytes, limits: Limits) -> Run:
        name = f"submission-{secrets.token_hex(8)}"
        inside = json.dumps(limits.of_kernel(processes=False))
        memory = str(limits.memory + (1 << 30))
        command = [
            *(self._program, "run", "--rm", "--interactive", "--name", name),
            *("--network", "none", "--read-only", "--cap-drop", "ALL"),
            *("--security-opt", "no-new-privileges", "--user", "65534:65534"),
            *("--pids-limit", str(limits.processes + 1)),
            *("--memory", memory, "--memory-swap", memory),
            *("--tmpfs", f"/tmp:rw,nosuid,nodev,size={limits.files},mode=1777"),
            *("--workdir", "/tmp", "--env", "HOME=/tmp", "--env", "OMP_NUM_THREADS=1"),
            *("--env", f"BACKWARD_TWICE_LIMITS={inside}", "--entrypoint", "python"),
            *(self._image, "-P", "-m", "backward_twice.grading.runner"),
        ]
        # docker's own command, unlike the submission, needs the environment: where its daemon is
        return _ColdRun(command, job, dict(os.environ), [self._program, "kill", name])


class _None(Sandbox):
    kind = "none"

    def start(self, job: bytes, limits: Limits) -> Run:
        inside = json.dumps(limits.of_kernel(processes=False))
        command = [sys.executable, "-P", "-m", "backward_twice.grading.runner"]
        return _ColdRun(command, job, {**_environment(), "BACKWARD_TWICE_LIMITS": inside}, [])


# Which there is


def sandbox(
    kind: Kind, *, image: str | None = None, hide: Iterable[str | os.PathLike[str]] = ()
) -> Sandbox:
    """A sandbox of this kind; a context manager, that ends the process kept warm.

    Args:
        kind: ``bubblewrap``; ``container`` (docker or podman); ``account``, for root in a container
            that somebody else locked down: another user for each submission, but the same network
            and files; ``none``, for work that is trusted, which is run without any protection.
        image: for ``container``, an image with this package and what it needs.
        hide: folders that a submission must not see; ``account`` refuses those that all can read.

    Raises:
        SandboxError: this machine has not what it takes.
    """
    folders = tuple(Path(path) for path in hide)
    if kind == "bubblewrap":
        return _Bubblewrap(folders)
    if kind == "container":
        return _Container(image)
    if kind == "account":
        return _Account(folders)
    if kind == "none":
        return _None()
    raise ValueError(f"no kind of sandbox: {kind!r}")


@functools.cache
def _shared(process: int, kind: Kind, image: str | None, hide: tuple[str, ...]) -> Sandbox:
    found = sandbox(kind, image=image, hide=hide)
    atexit.register(found.close)
    return found


def shared(kind: Kind, image: str | None = None, hide: Iterable[str] = ()) -> Sandbox:
    """This process's one sandbox of this kind, kept warm until the process ends."""
    return _shared(os.getpid(), kind, image, tuple(hide))


def available(image: str | None = None) -> Kind:
    """The kind of sandbox that works on this machine, tried out.

    Args:
        image: a container's image, to fall back on.

    Raises:
        SandboxError: none does; the message says why, and the ways out.
    """
    step = {"kind": "cell", "id": "try", "source": "print(1)"}
    refused = []
    for kind in ("bubblewrap", "container"):
        try:
            with sandbox(kind, image=image) as found:
                [result] = run_steps([step], Limits(), found)
            if result["output"] == "1\n":
                return kind
            refused.append(f"{kind}: {result['error']}")
        except (SandboxError, OSError) as error:
            refused.append(f"{kind}: {error}")
    raise SandboxError(
        "there is no sandbox to run students' work in.\n  "
        + "\n  ".join(refused)
        + "\nOn Linux install bubblewrap (apt install bubblewrap, dnf install bubblewrap); "
        "elsewhere install docker or podman and name an image that has this package.  "
        "If you trust every submission as you trust your own code, say so, and it runs without."
    )
