"""Run a program under a watch: ``gradtrace [options] script.py [arguments]``.

The command replaces itself by the plain interpreter, with the interpreter's flags: ``python -O -m
gradtrace --strict train.py --lr 1`` becomes ``python -O train.py --lr 1``. So Python itself handles
everything about the program: ``sys.argv``, ``__main__``, frames, the exit code, signals, zip files,
a syntax error. The new process receives the options in an environment variable, and at the front of
``PYTHONPATH`` a folder with a ``sitecustomize`` that starts the watch.
"""

import argparse
import difflib
import importlib
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import CodeType
from typing import NoReturn

from gradtrace import __version__

STARTUP = str(Path(__file__).absolute().parent / "_startup")

_USAGE = "gradtrace [options] (script.py | -m module | -c code | -) [arguments]"
_WITH_VALUE = ("--trace", "--json")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").partition(" ")[0]
        for option in difflib.get_close_matches(unknown, self._option_string_actions, n=1):
            _refuse(f"there is no option {unknown}. Did you mean: {option}")
        _refuse(f"{message} (usage: {_USAGE})")


def _refuse(message: str) -> NoReturn:
    print(f"gradtrace: {message}", file=sys.stderr)
    sys.exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gradtrace",
        usage=_USAGE,
        description="Run a PyTorch program; when its backward pass fails, print the cause and the"
        " fix.",
        epilog="gradtrace fix script.py repairs the program and proves the repair (gradtrace fix"
        " --help). Arguments after the program's name go to the program. python -m gradtrace is the"
        " same command, and passes Python's own flags on to the program.",
        allow_abbrev=False,
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
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write the explanation as JSON to FILE, or with - to print it at the end",
    )
    parser.add_argument("-V", "--version", action="version", version=f"gradtrace {__version__}")
    return parser


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the command's own arguments, and those from the program's name on, unchanged.

    >>> split(["--strict", "--json", "out.json", "train.py", "--", "--strict"])
    (['--strict', '--json', 'out.json'], ['train.py', '--', '--strict'])
    >>> split(["--", "-m", "train"])
    ([], ['-m', 'train'])
    """
    place = 0
    while place < len(arguments):
        word = arguments[place]
        if word == "--":
            return arguments[:place], arguments[place + 1 :]
        if _names_a_program(word):
            break
        place += 2 if word in _WITH_VALUE else 1
    return arguments[:place], arguments[place:]


def _names_a_program(word: str) -> bool:
    return word == "-" or not word.startswith("-") or word[1] in "mc"  # -m json, -mjson


def interpreter_flags(command: list[str]) -> list[str]:
    """Return the interpreter's own flags in a command line such as ``sys.orig_argv``."""
    flags = []
    words = iter(command[1:])
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            break
        if word.startswith("--"):
            flags += [word, *([next(words)] if word == "--check-hash-based-pycs" else [])]
            continue
        for place, letter in enumerate(word[1:], 1):
            if letter in "mc":
                return flags + ([word[:place]] if place > 1 else [])
            if letter in "WX":  # its value is the rest of the word, or the next one
                flags += [word, *([next(words)] if place == len(word) - 1 else [])]
                break
        else:
            flags.append(word)
    return flags


