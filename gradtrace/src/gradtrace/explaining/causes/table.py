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
    """A change of the program, for cases in which the facts that it ``needs`` hold.

    ``freed.toml`` explains the fields. ``proof`` is None if no facts prove the fix, and empty if
    it is proven without any; a fix that has an alternative is proven by facts only.
    """

    text: str
    needs: tuple[str, ...] = ()
    proof: tuple[str, ...] | None = ()
    otherwise: str | None = None

    @property
    def is_provable(self) -> bool:
        return bool(self.proof) or (self.proof == () and self.otherwise is None)


@dataclass(frozen=True)
class Cause:
    """A cause of a failure: ``meaning`` explains the failure, and ``fixes`` repair it.

    The first fix whose needs are met applies; the last one needs nothing. ``family`` is None for a
    cause that occurs in every family. ``evidence`` names the class that names the tensor or
    function, if the error's text decides the cause.
    """

    family: str | None
    name: str
    meaning: str
    evidence: str | None
    fixes: tuple[Fix, ...]


def filled(text: str, names: Mapping[str, str | None]) -> str:
    """Return a text of the table with these names, if known, in place of its ``{it|…}``."""
    return re.sub(r"\{(\w+)(?:\|(.*?))?\}", lambda open: names.get(open[1]) or open[2], text)


@dataclass(frozen=True)
class Criterion:
    """The facts that together entail a cause; ``not name`` is a fact that must not hold."""

    cause: str
    facts: tuple[str, ...]
    confidence: str
