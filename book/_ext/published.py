"""Additions to a published site, derived from ``repository`` in ``_config.yml`` and LICENSE.

With an address, the links on the 404 page are absolute, because a server shows it at any depth.
Without an address the site works from any folder.
"""

import html
import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

from backward_twice.address import read_address

# A link relative to the page, in an attribute.
RELATIVE = re.compile(r'(\s(?:href|src|action|data-content_root)=")(?![a-z]+:|[/#])(?:\./)?')


def follow_license(app: Sphinx, config: Config) -> None:
    """Put the licence into the footer, as LICENSE states it."""
    text = Path(app.srcdir, "LICENSE").read_text(encoding="utf-8")
    config.copyright = re.search(r"^Copyright \(c\) (.+)$", text, re.M)[1]


def follow_address(app: Sphinx, config: Config) -> None:
    """Set the options of the theme and of Sphinx that depend on the address."""
    address = app.course_address = read_address(Path(app.srcdir))
    if address is None:
        return
    config.html_baseurl = address.site
    config.html_theme_options["launch_buttons"] = {
        "binderhub_url": "https://mybinder.org",
        "colab_url": "https://colab.research.google.com",
        "notebook_interface": "jupyterlab",
    }
    config.html_theme_options["extra_footer"] = (
        f'<p><a href="{address.url}">Source and issues</a></p>'
    )


def add_card(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None
) -> None:
    """Add the social card: how a link to this page looks where it is shared."""
    if doctree is None:
        context["pageurl"] = None  # search, index and 404 are no pages to point at
        return
    title = html.unescape(re.sub(r"<[^>]+>", "", context["title"]))
    card = {"og:title": title, "og:type": "website"}
    card["og:site_name"] = app.config.html_title
    for tag in re.findall(r"<meta [^>]*>", context["metatags"]):
        if 'name="description"' in tag:
            card["og:description"] = html.unescape(re.search(r'content="([^"]*)"', tag)[1])
    if app.course_address:
        site = app.course_address.site
        if pagename == app.config.root_doc:
            context["pageurl"] = site
        card["og:url"] = context["pageurl"]
        card["og:image"] = f"{site}_static/social.png"
        card["og:image:alt"] = "The player: a program, its autograd graph, and the error explained."
        context["metatags"] += '<meta name="twitter:card" content="summary_large_image" />\n'
    for name, text in card.items():
        context["metatags"] += f'<meta property="{name}" content="{html.escape(text)}" />\n'


def finish(app: Sphinx, exception: Exception | None) -> None:
    address = app.course_address
    if exception or address is None or app.builder.name != "html":
        return
    page = Path(app.outdir, "404.html")
    page.write_text(RELATIVE.sub(rf"\1{address.site}", page.read_text("utf-8")), "utf-8")


def setup(app: Sphinx) -> None:
    app.connect("config-inited", follow_license)
    app.connect("config-inited", follow_address)
    app.connect("html-page-context", add_card, priority=900)  # after pages
    app.connect("build-finished", finish)
