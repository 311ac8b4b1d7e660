"""Other people's libraries under a watch: is the watched program the same program?

Each file in ``drivers`` is a quick start of one library: synthetic data, a few dozen steps, seeded.
It names what it needs in its inline script metadata (PEP 723), and ``--install`` gives that to the
environment of this interpreter.  Every driver runs plain, watched and strict, in fresh processes
and empty folders, taken in turn so that a busy machine disturbs all alike.  Compared are exit code,
standard output (with the driver's digests of its parameters, gradients and random state), standard
error and the files written; a finding of strict about such a program is a false alarm.  The table
is Markdown; costs are ratios of medians over the rounds.

A library that cannot be installed or imported is named with the reason.  The exit code is 1 when a
driver fails by itself, differs or is alarmed, and when fewer than 20 could be compared.
"""

import argparse
import difflib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

DRIVERS = Path(__file__).resolve().parent / "drivers"
ENOUGH = 20
WAYS = {
    "plain": (),
    "watched": ("-m", "gradtrace"),
    "strict": ("-m", "gradtrace", "--strict"),
}
# No network, no other device, the same order of sets and of sums in every run.
SURROUNDINGS = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
_PROGRESS = re.compile(r"it/s|s/it|\d%\|")
_METADATA = re.compile(r"(?m)^# /// script$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass
class Outcome:
    """What one run of a driver left behind."""

    code: int | None  # None: it did not end in time
    stdout: str
    stderr: str
    files: dict[str, bytes]
    findings: list[dict]
    measures: dict[str, float] | None  # None: it did not get beyond its imports

    def last_line(self) -> str:
        lines = [line for line in self.stderr.splitlines() if line.strip()]
        return lines[-1][:300] if lines else "(it said nothing)"


def needed(driver: Path) -> tuple[list[str], list[str]]:
    """What a driver needs: with all that it asks for in turn, and alone (``pip --no-deps``)."""
    found = _METADATA.search(driver.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{driver.name}: no inline script metadata")
    lines = found["content"].splitlines()
    script = tomllib.loads("\n".join(line.removeprefix("#").removeprefix(" ") for line in lines))
    return script["dependencies"], script.get("tool", {}).get("wild", {}).get("alone", [])


def _pip(packages: Iterable[str], *options: str) -> str | None:
    """Install; returns pip's last word if it failed."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", *options, *sorted(set(packages))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (errors or ["pip failed"])[-1][:300]


def install(drivers: list[Path], *options: str) -> dict[Path, str]:
    """Install what the drivers need, all at once if that goes; returns why some cannot run."""
    needs = {driver: needed(driver) for driver in drivers}
    together = [package for packages, _ in needs.values() for package in packages]
    one_by_one = _pip(together, *options) is not None
    skipped = {}
    for driver, (packages, alone) in needs.items():
        problem = _pip(packages, *options) if one_by_one else None
        if problem is None and alone:
            problem = _pip(alone, "--no-deps", *options)
        if problem is not None:
            skipped[driver] = problem
    return skipped


def run(driver: Path, way: str, limit: float = 600) -> Outcome:
    """One run in a fresh process and an empty folder."""
    with tempfile.TemporaryDirectory() as aside, tempfile.TemporaryDirectory() as folder:
        measures, found = Path(aside, "measures.json"), Path(aside, "found.json")
        options = (*WAYS[way], "--json", str(found)) if WAYS[way] else ()
        surroundings = os.environ | SURROUNDINGS | {"WILD_MEASURES": str(measures)}
        process = subprocess.Popen(
            [sys.executable, *options, str(driver)],
            cwd=folder,
            env=surroundings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=limit)
            code = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
            code = None
        paths = [path for path in Path(folder).rglob("*") if path.is_file()]
        return Outcome(
            code,
            stdout.replace(folder, "FOLDER"),
            stderr.replace(folder, "FOLDER"),
            {str(path.relative_to(folder)): path.read_bytes() for path in paths},
            json.loads(found.read_text(encoding="utf-8"))["warnings"] if found.exists() else [],
            json.loads(measures.read_text(encoding="utf-8")) if measures.exists() else None,
        )


def _steady(text: str) -> list[str]:
    """The lines that do not depend on the clock."""
    return [line for line in text.splitlines() if not _PROGRESS.search(line)]


def differences(plain: Outcome, other: Outcome) -> list[str]:
    """What differs between two runs, a few lines for each kind."""
    found = []
    if plain.code != other.code:
        found.append(f"exit code {plain.code} → {other.code}: {other.last_line()}")
    streams = {"stdout": (plain.stdout, other.stdout)}
    if not other.findings:  # they are printed there, and count as alarms
        streams["stderr"] = (plain.stderr, other.stderr)
    for name, texts in streams.items():
        changes = list(difflib.unified_diff(*map(_steady, texts), lineterm="", n=0))[2:]
        found += [f"{name}: {line[:300]}" for line in changes if not line.startswith("@@")][:6]
    if plain.files != other.files:
        names = sorted(plain.files.keys() | other.files.keys())
        changed = [name for name in names if plain.files.get(name) != other.files.get(name)]
        found.append(f"files: {', '.join(changed)}")
    return found


def _about(finding: dict) -> str:
    known = {key: value for key, value in finding.items() if value is not None}
    return f"false alarm: {json.dumps(known, ensure_ascii=False)}"


def judge(rounds: list[dict[str, Outcome]]) -> list[str]:
    """Everything that is wrong with a driver, in words; each thing once."""
    first = rounds[0]["plain"]
    problems = [f"fails by itself: {first.last_line()}"] if first.code != 0 else []
    for outcomes in rounds:
        for way, outcome in outcomes.items():
            problems += [f"{way}: {text}" for text in differences(first, outcome)]
            problems += [f"{way}: {_about(finding)}" for finding in outcome.findings]
    return list(dict.fromkeys(problems))


def ratio(rounds: list[dict[str, Outcome]], way: str, measure: str) -> str:
    """How much more of something a way takes than plain."""
    medians = []
    for one in (way, "plain"):
        values = [outcomes[one].measures for outcomes in rounds]
        if not all(value and measure in value for value in values):
            return "–"
        medians.append(statistics.median(value[measure] for value in values))
    return f"{medians[0] / medians[1]:.2f}"


def _versions(driver: Path) -> str:
    packages, alone = needed(driver)
    names = [_NAME.match(package)[0] for package in [*alone, *packages]]
    return ", ".join(f"{name} {metadata.version(name)}" for name in names)


def _table_row(*cells: str) -> None:
    print("|", " | ".join(cells), "|", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run libraries' quick starts plain and watched.")
    parser.add_argument("names", nargs="*", help="drivers; all, if none is named")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each way")
    parser.add_argument("--install", action="store_true", help="install what the drivers need")
    parser.add_argument("--constraint", default=[], action="append", help="as pip takes it")
    options = parser.parse_args()

    drivers = sorted(path for path in DRIVERS.glob("*.py") if path.stem != "trial")
    if options.names:
        drivers = [DRIVERS / f"{name}.py" for name in options.names]
    constraints = [f"--constraint={name}" for name in options.constraint]
    skipped = install(drivers, *constraints) if options.install else {}

    print(f"torch {metadata.version('torch')}, medians of {options.rounds} runs, one thread\n")
    _table_row("driver", "library", "same", "alarms", "watched ×", "strict ×", "memory ×")
    _table_row(*["---"] * 7)
    wrong: dict[str, list[str]] = {}
    compared = 0
    for driver in drivers:
        if driver in skipped:
            continue
        rounds = [{way: run(driver, way) for way in WAYS}]
        if rounds[0]["plain"].measures is None:
            skipped[driver] = rounds[0]["plain"].last_line()
            continue
        rounds += [{way: run(driver, way) for way in WAYS} for _ in range(options.rounds - 1)]
        compared += 1
        problems = judge(rounds)
        if problems:
            wrong[driver.stem] = problems
        alarms = sum("false alarm" in problem for problem in problems)
        _table_row(
            driver.stem,
            _versions(driver),
            "yes" if len(problems) == alarms else "**no**",
            f"**{alarms}**" if alarms else "0",
            ratio(rounds, "watched", "seconds"),
            ratio(rounds, "strict", "seconds"),
            f"{ratio(rounds, 'watched', 'peak')}, {ratio(rounds, 'strict', 'peak')}",
        )
    for name, problems in wrong.items():
        print(f"\n**{name}**\n")
        for problem in problems:
            print(f"- {problem}")
    if skipped:
        print("\n**skipped**\n")
        for driver, reason in skipped.items():
            print(f"- {driver.stem}: {reason}")
    print(f"\n{compared} compared, {len(wrong)} wrong, {len(skipped)} skipped")
    too_few = compared < (min(ENOUGH, len(drivers)))
    return 1 if wrong or too_few else 0


if __name__ == "__main__":
    sys.exit(main())
