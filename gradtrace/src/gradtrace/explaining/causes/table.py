"""The entries of the table of causes: a cause, its fixes, and the facts that entail it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

CERTAIN, LIKELY, UNKNOWN = "certain", "likely", "unknown"
OBSERVED = "certain if a strict watch observed it, else likely"
# The words of the tables for how certain a cause is whose facts hold.
CONFIDENCE = {"certain": CERTAIN, "likely": LIKELY, "observed": OBSERVED, "unknown": UNKNOWN}


@dataclass(frozen=True)
class Fix:
    """A change of the program, for cases in which the facts that it ``needs`` hold."""

    text: str
    needs: tuple[str, ...] = ()
    proof: tuple[str, ...] | None = ()  # None if no facts prove that it helps
    otherwise: str | None = None

    @property
    def is_provable(self) -> bool:
        return bool(self.proof) or (self.proof == () and self.otherwise is None)


@dataclass(frozen=True)
class Cause:
    """A cause of a failure: ``meaning`` explains the failure, and ``fixes`` repair it."""

    family: str | None  # None if it occurs in every family
    name: str
    meaning: str
    evidence: str | None  # if the error's text decides the cause, the class that gives the names
    fixes: tuple[Fix, ...]  # the first whose needs are met applies; the last one needs nothing


def filled(text: str, names: Mapping[str, str | None]) -> str:
    """Return a text of the table with these names, if known, in place of its ``{it|…}``."""
    return re.sub(r"\{(\w+)(?:\|(.*?))?\}", lambda open: names.get(open[1]) or open[2], text)


@dataclass(frozen=True)
class Criterion:
    """The facts that together entail a cause; ``not name`` is a fact that must not hold."""

    cause: str
    facts: tuple[str, ...]
    confidence: str
