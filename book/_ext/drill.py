"""The directive ``{drill}``: programs in which a reader finds the line that freed the graph.

It prints what ``book/drill.json`` holds: each program as a numbered list of lines, its answer
folded.  So the page is whole without a script; ``_static/drill.js`` makes questions of it.
"""

from __future__ import annotations

from docutils import nodes
from ledger import LedgerDirective
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

PROGRAMS = "book/drill.json"


class Drill(LedgerDirective):
    """Each program, and the answer to which of its lines freed what the last one needs."""

    def run(self) -> list[nodes.Node]:
        programs = self.read(PROGRAMS)  # JSON is YAML, too
        drills = [self.program(number, **program) for number, program in enumerate(programs, 1)]
        return [*drills, self.script("drill.js")]

    def program(self, number: int, lines: list[str], freed: int) -> nodes.container:
        items = [nodes.list_item("", nodes.paragraph("", "", _code(line))) for line in lines]
        listed = nodes.enumerated_list("", *items, enumtype="arabic", classes=["program"])
        answer = nodes.paragraph(
            "",
            "",
            nodes.Text(f"Line {freed}, "),
            _code(lines[freed - 1]),
            nodes.Text(f". Had it alone kept the graph, line {len(lines)} would not raise."),
        )
        return nodes.container(
            "",
            nodes.paragraph("", "", nodes.strong("", f"Program {number}")),
            listed,
            nodes.raw("", "<details><summary>Answer</summary>", format="html"),
            answer,
            nodes.raw("", "</details>", format="html"),
            classes=["drill", f"freed-{freed}"],
        )


def _code(line: str) -> nodes.literal:
    literal = nodes.literal("", line, classes=["code"])
    literal["support_smartquotes"] = False
    return literal


def setup(app: Sphinx) -> ExtensionMetadata:
    app.add_directive("drill", Drill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
