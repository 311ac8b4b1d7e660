"""Two directives that print gradtrace's interface for programs: its causes and its JSON.

Both read :mod:`gradtrace.explaining.causes`, which the tool itself reads and which needs no torch.
"""

from pathlib import Path

from docutils import nodes
from ledger import LedgerDirective
from sphinx.application import Sphinx

from gradtrace.explaining import causes
from gradtrace.explaining.causes.table import Cause, Criterion, Fix, filled

FILES = [file for file in Path(causes.__file__).parent.iterdir() if file.is_file()]


def own_text(text: str, *before: nodes.Node) -> nodes.paragraph:
    """Return a paragraph of the nodes ``before`` and a text of the tool, its quotes unchanged."""
    paragraph = nodes.paragraph("", "", *before, nodes.Text(text), classes=["said"])
    paragraph["support_smartquotes"] = False
    return paragraph


class Causes(LedgerDirective):
    """Renders a section for each family, and one for the causes that occur in every family."""

    def run(self) -> list[nodes.Node]:
        for path in FILES:
            self.env.note_dependency(str(path))
        return [
            *(self.section(name, meaning) for name, meaning in causes.FAMILIES.items()),
            self.section(None, "What any family may end in, when the facts do not decide."),
        ]

    def section(self, family: str | None, meaning: str) -> nodes.section:
        title = nodes.literal("", family) if family else nodes.Text("any family")
        members = [cause for cause in causes.CAUSES.values() if cause.family == family]
        section = nodes.section("", nodes.title("", "", title), own_text(meaning))
        section["names"] = [title.astext()]
        self.state.document.note_explicit_target(section)  # the page's contents link to it
        section += nodes.definition_list("", *map(self.cause, members))
        if rules := causes.CRITERIA.get(family):
            section += nodes.paragraph("", "The first of these whose facts hold is the cause:")
            section += nodes.enumerated_list("", *map(self.rule, rules))
        return section

    def cause(self, cause: Cause) -> nodes.definition_list_item:
        name = nodes.term("", "", nodes.literal("", cause.name), ids=[f"cause-{cause.name}"])
        meaning = own_text(f"{filled(cause.meaning, {})}.")
        return nodes.definition_list_item(
            "", name, nodes.definition("", meaning, *map(self.fix, cause.fixes))
        )

    def fix(self, fix: Fix) -> nodes.paragraph:
        facts = ", and ".join(causes.FACTS[fact] for fact in fix.needs)
        condition = f" ({facts})" if facts else ""
        instead = filled(fix.otherwise or "", {})
        otherwise = f" Where it is not sure: {instead}." if instead else ""
        return own_text(f"{condition}: {filled(fix.text, {})}.{otherwise}", nodes.strong("", "Fix"))

    def rule(self, rule: Criterion) -> nodes.list_item:
        condition = "; ".join(causes.FACTS[fact] for fact in rule.facts) or "otherwise"
        name = nodes.literal("", rule.cause)
        return nodes.list_item(
            "", own_text(f": {condition}. {rule.confidence.capitalize()}.", name)
        )


class Report(LedgerDirective):
    """Renders a table of the report's keys, and the number of their schema."""

    def run(self) -> list[nodes.Node]:
        for path in FILES:
            self.env.note_dependency(str(path))
        rows = [self.key(name, meaning) for name, meaning in causes.KEYS.items()]
        number = nodes.paragraph("", f"This is schema {causes.SCHEMA}.")
        return [number, self.table("report", [38, 62], ["Key", "What it holds"], rows)]

    def key(self, name: str, meaning: str) -> nodes.row:
        return self.row([nodes.paragraph("", "", nodes.literal("", name)), own_text(meaning)])


def setup(app: Sphinx) -> None:
    app.add_directive("causes", Causes)
    app.add_directive("report", Report)
