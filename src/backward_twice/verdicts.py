"""The verdict on each claim of the articles, computed from a cell's observations.

In the ledger, ``book/claims.yml``, only ``id``, ``place`` and ``claim`` are written by hand.  A
notebook cell passes its observations to :func:`verdict`.  Displayed, the verdict leaves its data in
the notebook (as :data:`MIME`), from which :func:`write_ledger` copies it into the ledger.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from backward_twice.markdown import inline

MIME = "application/vnd.backward-twice.verdict+json"

HOLDS = "holds"
FAILS = "fails"
DEPENDS = "depends"

# The mark before the word, so that a verdict is recognised by its shape too.
MARKS = {HOLDS: "✓", FAILS: "✗", DEPENDS: "◐"}
ENOUGH = "One true case is enough for this claim."


def ledger_path() -> Path:
    """Return ``book/claims.yml`` in a checkout, or the copy in an installed package."""
    checkout = Path(__file__).parents[2] / "book" / "claims.yml"
    return checkout if checkout.exists() else Path(__file__).with_name("claims.yml")


def read_ledger() -> list[dict[str, Any]]:
    """Return the ledger's rows, in order."""
    return yaml.safe_load(ledger_path().read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Verdict:
    """A claim, its cases as in :func:`verdict`, and their results; display it as a cell's value."""

    id: str
    claim: str
    cases: dict[str, bool]
    one_suffices: bool = False

    @property
    def verdict(self) -> str:
        """``"holds"`` (all cases or a sufficient one), ``"depends"`` (some), ``"fails"`` (none)."""
        if all(self.cases.values()) or (self.one_suffices and any(self.cases.values())):
            return HOLDS
        return DEPENDS if any(self.cases.values()) else FAILS

    @property
    def on(self) -> str | None:
        """The cases that hold and those that fail, as text; None if all hold or all fail."""
        if len(set(self.cases.values())) == 1:
            return None
        parts = []
        for value, word in ((True, "holds"), (False, "fails")):
            names = [name for name, agrees in self.cases.items() if agrees is value]
            parts.append(f"{word}: {'; '.join(names)}")
        return " | ".join(parts)

    def __repr__(self) -> str:
        lines = [f"Claim {self.id} {self.verdict}: {self.claim}"]
        for result, article, run in self._tested():
            lines.append(f"  {MARKS[result]} {article} {run}")
        if self.one_suffices:
            lines.append(f"  {ENOUGH}")
        return "\n".join(lines)

    def _tested(self) -> Iterator[tuple[str, str, str]]:
        """Yield each case's result, the article's statement about it, and the run's answer."""
        for case, agrees in self.cases.items():
            program, colon, statement = case.partition(": ")
            sentence = f"{program[:1].upper()}{program[1:]}. " if colon else ""
            article = f"{sentence}Article: {statement if colon else case}."
            yield HOLDS if agrees else FAILS, article, f"Run: {'yes' if agrees else 'no'}."

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        rows = ""
        for result, article, run in self._tested():
            rows += (
                f'<li><span class="judged {result}" aria-hidden="true">{MARKS[result]}</span> '
                f"<span>{inline(article)} <strong>{run}</strong></span></li>"
            )
        if self.one_suffices:
            rows += f"<li>{ENOUGH}</li>"
        return {
            "text/plain": repr(self),
            "text/html": (
                f'<div class="verdict {self.verdict}" id="claim-{self.id}">'
                f'<p class="judged {self.verdict}">'
                f'<span aria-hidden="true">{MARKS[self.verdict]}</span> '
                f"Claim {self.id} {self.verdict}</p>"
                f"<p>{inline(self.claim)}</p><ul>{rows}</ul></div>"
            ),
            MIME: {"id": self.id, "verdict": self.verdict, "on": self.on, "cases": self.cases},
        }


def verdict(id: str, cases: Mapping[str, bool], *, one_suffices: bool = False) -> Verdict:
    """Judge the claim ``id`` by the results of its cases.

    Args:
        id: as in the ledger, ``"1.1"``.
        cases: whether the run agreed, for each case ("two layers: it runs": a program, and the
            article's statement about it).  Pass the result that the cell computed, as a bool, never
            a typed truth value.
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
        raise ValueError(f"claim {id}: no observation was given, so no verdict can follow")
    for name, value in cases.items():
        if not isinstance(value, bool):
            raise TypeError(
                f"claim {id}: the observation {name!r} is {value!r}, but must be True or False"
            )
    return Verdict(id, claims[id], dict(cases), one_suffices)


def stored_verdicts(notebooks: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Return each claim's verdict, conditions and place, by id; raise ValueError if it has two."""
    # Not at the top: every chapter imports this module, and none reads notebooks.
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
    """Return the rows with the notebooks' verdicts and evidence, or None for claims not judged."""
    verdicts = stored_verdicts(notebooks)
    missing = {"verdict": None, "on": None, "evidence": None}
    return [
        {key: row[key] for key in ("id", "place", "claim")} | verdicts.get(row["id"], missing)
        for row in rows
    ]


def write_ledger(notebooks: Iterable[Path]) -> None:
    """Write verdicts and evidence of the executed notebooks into the ledger."""
    rows = updated_ledger(read_ledger(), notebooks)
    text = yaml.safe_dump(rows, sort_keys=False, allow_unicode=True, width=96)
    ledger_path().write_text(text, encoding="utf-8")
