"""The record of a GPU: what it holds, and what pages say of it.  The parts are in `tests/gpu`."""

import ast
import datetime
import re
from pathlib import Path

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).parents[1]
SITE = ROOT / "_build" / "html"
RECORD = yaml.safe_load((ROOT / "book" / "gpu.yml").read_text(encoding="utf-8"))
MARKS = {"passed": "run on a GPU", "failed": "failed on a GPU", "not run": "not run on a GPU"}
PLAIN_QUOTES = str.maketrans("“”‘’", "\"\"''")  # Sphinx prints curly ones
LINK = re.compile(r"\]\((?:\.\./book/)?versions\.md#gpu-(\w+)\)")


def parts():
    """The names of the parts that `make gpu-check` runs."""
    return {
        node.name.removeprefix("test_")
        for path in (ROOT / "tests" / "gpu").glob("test_*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def linked():
    """The parts that each page links, in order."""
    texts = {path: path.read_text(encoding="utf-8") for path in ROOT.glob("book/*.md")}
    for path in ROOT.glob("notebooks/*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        texts[path] = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    found = {path: LINK.findall(text) for path, text in texts.items()}
    return {path: names for path, names in found.items() if names}


def test_the_record_holds_every_part():
    assert set(RECORD["parts"]) == parts()


def test_the_record_says_when_and_where():
    datetime.date.fromisoformat(RECORD["date"])
    assert RECORD["devices"] >= 1
    for name in ("device", "torch", "cuda", "cudnn", "nccl", "python"):
        assert isinstance(RECORD[name], str) and RECORD[name]


def test_a_part_has_an_outcome_and_a_reason_if_it_did_not_pass(subtests):
    for name, part in RECORD["parts"].items():
        with subtests.test(part=name):
            assert part["title"]
            assert part["outcome"] in MARKS
            assert ("reason" in part) == (part["outcome"] != "passed")
            assert all(isinstance(value, (int, str)) for value in part.get("figures", {}).values())


def test_links_name_parts():
    found = linked()
    assert len(found) > 5
    assert {name for names in found.values() for name in names} <= parts()


def built(path):
    page = SITE / path.relative_to(ROOT).with_suffix(".html")
    if not page.exists():
        pytest.fail("the book is not built: run `make book` first")
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


@pytest.mark.parametrize(("path", "names"), linked().items(), ids=lambda value: str(value)[-24:])
def test_marks_are_those_of_the_record(path, names):
    marks = [(mark["href"], mark.get_text()) for mark in built(path).select("a.gpu")]
    assert [(href.partition("#gpu-")[2], words) for href, words in marks] == [
        (name, MARKS[RECORD["parts"][name]["outcome"]]) for name in names
    ]


def test_the_page_on_versions_has_a_row_for_each_part():
    table = built(ROOT / "book" / "versions.md").select_one("table.gpu-table")
    rows = {row["id"].removeprefix("gpu-"): row for row in table.select("tbody tr")}
    assert set(rows) == parts()
    for name, part in RECORD["parts"].items():
        title, outcome, seen = (
            cell.get_text(" ", strip=True).translate(PLAIN_QUOTES)
            for cell in rows[name].select("td")
        )
        assert (title, outcome) == (part["title"], part["outcome"])
        for figure, value in part.get("figures", {}).items():
            assert figure in seen
            assert str(value).split()[0] in seen
