"""The programs of the site's drill, drawn by the exercise ``name_the_cause``.

``python -m backward_twice.drill`` writes ``book/drill.json``: the site is built without PyTorch, so
what only running tells is found here and stored.  The same code gives the same file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

from backward_twice.checks import question
from backward_twice.checks.plain import loads

PROGRAMS = 12
PATH = Path("book", "drill.json")
_LINES = range(7, 13)
_FIRST_SEED = 100  # neither what the exercise's notebook shows nor what its checks ask


def drawn() -> list[dict[str, Any]]:
    """Draw programs whose last line calls ``backward()`` on a graph that another call has freed.

    Each has its ``lines``, and as ``freed`` the number, from 1, of the line that freed it.  There
    are two backward calls or more to choose from.
    """
    return list(islice(_all(), PROGRAMS))


def _all() -> Iterator[dict[str, Any]]:
    exercise = question("name_the_cause.name_the_cause")
    for seed in count(_FIRST_SEED):
        programs = loads(exercise.inputs(seed))["programs"]
        truth = exercise.expect(programs=programs)
        for number, lines in enumerate(programs, 1):
            cause, raises, freed = (
                truth[f"program {number}: {property_name}"]
                for property_name in ("cause", "line that raises", "line where it began")
            )
            until = lines[: raises or 0]
            calls = [line for line in until if ".backward(" in line]
            if cause == "freed" and len(until) in _LINES and len(calls) > 2:
                yield {"lines": until, "freed": freed}


if __name__ == "__main__":
    PATH.write_text(json.dumps(drawn(), indent=1) + "\n", encoding="utf-8")
    print(PATH)
