"""Run a script under a watch: ``python -m gradtrace [options] script.py [arguments]``.

As with ``python -m pdb`` the script runs unchanged, as ``__main__``; its output and its exit code
are its own.  What gradtrace has to say goes to standard error, or into the file of ``--json``.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import html
import json
import sys
import traceback
import webbrowser
from pathlib import Path
from types import CodeType, ModuleType

import torch

from gradtrace.diagnose import SCHEMA, Diagnosis
from gradtrace.page import static_html
from gradtrace.steps import Trace
from gradtrace.tracer import CallRecorder
from gradtrace.watcher import explain_on, guarded, recorder, watch


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gradtrace",
        description="Run a PyTorch script; when backward fails, say what caused it and the fix.",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="see every operation: more detail, and warnings about failures that raise nothing",
    )
    parser.add_argument(
        "--trace",
        metavar="FUNCTION",
        help="play the first call of FUNCTION line by line: writes SCRIPT.FUNCTION.html here",
    )
    parser.add_argument("--json", metavar="FILE", help="write the explanation as JSON to FILE")
    parser.add_argument("script", help="the program to run")
    rest = parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its own arguments")
    rest.required = False
    return parser.parse_args(arguments)


def _report(path: str, error: BaseException | None, found: Diagnosis | None) -> None:
    message = None if error is None else f"{type(error).__name__}: {error}"
    data = {"schema": SCHEMA, "torch": torch.__version__, "family": None, "error": message}
    if found is not None:
        data = found.to_dict()
    data["warnings"] = [finding.to_dict() for finding in recorder.findings]
    Path(path).write_text(json.dumps(data, indent=1), encoding="utf-8")


def _print_error(error: BaseException) -> None:
    """As Python would print it: without the frames of whoever runs and watches the script."""
    shown = traceback.TracebackException.from_exception(error)
    ours = str(Path(__file__).parent)
    frames = [frame for frame in shown.stack if not frame.filename.startswith(ours)]
    shown.stack = traceback.StackSummary.from_list(frames)
    print("".join(shown.format()), end="", file=sys.stderr)


def _run(code: CodeType, module: ModuleType) -> tuple[int, BaseException | None]:
    """Exit code and exception of a script, as Python itself would end it."""
    try:
        exec(code, module.__dict__)
    except SystemExit as request:
        if request.code is None or isinstance(request.code, int):
            return request.code or 0, None
        print(request.code, file=sys.stderr)
        return 1, None
    except BaseException as error:
        return 130 if isinstance(error, KeyboardInterrupt) else 1, error
    return 0, None


def _play(seen: Trace | None, script: Path, function: str) -> None:
    if seen is None:
        print(f"gradtrace: {function} was never called", file=sys.stderr)
        return
    page = Path(f"{script.stem}.{function}.html").absolute()
    head = f"<!doctype html><meta charset=utf-8><title>{html.escape(page.stem)}</title>"
    page.write_text(head + static_html([seen]), encoding="utf-8")
    print(f"gradtrace: {function} line by line: {page.as_uri()}", file=sys.stderr)
    if sys.stderr.isatty():  # somebody is there to look
        webbrowser.open(page.as_uri())


def main(arguments: list[str] | None = None) -> int:
    """Run the script that ``arguments`` name; returns its exit code, 2 if it cannot be run."""
    options = _arguments(sys.argv[1:] if arguments is None else arguments)
    script = Path(options.script)
    try:
        source = script.read_bytes()
    except OSError as error:
        print(f"gradtrace: can't open {options.script!r}: {error.strerror}", file=sys.stderr)
        return 2
    try:
        code = compile(source, str(script), "exec")
        recording = CallRecorder(str(script), options.trace) if options.trace else None
    except SyntaxError as error:
        _print_error(error)
        return 1
    except ValueError as error:  # null bytes, or no such function
        print(f"gradtrace: {error}", file=sys.stderr)
        return 2
    module = ModuleType("__main__")
    module.__file__ = str(script)
    module.__builtins__ = builtins
    sys.modules["__main__"] = module
    sys.argv = [options.script, *options.arguments]
    sys.path[0] = str(script.resolve().parent)

    one = watch(strict=options.strict)
    with recording or contextlib.nullcontext():
        status, error = _run(code, module)
    if options.strict:
        guarded(recorder.look_for_leaks)(vars(module))
    found = explain_on(error) if isinstance(error, Exception) else None
    one.stop()
    if error is not None:
        _print_error(error)
    if options.json:
        _report(options.json, error, found)
    if recording is not None:
        _play(recording.trace(), script, options.trace)
    return status


if __name__ == "__main__":
    sys.exit(main())
