"""Other people's test suites under a watch: does every test end as it does without one?

PyTorch's own tests of autograd come from a checkout of PyTorch, since its wheel holds none, and the
tests of libraries built on autograd from their source distributions.  Nothing of them is copied
into this repository.  Each suite is split into chunks, and each chunk runs plain, watched and
strict in a process of its own, so that a crash costs one chunk.  pytest-reportlog writes a line as
each test ends; that is how the outcomes before a crash are known.

A chunk in which a test ends differently runs once more, and only what differs again is reported,
because some tests are unsteady by themselves.  ``differences.toml`` lists the known differences,
each with its reason.  The exit code is 1 when a test differs that is not listed, when a listed one
no longer differs, when a chunk crashes only under a watch, and when nothing was compared.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
WAYS = {
    "plain": (),
    "watched": ("-m", "gradtrace"),
    "strict": ("-m", "gradtrace", "--strict"),
}
# The same on every machine: no network, no other device, one thread, one order of sets, one seed.
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONPATH": str(HERE),
}
# A suite's own configuration names plugins that are not here, and files of a whole checkout.
PYTEST = (
    "-m", "pytest", "--rootdir=.", "--override-ini=addopts=", "-p", "no:cacheprovider",
    "-p", "no:gradtrace", "-p", "no:warnings", "-p", "seeded", "--quiet",
)  # fmt: skip


@dataclass(frozen=True)
class Suite:
    """Where a library's tests are, and what they need."""

    files: tuple[str, ...]  # relative to the folder in which pytest runs
    needs: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()  # installed without its dependencies
    checkout: str | None = None  # the tests' folder in a checkout; None: in a source distribution
    options: tuple[str, ...] = ()  # of pytest


SUITES = {
    "pytorch": Suite(
        files=(
            "test_autograd.py",
            "test_autograd_fallback.py",
            "functorch/test_eager_transforms.py",
            "nn/test_module_hooks.py",
            "dynamo/test_hooks.py",
            "test_optim.py",
        ),
        needs=("expecttest", "hypothesis", "numpy", "scipy", "psutil"),
        checkout="test",
        options=("--noconftest",),  # it splits tests among PyTorch's machines, for one pytest
    ),
    # Its source distribution holds no tests; it and BackPACK ask for packages that their tests
    # need only for pictures.
    "higher": Suite(files=("tests",), needs=("parameterized",), alone=("higher",), checkout="."),
    "backpack-for-pytorch": Suite(
        files=("test",),
        needs=("einops", "pytorch_memlab", "scipy"),
        alone=("unfoldNd", "backpack-for-pytorch"),
    ),
    "torchopt": Suite(files=("tests",), needs=("torchopt",)),
    "gpytorch": Suite(files=("test",), needs=("gpytorch",)),
}


@dataclass
class Run:
    """How the tests of a chunk ended, in one way."""

    outcomes: dict[str, str]
    ending: str | None  # how the process ended, if not by itself
    seconds: float


@dataclass
class Comparison:
    """What is known of a suite."""

    tests: list[str]
    compared: int = 0  # tests that ran in each way: the others come after a crash in their chunk
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WAYS, 0.0))
    differences: dict[tuple[str, str], str] = field(default_factory=dict)  # (test, way): how
    crashes: list[str] = field(default_factory=list)


def install(suite: Suite, *options: str) -> None:
    """Install what a suite needs into this interpreter's environment.

    Raises:
        RuntimeError: pip failed; the text is its last error.
    """
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *options]
    for packages, option in ((suite.needs, ()), (suite.alone, ("--no-deps",))):
        if packages:
            done = subprocess.run([*pip, *option, *packages], capture_output=True, text=True)
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            if done.returncode:
                raise RuntimeError((errors or ["pip failed"])[-1][:300])


def unpack(name: str, files: Iterable[str], into: Path) -> None:
    """Download a source distribution and unpack its tests, and nothing else of it.

    The package beside them would be imported in place of the one that is installed.  unearth
    downloads without building, which takes pip minutes for some.

    Raises:
        RuntimeError: there is no source distribution, or it has no tests.
    """
    version = metadata.version(name)
    with tempfile.TemporaryDirectory() as folder:
        command = [Path(sys.executable).with_name("unearth"), f"{name}=={version}", "--no-binary"]
        done = subprocess.run([*command, "--download", folder], capture_output=True, text=True)
        archives = list(Path(folder).glob("*.tar.gz"))
        if not archives:
            raise RuntimeError(f"no source distribution of {name} {version}: {done.stderr[-300:]}")
        with tarfile.open(archives[0]) as sdist:
            members = [m for m in sdist if m.name.partition("/")[2].split("/")[0] in files]
            for member in members:
                member.name = member.name.partition("/")[2]
            if not members:
                raise RuntimeError(f"the source distribution of {name} {version} has no tests")
            sdist.extractall(into, members, filter="data")


