"""Give each page the meta description that the theme leaves out: the beginning of its text."""

from __future__ import annotations

import html
import textwrap

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata


def add_description(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None
) -> None:
    """Describe the page by its first paragraph, or leave it to its own ``html_meta``."""
    if doctree is None or 'name="description"' in context.get("metatags", ""):
        return
    for paragraph in doctree.findall(nodes.paragraph):
        text = textwrap.shorten(paragraph.astext(), 160, placeholder=" …")
        context["metatags"] += f'<meta name="description" content="{html.escape(text)}" />\n'
        return


def setup(app: Sphinx) -> ExtensionMetadata:
    app.connect("html-page-context", add_description)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
