"""The table of causes: the failures of a graph, the facts that entail them, and the texts.

The text of an error gives its *family*. Within a family the first of its :data:`CRITERIA` whose
facts hold gives the *cause*. Each fact has a name and, in ``texts.toml``, a sentence;
:mod:`gradtrace.explaining.evidence` and :mod:`gradtrace.explaining.silent` establish it. The
documentation of families, causes and the JSON report is generated from this package, which
therefore needs no PyTorch.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from gradtrace.explaining.causes import freed, modified, no_graph, silent, unsupported
from gradtrace.explaining.causes.table import Cause, Fix

SCHEMA = 1  # of the JSON report


def _proof_of(entry: dict[str, Any]) -> tuple[str, ...] | None:
    return tuple(entry.get("proof", ())) if entry.get("proven", True) else None


_texts, _errors = (
    tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))
    for name in ("texts", "errors")
)
FAMILIES, FACTS, KEYS = (_texts[name] for name in ("families", "facts", "keys"))
# PyTorch's error texts, each with its family, and its cause or None if the text decides none.
PATTERNS = [(*entry, None)[:3] for entry in _errors["patterns"]]
PATTERNS += [(text["pattern"], "unsupported", name) for name, text in _errors["causes"].items()]

_MODULES = (freed, modified, no_graph, unsupported, silent)

# Of each family the first criterion whose facts hold gives the cause.
CRITERIA = {family: criteria for module in _MODULES for family, criteria in module.CRITERIA.items()}

CAUSES = {cause.name: cause for module in _MODULES for cause in module.CAUSES}
for _name, _text in _errors["causes"].items():
    _fixes = (
        Fix(entry["fix"], tuple(entry.get("needs", ())), _proof_of(entry), entry.get("otherwise"))
        for entry in (*_text.get("cases", ()), _text)
    )
    CAUSES[_name] = Cause("unsupported", _name, _text["meaning"], *_fixes)


def family_of(message: str) -> tuple[str | None, str | None]:
    """Return the family of an error's text, and its cause if the text decides it."""
    entries = (
        (family, cause) for pattern, family, cause in PATTERNS if re.search(pattern, message)
    )
    return next(entries, (None, None))


def gradient_counts(message: str) -> tuple[int, int] | None:
    """Return how many gradients a backward method should return, and how many it returned."""
    counts = re.search(r"incorrect number of gradients \(expected (\d+), got (\d+)", message)
    return None if counts is None else (int(counts[1]), int(counts[2]))
