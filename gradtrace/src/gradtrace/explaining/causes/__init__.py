"""The table of causes: the failures of a graph, the facts that entail them, and the texts.

The text of an error gives its *family*. Within a family the first of its :data:`CRITERIA` whose
facts hold gives the *cause*. Each family has a file; ``freed.toml`` explains the keys. Each fact
has a name and, in ``texts.toml``, a sentence; :mod:`gradtrace.explaining.evidence` and
:mod:`gradtrace.explaining.silent` establish it. The documentation is generated from this package,
which therefore needs no PyTorch.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from gradtrace.explaining.causes.table import CONFIDENCE, Cause, Criterion, Fix

SCHEMA = 1  # of the JSON report


def _read(name: str) -> dict[str, Any]:
    path = Path(__file__).with_name(f"{name}.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _fix(table: dict[str, Any], entry: dict[str, Any], needs: str = "") -> Fix:
    if shared := entry.get("shared"):
        entry = table["shared"][shared] | entry
    facts = tuple(needs.split(" and ")) if needs else ()
    proof = tuple(entry.get("proof", ())) if entry.get("proven", True) else None
    return Fix(entry["fix"], facts, proof, entry.get("otherwise"))


def _cause(table: dict[str, Any], name: str) -> Cause:
    entry = table["causes"][name]
    family = None if entry.get("in_every_family") else entry.get("family", table["family"])
    cases = ((needs, case) for needs, case in entry.items() if isinstance(case, dict))
    fixes = [_fix(table, case, needs) for needs, case in cases]
    return Cause(
        family, name, entry["meaning"], entry.get("evidence"), (*fixes, _fix(table, entry))
    )


_TABLES = [_read(name) for name in ("freed", "modified", "no_graph", "unsupported", "silent")]
_TABLES += [_errors := _read("errors")]
_texts = _read("texts")
FAMILIES, FACTS, KEYS, REPLACEMENTS = _texts.values()
# PyTorch's error texts, each with its family, and its cause or None if the text decides none.
PATTERNS = [(*entry, None)[:3] for entry in _errors["patterns"]]
PATTERNS += [(text["pattern"], "unsupported", name) for name, text in _errors["causes"].items()]

CRITERIA = {
    family: tuple(Criterion(cause, tuple(facts), CONFIDENCE[word]) for cause, facts, word in rows)
    for table in _TABLES
    for family, rows in table.get("criteria", {}).items()
}

CAUSES = {name: _cause(table, name) for table in _TABLES for name in table["causes"]}


def family_of(message: str) -> tuple[str | None, str | None]:
    """Return the family of an error's text, and its cause if the text decides it."""
    matching = (entry[1:] for entry in PATTERNS if re.search(entry[0], message))
    return next(matching, (None, None))


def gradient_counts(message: str) -> tuple[int, int] | None:
    """Return how many gradients a backward method should return, and how many it returned."""
    counts = re.search(r"incorrect number of gradients \(expected (\d+), got (\d+)", message)
    return None if counts is None else (int(counts[1]), int(counts[2]))
