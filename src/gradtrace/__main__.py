"""Run a script under a watch: ``python -m gradtrace [options] script.py [arguments]``.

As with ``python -m pdb`` the script runs unchanged, as ``__main__``; its output and its exit code
are its own.  What gradtrace has to say goes to standard error, or into the file of ``--json``.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
import types
from pathlib import Path

import torch

from gradtrace.diagnose import SCHEMA, Diagnosis
from gradtrace.frames import is_users
from gradtrace.watch import Watch, explain_on, guarded, recorder, watch


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
    parser.add_argument("--json", metavar="FILE", help="write the explanation as JSON to FILE")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args(arguments)


def _report(path: str, error: BaseException | None, found: Diagnosis | None) -> None:
    message = None if error is None else f"{type(error).__name__}: {error}"
    data = {"schema": SCHEMA, "torch": torch.__version__, "family": None, "error": message}
    if found is not None:
        data = found.to_dict()
    data["warnings"] = [finding.to_dict() for finding in recorder.findings]
    Path(path).write_text(json.dumps(data, indent=1), encoding="utf-8")


def _print_error(error: BaseException) -> None:
    """As Python would print it: without the frames of whoever runs the script."""
    shown = error.__traceback__
    while shown is not None and not is_users(shown.tb_frame.f_code):
        shown = shown.tb_next
    traceback.print_exception(type(error), error, shown)


def main(arguments: list[str] | None = None) -> int:
    options = _arguments(sys.argv[1:] if arguments is None else arguments)
    path = Path(options.script)
    try:
        source = path.read_bytes()
    except OSError as error:
        print(f"gradtrace: can't open {options.script!r}: {error.strerror}", file=sys.stderr)
        return 2
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    module.__builtins__ = __builtins__
    sys.modules["__main__"] = module
    sys.argv = [options.script, *options.arguments]
    sys.path[0] = str(path.resolve().parent)
    error, status = None, 0
    one: Watch = watch(strict=options.strict)
    try:
        code = compile(source, str(path), "exec")
        exec(code, module.__dict__)
    except SystemExit as request:
        code = request.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
        status = 0 if code is None else code if isinstance(code, int) else 1
    except BaseException as raised:
        error, status = raised, 130 if isinstance(raised, KeyboardInterrupt) else 1
    if options.strict:
        guarded(recorder.look_for_leaks)(module.__dict__)
    one.stop()
    found = explain_on(error) if isinstance(error, Exception) else None
    if error is not None:
        _print_error(error)
    if options.json:
        _report(options.json, error, found)
    return status


if __name__ == "__main__":
    sys.exit(main())
