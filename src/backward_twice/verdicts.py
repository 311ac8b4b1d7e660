"""The verdict on each claim of the articles, computed from what a cell observed.

The claims stand in the ledger ``book/claims.yml``: ``id``, ``place`` and ``claim`` are written by
hand.  A notebook cell hands :func:`verdict` its observations, one truth value for each
circumstance it tried, and the verdict follows.  Displayed, it leaves its data in the notebook
(as ``application/vnd.backward-twice.verdict+json``), and :func:`write_ledger` copies verdict and
evidence from the executed notebooks into the ledger.  Nobody types a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from backward_twice.markdown import inline

MIME = "application/vnd.backward-twice.verdict+json"

HOLDS = "holds"
FAILS = "fails"
DEPENDS = "depends"
NOT_TESTABLE = "not testable"

# What stands before the word, so that a verdict is known by its shape too.
MARKS = {HOLDS: "✓", FAILS: "✗", DEPENDS: "◐", NOT_TESTABLE: "?"}


def ledger_path() -> Path:
    """``book/claims.yml`` in a checkout, or the copy in an installed package."""
    checkout = Path(__file__).parents[2] / "book" / "claims.yml"
    return checkout if checkout.exists() else Path(__file__).with_name("claims.yml")


def read_ledger(path: Path | None = None) -> list[dict[str, Any]]:
    """The ledger's rows, in order."""
    return yaml.safe_load((path or ledger_path()).read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Verdict:
    """A claim, what was tried, and what follows.  Display it as the value of a cell.

    ``cases`` maps what the article says, told of each circumstance that was tried ("two layers: it
    runs"), to whether it came out so.  ``one_suffices`` marks a claim that "can" or "or" makes true
    as soon as one case is.
    """

    id: str
    claim: str
    cases: dict[str, bool]
    untestable: str | None = None
    one_suffices: bool = False

    @property
    def verdict(self) -> str:
        """``"holds"`` when every case came out as claimed (or one, where one suffices), ``"fails"``
        when none did, else ``"depends"``; ``"not testable"`` when no run can decide it."""
        if self.untestable is not None:
            return NOT_TESTABLE
        if all(self.cases.values()) or (self.one_suffices and any(self.cases.values())):
            return HOLDS
        return DEPENDS if any(self.cases.values()) else FAILS

    @property
    def on(self) -> str | None:
        """The cases on either side, if they differ, or why the claim is not testable."""
        if self.verdict == NOT_TESTABLE:
            return self.untestable
        if len(set(self.cases.values())) == 1:
            return None
        parts = []
        for value, word in ((True, "holds"), (False, "fails")):
            names = [name for name, is_so in self.cases.items() if is_so is value]
            parts.append(f"{word}: {'; '.join(names)}")
        return " | ".join(parts)

    @property
    def _remarks(self) -> list[str]:
        """What a reader has to know beside the cases."""
        enough = ["One true case is enough for this claim."] if self.one_suffices else []
        return enough + ([self.untestable] if self.untestable is not None else [])

    def __repr__(self) -> str:
        lines = [f"Claim {self.id} {self.verdict}: {self.claim}"]
        for case, is_so in self.cases.items():
            circumstance, article = _told(case)
            lines.append(
                f"  {MARKS[HOLDS if is_so else FAILS]} {circumstance}Article: {article}. "
                f"Run: {'yes' if is_so else 'no'}."
            )
        lines += [f"  {remark}" for remark in self._remarks]
        return "\n".join(lines)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        rows = ""
        for case, is_so in self.cases.items():
            circumstance, article = _told(case)
            mark = HOLDS if is_so else FAILS
            rows += (
                f'<li><span class="judged {mark}" aria-hidden="true">{MARKS[mark]}</span> '
                f"<span>{inline(circumstance)}Article: {inline(article)}. "
                f"<strong>Run: {'yes' if is_so else 'no'}.</strong></span></li>"
            )
        rows += "".join(f"<li>{inline(remark)}</li>" for remark in self._remarks)
        kind = self.verdict.replace(" ", "-")
        return {
            "text/plain": repr(self),
            "text/html": (
                f'<div class="verdict {kind}" id="claim-{self.id}">'
                f'<p class="judged {kind}"><span aria-hidden="true">{MARKS[self.verdict]}</span> '
                f"Claim {self.id} {self.verdict}</p>"
                f"<p>{inline(self.claim)}</p><ul>{rows}</ul></div>"
            ),
            MIME: {
                "id": self.id,
                "verdict": self.verdict,
                "on": self.on,
                "cases": self.cases,
            },
        }


def _told(case: str) -> tuple[str, str]:
    """What was tried, as a sentence or nothing, and what the article says of it."""
    circumstance, colon, article = case.partition(": ")
    return (f"{circumstance[:1].upper()}{circumstance[1:]}. ", article) if colon else ("", case)


def verdict(
    id: str,
    cases: Mapping[str, bool],
    *,
    untestable: str | None = None,
    one_suffices: bool = False,
) -> Verdict:
    """Judge the claim ``id`` by what was observed.

    Args:
        id: as in the ledger, ``"1.1"``.
        cases: what the article says, told of each circumstance that was tried ("two layers: it
            runs"), and whether it came out so.  Hand over what the cell observed, as a bool, never
            a typed truth value.
        untestable: for a claim of taste or frequency, the reason why no run can decide it.  The
            cases then hold its testable part.
        one_suffices: for a claim with "can", or with "or" between two outcomes, which is true as
            soon as one case is.

    Raises:
        KeyError: the ledger has no such claim.
        TypeError: an observation is not a bool.
        ValueError: there is no observation.

    >>> judged = verdict("1.1", {"two plain numbers: one and one make three": 1 + 1 == 3})
    >>> judged.verdict
    'fails'
    >>> print(str(judged).splitlines()[1])
      ✗ Two plain numbers. Article: one and one make three. Run: no.
    """
    claims = {row["id"]: row["claim"] for row in read_ledger()}
    if id not in claims:
        raise KeyError(f"claim {id!r} is not in {ledger_path().name}: add it there first")
    if not cases:
        raise ValueError(f"claim {id}: no observation was handed over, so no verdict can follow")
    for name, value in cases.items():
        if not isinstance(value, bool):
            raise TypeError(
                f"claim {id}: the observation {name!r} is {value!r}, but must be True or False"
            )
    return Verdict(id, claims[id], dict(cases), untestable, one_suffices)


def stored_verdicts(notebooks: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Verdict and evidence of each claim, as the executed notebooks store them.

    Raises:
        ValueError: two cells judge the same claim.
    """
    import nbformat

    verdicts: dict[str, dict[str, Any]] = {}
    for path in notebooks:
        for cell in nbformat.read(path, as_version=4).cells:
            for output in cell.get("outputs", ()):
                stored = output.get("data", {}).get(MIME)
                if stored is None:
                    continue
                if stored["id"] in verdicts:
                    raise ValueError(f"claim {stored['id']} is judged twice, again in {path.name}")
                verdicts[stored["id"]] = {
                    "verdict": stored["verdict"],
                    "on": stored["on"],
                    "evidence": f"{path.stem}#claim-{stored['id']}",
                }
    return verdicts


def updated_ledger(
    rows: Iterable[dict[str, Any]], notebooks: Iterable[Path]
) -> list[dict[str, Any]]:
    """The ledger with verdict and evidence taken from the notebooks, and from nowhere else."""
    verdicts = stored_verdicts(notebooks)
    unknown = {"verdict": None, "on": None, "evidence": None}
    return [
        {key: row[key] for key in ("id", "place", "claim")} | verdicts.get(row["id"], unknown)
        for row in rows
    ]


def write_ledger(notebooks: Iterable[Path]) -> None:
    """Write verdicts and evidence of the executed notebooks into the ledger."""
    rows = updated_ledger(read_ledger(), notebooks)
    text = yaml.safe_dump(rows, sort_keys=False, allow_unicode=True, width=96)
    ledger_path().write_text(text, encoding="utf-8")
