"""The record of runs on a GPU: ``{gpu-record}``, and a mark beside each statement that needs one.

Both show ``book/gpu.yml``, which ``make gpu-check`` writes.  A link to ``versions.md#gpu-PART``
becomes the mark of that part, such as "not run on a GPU"; below a link that is a paragraph of its
own, the figures of the part follow.
"""

from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from ledger import LedgerDirective
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform

RECORD = "book/gpu.yml"
PAGE = "book/versions"
ANCHOR = "gpu-"
NOT_RUN: dict[str, Any] = {"outcome": "not run", "reason": "this part is not in the record"}
MARKS = {"passed": "run on a GPU", "failed": "failed on a GPU", "not run": "not run on a GPU"}


def read_record(env: BuildEnvironment) -> dict[str, Any]:
    """Return the record of the last run."""
    path = Path(env.srcdir, RECORD)
    env.note_dependency(str(path))
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def machine(record: dict[str, Any]) -> str:
    """Return the device, the versions and the date as text."""
    return (
        f"{record['devices']} × {record['device']}, PyTorch {record['torch']}, CUDA "
        f"{record['cuda']}, cuDNN {record['cudnn']}, Python {record['python']}, {record['date']}"
    )


def observations(part: dict[str, Any]) -> list[nodes.Node]:
    """Return the reason why a part did not pass, if any, and a list of its figures."""
    content: list[nodes.Node] = []
    if "reason" in part:
        content.append(nodes.paragraph("", f"{part['outcome']}: {part['reason']}"))
    if figures := part.get("figures"):
        items = [
            nodes.list_item("", nodes.paragraph("", f"{name}: {value}"))
            for name, value in figures.items()
        ]
        content.append(nodes.bullet_list("", *items, bullet="-"))
    return content


class GpuMarks(SphinxTransform):
    """Replaces links to the record's parts by their marks, before MyST looks for the anchors."""

    default_priority = 800

    def apply(self, **kwargs: Any) -> None:
        links = [
            node
            for node in self.document.findall(addnodes.pending_xref)
            if node.get("reftarget") == PAGE and (node.get("reftargetid") or "").startswith(ANCHOR)
        ]
        record = read_record(self.env) if links else {}
        for link in links:
            part = record["parts"].get(link["reftargetid"].removeprefix(ANCHOR), NOT_RUN)
            paragraph = link.parent
            alone = isinstance(paragraph, nodes.paragraph) and len(paragraph.children) == 1
            mark = self.mark(link["reftargetid"], part, record)
            if not alone:
                link.replace_self(mark)
                continue
            title = f"{link.astext()[0].upper()}{link.astext()[1:]}: "
            paragraph.children = [nodes.Text(title), mark]
            mark.parent = paragraph
            place = paragraph.parent.index(paragraph) + 1
            paragraph.parent[place:place] = observations(part)

    def mark(self, anchor: str, part: dict[str, Any], record: dict[str, Any]) -> nodes.reference:
        page = self.app.builder.get_relative_uri(self.env.docname, PAGE)
        hint = part.get("reason") or machine(record)
        mark = nodes.inline("", MARKS[part["outcome"]])
        return nodes.reference(
            "", "", mark, internal=True, refuri=f"{page}#{anchor}", reftitle=hint, classes=["gpu"]
        )


class GpuRecord(LedgerDirective):
    """Renders the date and the machine of the last run, and a table with a row for each part."""

    def run(self) -> list[nodes.Node]:
        record = read_record(self.env)
        rows = [
            self.row(
                [
                    nodes.paragraph("", part["title"]),
                    nodes.paragraph("", part["outcome"]),
                    nodes.container("", *observations(part)),
                ],
                ids=[f"{ANCHOR}{name}"],
            )
            for name, part in record["parts"].items()
        ]
        head = ("Part", "Outcome", "Result")
        table = self.table("gpu-table", (35, 13, 52), head, rows)
        return [nodes.paragraph("", f"{machine(record)}."), table]


def setup(app: Sphinx) -> None:
    app.add_directive("gpu-record", GpuRecord)
    app.add_transform(GpuMarks)
