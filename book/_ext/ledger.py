"""Two directives that print the ledger of claims on the book's pages.

``{claims-summary}`` has a row for each chapter, ``{claims-table}`` one for each claim.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from backward_twice.verdicts import HOLDS, MARKS

CLAIMS = "book/claims.yml"
ARTICLES = "book/articles.yml"


class LedgerDirective(SphinxDirective):
    """A directive with methods that read YAML, and build tables, links and inline Markdown."""

    def read(self, name: str) -> list[dict[str, Any]]:
        path = Path(self.env.srcdir, name)
        self.env.note_dependency(str(path))
        return yaml.safe_load(path.read_text(encoding="utf-8"))

    def text(self, markdown: str) -> nodes.paragraph:
        children, _ = self.state.inline_text(markdown, self.lineno)
        return nodes.paragraph("", "", *children)

    def link(self, text: str, page: str, anchor: str = "") -> nodes.reference:
        address = self.env.app.builder.get_relative_uri(self.env.docname, page)
        return nodes.reference("", text, refuri=address + anchor, internal=True)

    def table(
        self, kind: str, widths: Sequence[int], head: Sequence[str], rows: Sequence[nodes.row]
    ) -> nodes.table:
        """Return a table of class ``kind``, with columns of these relative ``widths``."""
        group = nodes.tgroup("", cols=len(widths))
        group += [nodes.colspec(colwidth=width) for width in widths]
        group += nodes.thead("", self.row([nodes.paragraph("", title) for title in head]))
        group += nodes.tbody("", *rows)
        return nodes.table("", group, classes=[kind, "colwidths-given"])

    def row(self, cells: Sequence[nodes.Node], **attributes: Any) -> nodes.row:
        return nodes.row("", *(nodes.entry("", cell) for cell in cells), **attributes)


class ClaimsSummary(LedgerDirective):
    """Renders a table of the chapters, with counts of their claims and of each verdict."""

    def run(self) -> list[nodes.Node]:
        articles = enumerate(self.read(ARTICLES), 1)
        rows = [self.chapter(number, article) for number, article in articles]
        head = ["Article", "Claims", *(f"{mark} {verdict}" for verdict, mark in MARKS.items())]
        return [self.table("claims-summary", [68, 8, 8, 8, 8], head, rows)]

    def chapter(self, number: int, article: dict[str, Any]) -> nodes.row:
        claims = (claim for claim in self.read(CLAIMS) if claim["id"].startswith(f"{number}."))
        count = Counter(claim["verdict"] for claim in claims)
        link = self.link(f"Chapter {number}", f"notebooks/{article['notebook']}")
        title = self.text(f"{article['title']} ({article['date']})")
        counts = [count.total(), *(count[verdict] for verdict in MARKS)]
        cells = [nodes.paragraph("", str(value)) for value in counts]
        return self.row([nodes.container("", nodes.paragraph("", "", link), title), *cells])


class ClaimsTable(LedgerDirective):
    """Renders a table of the claims, with the place, verdict and evidence of each."""

    def run(self) -> list[nodes.Node]:
        rows = [self.claim(claim) for claim in self.read(CLAIMS)]
        head = ["No.", "What the article claims, and where", "Verdict"]
        return [self.table("claims-table", [8, 50, 42], head, rows)]

    def claim(self, claim: dict[str, Any]) -> nodes.row:
        place = self.text(claim["place"])
        place["classes"].append("place")
        return self.row(
            [
                nodes.paragraph("", claim["id"]),
                nodes.container("", self.text(claim["claim"]), place),
                nodes.container("", *self.judgement(claim)),
            ],
            ids=[f"claim-{claim['id']}"],
        )

    def judgement(self, claim: dict[str, Any]) -> list[nodes.paragraph]:
        """Return the verdict with its evidence, and below it the conditions on which it depends."""
        stem, _, anchor = claim["evidence"].partition("#")
        verdict = claim["verdict"]
        mark = nodes.inline("", f"{MARKS[verdict]} {verdict}", classes=["judged", verdict])
        evidence = self.link(f"evidence for {claim['id']}", f"notebooks/{stem}", f"#{anchor}")
        return [
            nodes.paragraph("", "", mark, nodes.Text(" "), evidence),
            *self.conditions(claim["on"]),
        ]

    def conditions(self, on: str | None) -> list[nodes.paragraph]:
        """Return a paragraph for the cases that hold and one for those that fail, if any."""
        paragraphs = []
        for condition in on.split(" | ") if on else []:
            word, _, cases = condition.partition(": ")
            answer = f"{MARKS[word]} Run: {'yes' if word == HOLDS else 'no'}."
            listed = self.text(cases)
            listed.insert(0, nodes.inline("", f"{answer} ", classes=["judged", word]))
            paragraphs.append(listed)
        return paragraphs


def setup(app: Sphinx) -> None:
    app.add_directive("claims-summary", ClaimsSummary)
    app.add_directive("claims-table", ClaimsTable)
