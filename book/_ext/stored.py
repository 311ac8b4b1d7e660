"""Outputs of notebooks on other pages: ``{player} NOTEBOOK CELL`` and ``{error} NOTEBOOK CELL``.

They show the notebook's own output, not a copy, so the tests cover the landing page, too.  A
player's option ``:line:`` is the text of the line before which it opens.
"""

from pathlib import Path

import nbformat
from docutils import nodes
from docutils.parsers.rst import directives
from nbformat import NotebookNode
from players import PLAYER, data_of, with_data
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class StoredOutput(SphinxDirective):
    """Shows the first output of the cell with this id that :meth:`node` can render."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        name, cell_id = self.arguments
        path = Path(self.env.srcdir, "notebooks", f"{name}.ipynb")
        self.env.note_dependency(str(path))
        for cell in nbformat.read(path, as_version=4).cells:
            for output in cell.get("outputs", ()) if cell.id == cell_id else ():
                if node := self.node(output):
                    return [node]
        raise self.error(f"no cell {cell_id!r} in {name}.ipynb stores an output for {self.name}")


class StoredPlayer(StoredOutput):
    option_spec = {"line": directives.unchanged_required}  # noqa: RUF012

    def node(self, output: NotebookNode) -> nodes.Node | None:
        page = output.get("data", {}).get("text/html", "")
        if PLAYER not in page:
            return None
        if "line" in self.options:
            data = data_of(page)
            data["step"] = {"line": self.number_of(self.options["line"], data["source"])}
            page = with_data(page, data)
        return nodes.raw("", page, format="html")

    def number_of(self, line: str, source: dict[str, str]) -> int:
        matches = [int(number) for number, text in source.items() if text.strip() == line]
        if len(matches) != 1:
            raise self.error(f":line: {line} is the text of {len(matches)} lines, not of one")
        return matches[0]


class StoredError(StoredOutput):
    def node(self, output: NotebookNode) -> nodes.Node | None:
        if output.output_type != "error":
            return None
        text = f"{output.ename}: {output.evalue}"
        return nodes.literal_block(text, text, language="text")


def setup(app: Sphinx) -> None:
    app.add_directive("player", StoredPlayer)
    app.add_directive("error", StoredError)
