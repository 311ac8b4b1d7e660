"""``python -m backward_twice.grading.gradescope [EXERCISE ...]``, run in the course's checkout.

It writes the zips of :mod:`backward_twice.grading.platforms.gradescope`.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from backward_twice.grading import GradingError
from backward_twice.grading.intake.submissions import in_words
from backward_twice.grading.judging.master import read_masters
from backward_twice.grading.platforms.gradescope.archive import write
from backward_twice.grading.platforms.gradescope.autograder import LIMITS


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m backward_twice.grading.gradescope",
        description="Write _build/gradescope/<exercise>.zip, to be uploaded as an autograder.",
    )
    parser.add_argument("exercises", nargs="*", metavar="EXERCISE", help="default: all of them")
    parser.add_argument("--private", type=Path, help="folder of hidden variants and a secret")
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="limit of each cell and question"
    )
    parser.add_argument("--memory", type=int, metavar="MB", help="limit of the student's processes")
    parser.add_argument("--into", type=Path, default=Path("_build/gradescope"))
    options = parser.parse_args(arguments)
    limits = {"seconds": options.seconds, "memory": options.memory and options.memory << 20}
    limits = {name: limit for name, limit in limits.items() if limit is not None}
    try:
        replace(LIMITS, **limits)
    except ValueError as error:
        parser.error(str(error))
    try:
        masters = read_masters(Path("solutions"))
        for exercise in options.exercises or masters:
            path = write(exercise, Path(), options.into, options.private, limits)
            print(f"{path}: {masters[exercise].max_points:g} points")
    except GradingError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {in_words(error, options.into)}")


if __name__ == "__main__":
    main()
