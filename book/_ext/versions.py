"""``{versions}``: on which versions of PyTorch the claims were judged again, and what differed.

It prints ``book/versions.yml``, which ``python -m backward_twice.recheck --record`` writes: no row
is typed.
"""

from __future__ import annotations

from docutils import nodes
from ledger import LedgerDirective
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata


class Versions(LedgerDirective):
    def run(self) -> list[nodes.Node]:
        rows = [
            self.row(
                [
                    nodes.paragraph("", record["torch"]),
                    nodes.paragraph("", f"Python {record['python']}, {self.beside(record)}"),
                    self.seen(record),
                ]
            )
            for record in self.read("book/versions.yml")
        ]
        head = ("PyTorch", "beside it", "the claims, judged again")
        return [self.table("versions-table", (15, 45, 40), head, rows)]

    def beside(self, record: dict) -> str:
        return ", ".join(f"{name} {number}" for name, number in record["beside"].items())

    def seen(self, record: dict) -> nodes.paragraph:
        if not record["differences"]:
            return self.text(f"the same {record['claims']} verdicts, on the same conditions")
        return self.text("; ".join(record["differences"]))


def setup(app: Sphinx) -> ExtensionMetadata:
    app.add_directive("versions", Versions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
