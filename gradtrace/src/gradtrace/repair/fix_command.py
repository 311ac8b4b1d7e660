"""The command ``gradtrace fix [options] script.py [arguments]``."""

import argparse
import json
import sys
from pathlib import Path

from gradtrace.repair import proof_text
from gradtrace.repair.edits import Source, write
from gradtrace.repair.proof import prove
from gradtrace.repair.run.observations import RunLimits
from gradtrace.repair.run.processes import Launcher, LauncherEnded


def _parser(version: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gradtrace fix",
        usage="gradtrace fix [options] (script.py | -m module) [arguments]",
        description="Edit a failing PyTorch program in every way that could repair it, run each "
        "edit in a process of its own, and show the one whose gradients are right.",
        epilog="Each run of the program really writes its files and sends its requests. Exit code:"
        " 0 if a repair is proven or nothing is to be repaired, 1 if not, 2 for a wrong command.",
        allow_abbrev=False,
    )
    parser.add_argument("--list", action="store_true", help="list the candidates, run none of them")
    parser.add_argument(
        "--apply", action="store_true", help="write the proven repair into the program's files"
    )
    parser.add_argument(
        "--choose", type=int, metavar="N", help="with --apply: the Nth, where several hold"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write what was found as JSON to FILE, or with - to print it"
    )
    parser.add_argument(
        "--beyond",
        type=int,
        default=8,
        metavar="N",
        help="backward calls beyond the one that failed, for each candidate (8)",
    )
    parser.add_argument(
        "--seconds", type=float, default=120.0, metavar="S", help="the most for one run (120)"
    )
    parser.add_argument("-V", "--version", action="version", version=f"gradtrace {version}")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="repair a module")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="the script and its arguments")
    return parser


def main(words: list[str], flags: list[str], version: str) -> int:
    """Run the command; ``flags`` are options of the interpreter.  Returns the exit code."""
    parser = _parser(version)
    options = parser.parse_args(words)
    program = ["-m", *options.module] if options.module else options.program
    if not program:
        parser.error("no program to repair")
    if program[0] != "-m" and not Path(program[0]).is_file():
        parser.error(f"there is no file {program[0]}")
    if options.choose is not None and not options.apply:
        parser.error("--choose says which repair --apply writes: give both")
    if options.beyond < 1 or options.seconds <= 0:
        parser.error("--beyond and --seconds are more than 0")
    if options.json not in (None, "-"):  # before a minute of work is lost
        try:
            Path(options.json).open("a").close()
        except OSError as error:
            parser.error(f"--json {options.json} cannot be written: {error.strerror}")
    try:
        return _fix(options, program, flags)
    except LauncherEnded as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        _say("stopped: nothing was written")
        return 130


def _fix(options: argparse.Namespace, program: list[str], flags: list[str]) -> int:
    name = " ".join(program[:2]) if program[0] == "-m" else program[0]
    often = "once, for" if options.list else "several times, each for"
    _say(
        f"this runs {name} {often} at most {options.seconds:g} seconds. Each "
        "run really writes its files and sends its requests."
    )
    with Launcher(program, flags) as launcher:
        limits = RunLimits(None, options.beyond, options.seconds)
        proof = prove(launcher, limits, _say, only_list=options.list)
    text = json.dumps(proof_text.data(proof), indent=1)
    if options.json == "-":
        print(text)
    elif options.json:
        Path(options.json).write_text(text, encoding="utf-8")
    printed = sys.stderr if options.json == "-" else sys.stdout
    if options.list:
        print(proof_text.listing(proof), file=printed)
        return 0
    print(proof_text.text(proof), file=printed)
    outcome = proof_text.outcome(proof)
    if not options.apply or not proof.accepted:
        if proof.accepted:
            print("\nNothing was written: --apply writes it.", file=printed)
        return 0 if outcome in ("healthy", "proven") else 1
    number = options.choose or (1 if outcome == "proven" else 0)
    if not 1 <= number <= len(proof.accepted):
        _say(f"which one is right is yours to say: --apply --choose N, 1 to {len(proof.accepted)}")
        return 1
    try:
        for path, text in proof.accepted[number - 1].candidate.edits.items():
            write(path, Source(path).text, text)
            print(f"wrote {path}", file=printed)
    except (OSError, ValueError) as error:
        _say(str(error))
        return 1
    return 0


def _say(text: str) -> None:
    print(f"gradtrace: {text}", file=sys.stderr, flush=True)