def collect(folder: Path, suite: Suite) -> list[str]:
    """List the identifiers of a suite's tests, in their order.

    Raises:
        RuntimeError: there is none; the text is pytest's last line.
    """
    options = (*suite.options, "--collect-only", "--continue-on-collection-errors")
    command = [sys.executable, *PYTEST, *options, *suite.files]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | ENVIRONMENT, capture_output=True, text=True
    )
    lines = (done.stdout + done.stderr).splitlines()
    tests = [line for line in lines if "::" in line and not line.startswith(("ERROR", "E  "))]
    if not tests:
        raise RuntimeError(f"pytest collects no test: {lines[-1] if lines else 'it says nothing'}")
    return tests


def read_outcomes(log: Path) -> dict[str, str]:
    """How each test in a report log ended; ``"unfinished"`` where the process ended first."""
    outcomes = {}
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        try:
            report = json.loads(line)
        except json.JSONDecodeError:  # the process ended while it wrote
            break
        if report.get("$report_type") != "TestReport":
            continue
        outcome, when = report["outcome"], report["when"]
        if "wasxfail" in report:
            outcome = "xfailed" if outcome == "skipped" else "xpassed"
        if when == "setup" and outcome == "passed":
            outcomes[report["nodeid"]] = "unfinished"
        elif when == "call" or outcome in ("skipped", "xfailed"):
            outcomes[report["nodeid"]] = outcome
        elif outcome == "failed":
            outcomes[report["nodeid"]] = "error"
    return outcomes


def run(
    folder: Path, tests: list[str], way: str, limit: float, options: tuple[str, ...] = ()
) -> Run:
    """Run tests in one process, at most ``limit`` seconds."""
    with tempfile.TemporaryDirectory() as aside:
        chosen, log = Path(aside, "tests.txt"), Path(aside, "log.jsonl")
        chosen.write_text("\n".join(tests), encoding="utf-8")
        command = [
            sys.executable,
            *WAYS[way],
            *PYTEST,
            *options,
            f"--report-log={log}",
            f"@{chosen}",
        ]
        began = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            code = process.wait(limit)
            ending = None if code in (0, 1) else f"exit code {code}"
            if code < 0:
                ending = signal.Signals(-code).name
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            ending = f"not ended after {limit:g} s"
        return Run(read_outcomes(log), ending, time.monotonic() - began)


def differences(runs: dict[str, Run]) -> dict[tuple[str, str], str]:
    """Each test that ended differently, with the way and with both outcomes."""
    plain = runs["plain"].outcomes
    return {
        (test, way): f"{plain[test]} → {outcome}"
        for way, other in runs.items()
        for test, outcome in other.outcomes.items()
        if test in plain and outcome != plain[test]
    }


def crashes(runs: dict[str, Run]) -> list[str]:
    """The ways in which a chunk crashed, though it did not plain."""
    return [
        f"{way}: {other.ending} in {next(reversed(other.outcomes), 'its start')}"
        for way, other in runs.items()
        if other.ending and not runs["plain"].ending
    ]


def compare(
    name: str, suite: Suite, folder: Path, only: str, chunk: int, limit: float
) -> Comparison:
    """Run the tests of a suite whose identifier holds ``only`` in all ways."""
    comparison = Comparison([test for test in collect(folder, suite) if only in test])
    for first in range(0, len(comparison.tests), chunk):
        part = comparison.tests[first : first + chunk]

        def run_part(part: list[str] = part) -> dict[str, Run]:
            return {way: run(folder, part, way, limit, suite.options) for way in WAYS}

        runs = run_part()
        different, crashed_ways = differences(runs), crashes(runs)
        if different or crashed_ways:
            second_runs = run_part()
            repeated = differences(second_runs).keys()
            different = {key: text for key, text in different.items() if key in repeated}
            crashed_ways = crashes(second_runs) and crashed_ways
        comparison.compared += len(set.intersection(*(set(r.outcomes) for r in runs.values())))
        for (test, way), text in different.items():
            comparison.differences[f"{name}::{test}", way] = text
            print(f"{name}: {way}: {test}: {text}", file=sys.stderr)
        comparison.crashes += [f"{name}: {text}" for text in crashed_ways]
        for way, other in runs.items():
            comparison.seconds[way] += other.seconds
        times = ", ".join(f"{way} {other.seconds:.0f} s" for way, other in runs.items())
        print(
            f"{name}: {first + len(part)} tests of {len(comparison.tests)} ({times})",
            file=sys.stderr,
        )
    return comparison


