"""The command's part inside the watched process: start the watch, and report at the end.

``_startup/sitecustomize.py`` creates the one :class:`Session` of a process, and ends it after the
program's own exit functions. Python has then stored the error that ended the program in
``sys.last_value``, so the explanation appears below the traceback, whatever code printed it.

A process that ``multiprocessing`` spawns has its own session, and the explanation of an error there
is in the traceback that the parent prints. A fork shares the watch of its parent. Importing this
module does not import torch, so a program without torch has a report, too.
"""

import functools
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradtrace.explaining.causes import SCHEMA

if TYPE_CHECKING:
    from gradtrace.explaining.diagnosis import Diagnosis
    from gradtrace.explaining.watcher import Watch


@dataclass
class Session:
    """One run of a program under the command; an option that was not given is an empty text."""

    strict: bool  # whether the watch is a strict one
    function: str  # of the script, to play line by line
    page: str  # the file for that
    report: str  # the file for the JSON report; "-" prints it
    say: Callable[[str], None]  # prints one message of gradtrace's own
    watch: "Watch | None" = None
    recording: Any = None

    def begin(self) -> None:
        """Start the watch; torch has been imported."""
        from gradtrace.explaining.watcher import watch  # not at the top, as these import torch
        from gradtrace.tracing.tracer import CallRecorder

        self.watch = watch(strict=self.strict)
        _follow_spawned(self.strict)
        if self.function:
            self.recording = CallRecorder(vars(sys.modules["__main__"])["__file__"], self.function)
            self.recording.__enter__()

    def end(self) -> None:
        """Print and write the results, and stop the watch."""
        error = getattr(sys, "last_value", None)
        diagnosis = None
        if self.watch is not None:
            diagnosis = self._look(self.watch, error)
        if self.report:
            self._guarded(self._write_report, error, diagnosis)
        if self.function:
            self._guarded(self._write_page)
        if self.watch is not None:
            self.watch.stop()

    def _look(self, watch: "Watch", error: BaseException | None) -> "Diagnosis | None":
        if self.recording is not None:
            self.recording.__exit__(None, None, None)
        if self.strict:
            watch.look_back(vars(sys.modules["__main__"]))
        if not isinstance(error, Exception):
            # Its note may never have been printed, except by the parent of a spawned process.
            if watch.last_failure is not None and "--multiprocessing-fork" not in sys.orig_argv:
                caught = f"gradtrace: the program caught {watch.last_failure.error}"
                self.say(f"{caught}\n{watch.last_failure.text()}")
            return watch.last_failure
        in_traceback = _explained(error)  # with the traceback
        diagnosis = watch.explain(error)
        if diagnosis is not None and not in_traceback:
            self.say(diagnosis.text())
        return diagnosis

    def _write_report(self, error: BaseException | None, diagnosis: "Diagnosis | None") -> None:
        torch = sys.modules.get("torch")
        data = {
            "schema": SCHEMA,
            "torch": torch and torch.__version__,
            "family": None,
            "error": None if error is None else _message(error),
        }
        if diagnosis is not None:
            data = diagnosis.to_dict()
        findings = [] if self.watch is None else self.watch.findings
        data["warnings"] = [finding.to_dict() for finding in findings]
        text = json.dumps(data, indent=1)
        if self.report == "-":
            print(text)
        else:
            Path(self.report).write_text(text, encoding="utf-8")

    def _write_page(self) -> None:
        if self.recording is None:
            self.say("gradtrace: nothing was traced, because the program never imported torch")
            return
        recorded = self.recording.data()
        if recorded is None:
            self.say(f"gradtrace: nothing was traced, because {self.function} was never called")
            return
        # Not at the top: a program may have a module of this name beside it.
        import webbrowser

        from gradtrace.player.playback import Trace

        page = Path(self.page)
        Trace.of(recorded).to_html(page)
        self.say(f"gradtrace: {self.function} line by line: {page.as_uri()}")
        if sys.stderr.isatty():  # somebody is there to look
            webbrowser.open(page.as_uri())

    def _guarded(self, step: Callable[..., None], *arguments: Any) -> None:
        """Run a step whose failure must not affect the other steps or the program's exit code."""
        try:
            step(*arguments)
        except Exception as error:
            self.say(f"gradtrace: {error}")


def _follow_spawned(strict: bool) -> None:
    """Watch the processes that ``multiprocessing`` spawns from now on; these write no files."""
    # Not at the top: torch has imported these, but a program may have modules of their names.
    from multiprocessing import util

    from gradtrace.cli import watched_environment

    launch = util.spawnv_passfds  # Windows has another function: it is not followed there

    @functools.wraps(launch)
    def launch_watched(path: Any, args: Any, passfds: Any) -> int:
        if "--multiprocessing-fork" not in args:  # a helper of multiprocessing's own
            return launch(path, args, passfds)
        environment = dict(os.environ)
        watched = watched_environment("\n".join(["strict" if strict else "", "", "", ""]))
        try:
            os.environ.update(watched)
            return launch(path, args, passfds)
        finally:
            for name in watched.keys() - environment.keys():
                del os.environ[name]
            os.environ.update(environment)

    util.spawnv_passfds = launch_watched


def _explained(error: BaseException) -> bool:
    """Whether a note on the exception begins with "gradtrace", as every explanation does."""
    notes = getattr(error, "__notes__", ())
    return any(isinstance(note, str) and note.startswith("gradtrace") for note in notes)


def _message(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # its own method fails
        return type(error).__name__