def _check_function(script: str, name: str) -> None:
    """Refuse to trace a function that the script does not define."""
    if script.startswith("-") or Path(script).is_dir():
        _refuse("--trace needs a script in which FUNCTION is defined")
    try:
        source = Path(script).read_bytes()
        with warnings.catch_warnings(action="ignore"):  # Python gives them in the program
            code = compile(source, script, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return  # Python itself reports it better
    pending = [code]
    for outer in pending:
        pending += [inner for inner in outer.co_consts if isinstance(inner, CodeType)]
    if not any(name in (inner.co_name, inner.co_qualname) for inner in pending[1:]):
        _refuse(f"no function {name!r} is defined in {script}")


def _file_of_rank(name: str) -> str:
    """Return a file's absolute path; under a launcher, with its rank: ``report.rank1.json``."""
    path = Path(name).absolute()
    rank = os.environ.get("RANK")
    return str(path if rank is None else path.with_suffix(f".rank{rank}{path.suffix}"))


def _check_command(word: str, options: Iterable[str]) -> None:
    """Refuse a word that is not a file, but looks like ``fix`` or like an option."""
    if word.startswith("-") or Path(word).exists():
        return
    commands = {"fix": "fix"} | {option.strip("-"): option for option in options}
    for name in difflib.get_close_matches(word.lower(), commands, n=1, cutoff=0.65):
        _refuse(f"there is no file {word}. Did you mean: gradtrace {commands[name]}")


_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch")


def inside_launcher(flags: list[str], program: list[str]) -> list[str]:
    """Return the launcher's command line with this command before the program of each rank.

    A launcher starts its ranks as separate programs, which a watch of the launcher would not see.

    >>> inside_launcher(
    ...     ["--strict"],
    ...     ["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "train", "--lr", "1"],
    ... )[2:]
    ['--nproc-per-node', '2', '-m', 'gradtrace', '--strict', '-m', 'train', '--lr', '1']
    """
    module, words = program[1], program[2:]
    options = importlib.import_module(module).parse_args(words)
    if options.no_python:
        _refuse(f"{module} --no-python starts a program without Python: leave that flag out")
    launch = words[: len(words) - len(options.training_script_args) - 1]
    as_module = ["-m"] if options.module else []
    launch = [word for word in launch if word != "-m" and not word.startswith("--mo")]
    watched = [*as_module, options.training_script, *options.training_script_args]
    return ["-m", module, *launch, "-m", "gradtrace", *flags, *watched]


def _session(options: argparse.Namespace, script: str) -> str:
    """Return the options as ``_startup/sitecustomize.py`` reads them, one on each line.

    Paths are absolute, because the program may change its working directory.
    """
    page = options.trace and _file_of_rank(f"{Path(script).stem}.{options.trace}.html")
    report = options.json if options.json in (None, "-") else _file_of_rank(options.json)
    lines = ["strict" if options.strict else "", options.trace or "", page or "", report or ""]
    if any("\n" in line for line in lines):
        _refuse("a file with a line break in its name cannot be written")
    return "\n".join(lines)


def watched_environment(session: str) -> dict[str, str]:
    """Return the environment of a watched process; ``_startup/sitecustomize.py`` restores it."""
    environment = dict(os.environ, GRADTRACE_SESSION=session)
    path = environment.get("PYTHONPATH")
    if path is not None:
        environment["GRADTRACE_PYTHONPATH"] = path
    environment["PYTHONPATH"] = f"{STARTUP}{os.pathsep}{path}" if path else STARTUP
    return environment


def _unreachable() -> str | None:
    """Return the reason why the new process would not import our ``sitecustomize``, if any."""
    flags = {"I": sys.flags.isolated, "E": sys.flags.ignore_environment, "S": sys.flags.no_site}
    for letter, is_set in flags.items():
        if is_set:
            return f"python -{letter} keeps gradtrace out of the program: leave that flag out"
    if os.pathsep in STARTUP:
        return f"PYTHONPATH cannot contain a folder with {os.pathsep!r} in its name: {STARTUP}"
    return None


def main(arguments: list[str] | None = None) -> NoReturn:
    """Replace this process by the program; if the command itself is wrong, exit with code 2."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["fix"]:
        # Not at the top: a watched program starts without the modules of the other command.
        from gradtrace.repair.fix_command import main as fix

        sys.exit(fix(words[1:], interpreter_flags(sys.orig_argv), __version__))
    flags, program = split(words)
    parser = _parser()
    options = parser.parse_args(flags)
    if not program:
        parser.error("no program to run")
    if not _names_a_program(program[0]):
        parser.error(f"{program[0]} is not a program")
    if (reason := _unreachable()) is not None:
        _refuse(reason)
    _check_command(program[0], parser._option_string_actions)
    if Path(program[0]).name == "torchrun":
        program[:1] = ["-m", _LAUNCHERS[0]]
    if program[0] == "-m" and program[1:2] and program[1] in _LAUNCHERS:
        program = inside_launcher(flags, program)
        environment = dict(os.environ)
    else:
        if options.trace:
            _check_function(program[0], options.trace)
        environment = watched_environment(_session(options, program[0]))
    command = [sys.orig_argv[0], *interpreter_flags(sys.orig_argv), *program]
    if os.name == "posix":
        os.execve(sys.executable, command, environment)
    sys.exit(subprocess.call(command, executable=sys.executable, env=environment))