def read_reasons(path: Path = HERE / "differences.toml") -> dict[tuple[str, str], str]:
    """The reasons of the listed differences, by test and way."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("difference", [])
    return {(entry["test"], way): entry["reason"] for entry in entries for way in entry["ways"]}


def judge(
    different: dict[tuple[str, str], str], reasons: dict[tuple[str, str], str], tests: set[str]
) -> list[str]:
    """Describe differences without a reason, and reasons without a difference, among ``tests``."""
    unexplained = [
        f"{way}: {test}: {outcomes}"
        for (test, way), outcomes in different.items()
        if (test, way) not in reasons
    ]
    outdated = [
        f"{way}: {test} no longer differs: take it out of differences.toml"
        for test, way in reasons
        if test in tests and (test, way) not in different
    ]
    return unexplained + outdated


def prepare(name: str, suite: Suite, checkouts: dict[str, str], aside: Path) -> Path:
    """The folder in which a suite's tests run.

    Raises:
        RuntimeError: its tests cannot be had; the text says why.
    """
    if suite.checkout is None:
        unpack(name, suite.files, aside / name)
        return aside / name
    if name not in checkouts:
        raise RuntimeError(f"give a checkout: make peers {name.upper()}=folder")
    folder = Path(checkouts[name], suite.checkout).resolve()
    missing = [file for file in suite.files if not (folder / file).exists()]
    if missing:
        raise RuntimeError(f"{folder} lacks {', '.join(missing)}: is it a checkout of {name}?")
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description="Run other people's tests plain and watched.")
    parser.add_argument("names", nargs="*", metavar="suite", help="all, if none is named")
    parser.add_argument("--checkout", action="append", default=[], metavar="SUITE=FOLDER")
    parser.add_argument("--only", default="", help="tests whose identifier holds this text")
    parser.add_argument("--chunk", type=int, default=100, help="tests in one process")
    parser.add_argument("--limit", type=float, default=1800, help="seconds for a chunk")
    parser.add_argument("--install", action="store_true", help="install what the suites need")
    parser.add_argument("--constraint", default=[], action="append", help="as pip takes it")
    options = parser.parse_args()
    unknown = set(options.names) - set(SUITES)
    if unknown:
        parser.error(f"no suite {', '.join(sorted(unknown))}: there are {', '.join(SUITES)}")

    checkouts = dict(text.split("=", 1) for text in options.checkout)
    constraints = [f"--constraint={name}" for name in options.constraint]
    different: dict[tuple[str, str], str] = {}
    all_tests: set[str] = set()
    problems, skipped, compared = [], {}, 0
    print(f"torch {metadata.version('torch')}, chunks of {options.chunk} tests, one thread\n")
    print("| suite | compared | lost | watched differ | strict differ | watched × | strict × |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as aside:
        for name in options.names or SUITES:
            try:
                if options.install:
                    install(SUITES[name], *constraints)
                folder = prepare(name, SUITES[name], checkouts, Path(aside))
                result = compare(
                    name, SUITES[name], folder, options.only, options.chunk, options.limit
                )
            except (RuntimeError, metadata.PackageNotFoundError) as error:
                skipped[name] = str(error)
                continue
            all_tests |= {f"{name}::{test}" for test in result.tests}
            compared += result.compared
            different |= result.differences
            problems += result.crashes
            differ = [sum(way == key[1] for key in result.differences) for way in list(WAYS)[1:]]
            plain = result.seconds["plain"] or float("nan")
            costs = [f"{result.seconds[way] / plain:.2f}" for way in list(WAYS)[1:]]
            print(
                "|",
                " | ".join(
                    map(
                        str,
                        (
                            name,
                            result.compared,
                            len(result.tests) - result.compared,
                            *differ,
                            *costs,
                        ),
                    )
                ),
                "|",
            )
            sys.stdout.flush()
    reasons = read_reasons()
    problems += judge(different, reasons, all_tests)
    for title, lines in (
        ("wrong", problems),
        (
            "listed",
            [f"{way}: {test}: {reasons[test, way]}" for test, way in different.keys() & reasons],
        ),
        ("skipped", [f"{name}: {reason}" for name, reason in skipped.items()]),
    ):
        if lines:
            print(f"\n**{title}**\n", *(f"- {line}" for line in lines), sep="\n")
    print(f"\n{compared} tests compared, {len(problems)} wrong, {len(skipped)} suites skipped")
    return 1 if problems or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
