"""What the theme gets wrong in a page's head: a description, and the landing page's own things."""

from __future__ import annotations

import html
import textwrap

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata


def complete_head(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None
) -> None:
    if pagename == app.config.root_doc:
        context["docstitle"] = ""  # else "Backward Twice — Backward Twice"
        context["page_source_suffix"] = ""  # no download: index.md only includes book/intro.md
    if doctree is None or 'name="description"' in context["metatags"]:
        return
    # The beginning of the page's first paragraph, unless the page has its own ``html_meta``.
    for paragraph in doctree.findall(nodes.paragraph):
        text = textwrap.shorten(paragraph.astext(), 160, placeholder=" …")
        context["metatags"] += f'<meta name="description" content="{html.escape(text)}" />\n'
        return


def setup(app: Sphinx) -> ExtensionMetadata:
    app.connect("html-page-context", complete_head)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
