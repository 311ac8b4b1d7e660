"""The entries of the table of causes: a cause, its fixes, and the rules that decide on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

CERTAIN, LIKELY, UNKNOWN = "certain", "likely", "unknown"
SEEN = "certain if a strict watch saw it, else likely"


@dataclass(frozen=True)
class Fix:
    """What to do, where the evidence that it ``needs`` holds.

    ``proof`` is the evidence that the change takes what is wrong out of this loss, and cuts no
    trained parameter's only path; None where nothing can tell.  ``otherwise`` is what to try next
    where that does not hold.

    In the texts ``{it}`` stands for the variables that carried it, ``{trained}`` for parameters; or
    for what follows the bar where they are not known: ``{it|the state}``.
    """

    text: str
    needs: tuple[str, ...] = ()
    proof: tuple[str, ...] | None = ()
    otherwise: str | None = None

    def text_for(self, names: Mapping[str, str]) -> str:
        return _filled(self.text, names)

    def otherwise_for(self, names: Mapping[str, str]) -> str | None:
        return None if self.otherwise is None else _filled(self.otherwise, names)


@dataclass(frozen=True)
class Cause:
    """What can go wrong: ``meaning`` says what happened and ``fixes`` what to do.

    Of the fixes the first whose needs are met is for this program; the last needs nothing.
    ``family`` is None for what any family may end in.
    """

    name: str
    family: str | None
    meaning: str
    fixes: tuple[Fix, ...]

    def meaning_for(self, names: Mapping[str, str]) -> str:
        return _filled(self.meaning, names)


def _filled(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)(?:\|(.*?))?\}", lambda open: names.get(open[1], open[2]), text)


@dataclass(frozen=True)
class Rule:
    """A cause, and the evidence that must all hold; ``not name`` is evidence that must not."""

    cause: str
    evidence: tuple[str, ...]
    confidence: str
