"""The landing page says how far one is: which questions of a chapter this browser has answers to.

How many a chapter asks, in its players and its quiz, is counted in the stored notebook and handed
to ``_static/progress.js``, which writes beside each chapter on the path what is answered.
"""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata


def questions(path: Path) -> int:
    """How many questions the notebook's outputs ask."""
    pages = [
        output.get("data", {}).get("text/html", "")
        for cell in nbformat.read(path, as_version=4).cells
        for output in cell.get("outputs", ())
    ]
    return sum(("data-question=" in page) + page.count("<fieldset") for page in pages)


def add_progress(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None
) -> None:
    if pagename != app.config.root_doc:
        return
    asked = {
        app.builder.get_relative_uri(pagename, f"notebooks/{path.stem}"): questions(path)
        for path in sorted(Path(app.srcdir, "notebooks").glob("[0-9]*.ipynb"))
    }
    app.add_js_file(None, body=f"const QUESTIONS = {json.dumps(asked)};")
    app.add_js_file("progress.js", loading_method="defer")


def setup(app: Sphinx) -> ExtensionMetadata:
    app.connect("html-page-context", add_progress)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
