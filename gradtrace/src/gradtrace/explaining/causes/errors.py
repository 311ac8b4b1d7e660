"""PyTorch's error texts: the family of each, and its cause if the text decides it."""

import re
import tomllib
from pathlib import Path
from typing import Any


def read_table(name: str) -> dict[str, Any]:
    """Return a table of this package: ``errors.toml`` or ``texts.toml``."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


PATTERNS = [(*entry, None)[:3] for entry in read_table("errors")["patterns"]]


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
