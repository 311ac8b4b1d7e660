"""Report words of a text that the vocabulary replaces: ``python tests/prose/lint.py [FILE …]``.

textlint (from npm, see tests/browser/package.json) parses the Markdown and leaves out code; its
rule prh holds the vocabulary.  Exceptions stand in exceptions.yml, each with its reason.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
from prose.documents import ROOT, Passage, documents

FOLDER = Path(__file__).parent
MODULES = ROOT / "tests/browser/node_modules"
TEXTLINT = MODULES / ".bin/textlint"


@dataclass
class Exceptions:
    """Phrases that stay although a rule names them, by a pattern of the files they stand in."""

    entries: list[dict[str, str]] = field(
        default_factory=lambda: yaml.safe_load((FOLDER / "exceptions.yml").read_text("utf-8"))
    )
    used: set[int] = field(default_factory=set)

    def allow(self, file: str, line: str, start: int, end: int) -> bool:
        """Whether an entry's phrase, in this line of the file, covers the columns."""
        for number, entry in enumerate(self.entries):
            if re.search(entry["file"], file) and any(
                phrase.start() <= start and end <= phrase.end()
                for phrase in re.finditer(entry["phrase"], line)
            ):
                self.used.add(number)
                return True
        return False

    def stale(self) -> list[str]:
        return [e["phrase"] for n, e in enumerate(self.entries) if n not in self.used]


def textlint(files: Iterable[Path]) -> list[dict]:
    """The raw report on some Markdown files."""
    configuration = {
        "rules": {
            "prh": {
                "rulePaths": [str(FOLDER / "vocabulary.yml")],
                "checkLink": True,
                "checkEmphasis": True,
                "checkBlockQuote": True,
            }
        }
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "textlintrc.json")
        path.write_text(json.dumps(configuration), encoding="utf-8")
        options = ["--format", "json", "--config", path, "--rules-base-directory", MODULES]
        run = subprocess.run([TEXTLINT, *options, *files], text=True, capture_output=True)
    if run.returncode > 1 or not run.stdout.lstrip().startswith("["):
        raise RuntimeError(f"textlint failed:\n{run.stdout}{run.stderr}")
    return json.loads(run.stdout)


def complaints(texts: dict[str, list[Passage]], exceptions: Exceptions) -> list[str]:
    """What textlint reports on the documents, with the place in the repository, less exceptions."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        passages = {}
        for file, document in texts.items():
            for passage in document:
                path = Path(folder, f"{len(passages)}.md")
                path.write_text(passage.text, encoding="utf-8")
                passages[path.resolve()] = (file, passage)
        for report in textlint([folder]):
            file, passage = passages[Path(report["filePath"]).resolve()]
            lines = passage.text.splitlines()
            for message in report["messages"]:
                line, column = message["line"], message["column"] - 1
                length = message["fix"]["range"][1] - message["fix"]["range"][0]
                if not exceptions.allow(file, lines[line - 1], column, column + length):
                    words = message["message"].replace("\n", ": ")
                    found.append(f"{passage.place}:{passage.line + line - 1}: {words}")
    return found


if __name__ == "__main__":
    if not TEXTLINT.exists():
        sys.exit("textlint is not installed: `make prose` does it, where npm is")
    chosen = {str(Path(name).resolve().relative_to(ROOT)) for name in sys.argv[1:]}
    everything = documents()
    report = complaints(
        {name: text for name, text in everything.items() if not chosen or name in chosen},
        Exceptions(),
    )
    print("\n".join(report) or "Nothing to mend.")
    sys.exit(bool(report))
