"""The programs of the page on trainers, which run in an environment of their own.

``make trainers`` runs them and stores what they print; here the page, the programs and the stored
outputs are held together.
"""

import re
from pathlib import Path

import pytest

BOOK = Path(__file__).parents[1] / "book"
PAGE = (BOOK / "trainers.md").read_text("utf-8")
PROGRAMS = sorted((BOOK / "trainers").glob("*.py"))
REQUIRED = (BOOK.parent / "requirements.txt").read_text("utf-8")


def test_there_are_programs():
    assert {path.stem for path in PROGRAMS} == set(re.findall(r"} trainers/(\w+)\.py", PAGE))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_the_page_shows_what_the_program_prints(program):
    output = program.with_suffix(".txt").read_text("utf-8")
    assert f"trainers/{program.stem}.txt" in PAGE
    versions = output.splitlines()[-1]
    torch = re.search(r"^torch==([\d.]+)", REQUIRED, re.M)[1]
    assert versions.endswith(f"torch {torch}")
    for name in re.findall(r'"([\w-]+)"', program.read_text("utf-8").splitlines()[1]):
        assert re.search(rf"\b{name} \d", versions), f"the version of {name} is not printed"
