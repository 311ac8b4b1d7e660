"""Collect every text that a reader meets, as Markdown documents for the linter.

A document is a list of passages, each with the place to mend: a line of a Markdown file, a cell of
a notebook, or a line of a source file.  From Python sources come the docstrings of public names and
every string that reads as a sentence, since messages, hints and questions are such strings.
"""

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Directives of MyST whose body is text; the body of any other is data or code.
TEXT_DIRECTIVES = "list-table|glossary|note|tip|warning|admonition|dropdown|container|grid.*"
# Programs of other people, and wrong answers of learners, stay as they are.
FOREIGN = re.compile(
    r"/(cases/(failing|fixed|advised|layouts)|misconceptions|drivers|same_program)/.*\.py$"
)
# A sentence has four words in a row; a selector, a pattern or a path has not.
SENTENCE = re.compile(r"\b[A-Za-z]+,? [a-z]+,? [a-z]+,? [a-z]+\b")
# A doctest and its output, up to the next empty line.
EXAMPLE = re.compile(r"^ *>>> .*?(?=\n\s*\n|\Z)", re.S | re.M)


@dataclass(frozen=True)
class Passage:
    """A piece of Markdown and where it stands: ``line`` counts from the place's first line."""

    place: str
    line: int | None
    text: str


def tracked(*patterns: str) -> list[Path]:
    """The files under version control that match, without programs of other people."""
    listing = subprocess.run(
        ["git", "ls-files", "--", *patterns], cwd=ROOT, text=True, capture_output=True, check=True
    )
    return [ROOT / name for name in listing.stdout.splitlines() if not FOREIGN.search(f"/{name}")]


def readable(markdown: str) -> str:
    """Unwrap directives whose body is text; every line keeps its number."""
    fence = re.compile(
        rf"^(?P<fence>```+|:::+)\{{(?:{TEXT_DIRECTIVES})\}}[^\n]*\n(?P<body>.*?)^(?P=fence)$",
        re.S | re.M,
    )

    def unwrapped(match: re.Match[str]) -> str:
        return "\n" + re.sub(r"^:\S+:.*$", "", match["body"], flags=re.M)

    return fence.sub(unwrapped, markdown)


def markdown_passages(path: Path) -> Iterator[Passage]:
    yield Passage(str(path.relative_to(ROOT)), 1, readable(path.read_text(encoding="utf-8")))


def notebook_passages(path: Path) -> Iterator[Passage]:
    """The cells of text, and the sentences in cells of code."""
    name = path.relative_to(ROOT)
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        place, source = f"{name}, cell {cell['id']}", "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield Passage(place, 1, readable(source))
        elif not source.startswith(("%", "!")):
            yield from sentences(place, ast.parse(re.sub(r"^[%!].*$", "pass", source, flags=re.M)))


def source_passages(path: Path) -> Iterator[Passage]:
    """Docstrings of public names and the sentences in other strings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    place = str(path.relative_to(ROOT))
    yield from docstrings(place, tree)
    yield from sentences(place, tree)


def fact_passages(path: Path) -> Iterator[Passage]:
    """The sentences of a table of facts or causes, one on each line."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        name, _, text = line.partition(" = ")
        if name != "pattern" and text[:1] in {'"', "'"}:
            yield Passage(str(path.relative_to(ROOT)), number, text.strip("\"'"))


def docstrings(place: str, tree: ast.Module) -> Iterator[Passage]:
    definitions = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if not isinstance(node, definitions) or getattr(node, "name", "").startswith("_"):
            continue
        if text := ast.get_docstring(node):
            yield Passage(place, node.body[0].lineno, EXAMPLE.sub("", text))


def sentences(place: str, tree: ast.Module) -> Iterator[Passage]:
    """The strings of code that read as sentences, with a stand-in for each value in them."""
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    for node in ast.walk(tree):
        if id(node) in bare | parts:
            continue
        if isinstance(node, ast.JoinedStr):
            pieces = [p.value if isinstance(p, ast.Constant) else "`value`" for p in node.values]
            text = "".join(map(str, pieces))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if SENTENCE.search(text):
            yield Passage(place, node.lineno, text.strip())


def documents() -> dict[str, list[Passage]]:
    """All passages by file."""
    readers = (
        (markdown_passages, tracked("*.md")),
        (notebook_passages, tracked("notebooks/*.ipynb", "solutions/*.ipynb")),
        (source_passages, tracked("gradtrace/src/*.py", "src/*.py", "book/_ext/*.py")),
        (fact_passages, tracked("gradtrace/src/*/causes/*.toml")),
    )
    return {
        str(path.relative_to(ROOT)): list(read(path))
        for read, paths in readers
        for path in paths
        if path.is_file()
    }
