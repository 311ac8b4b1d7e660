"""Corrections of the theme and MyST-NB: colour mode, description, landing page, labels."""

import html
import re
import textwrap
from pathlib import Path

from bs4 import BeautifulSoup
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)

# The theme settles the mode only when its deferred script runs, and calls an unset one an error.
# Settled here, nothing flashes; without scripts no mode is set at all, and the page is light.
MODE = """
const settings = document.documentElement.dataset;
settings.mode ||= "auto";
settings.theme ||= matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
"""

# The description of pages without text: search, index, 404.
SUBJECT = "a course on PyTorch's autograd graph"

# Search results are summarised by fetching the pages found, which a browser refuses to a file.
SUMMARY = 'DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = location.protocol !== "file:";'

# Names, operators, punctuation: most of a program, left in the colour of the text.
PLAIN = re.compile(r'<span class="(?:n|nn|nb|bp|o|p|w)">([^<]*)</span>')

# The theme measures every block of code when the page has come, and so lays out, one by one, what
# was to wait until it is near the view (course.css).  Such blocks are left to tab_stops.js.
THEME = "_static/scripts/pydata-sphinx-theme.js"
MEASURED = "e.tabIndex=e.scrollWidth>e.clientWidth||e.scrollHeight>e.clientHeight?0:-1"
LAID_OUT = f"e.checkVisibility({{contentVisibilityAuto:true}})&&({MEASURED})"


def complete_page(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None
) -> None:
    if pagename == app.config.root_doc:
        context["page_source_suffix"] = ""  # no download: index.md only includes book/intro.md
    if "body" in context:  # The label hides the text of the button: "Show code cell source".
        body = context["body"].replace(' aria-label="Toggle hidden content"', "")
        body = body.replace("<pre>", '<pre tabindex="0">')  # until tab_stops.js knows better
        context["body"] = PLAIN.sub(r"\1", body)  # two thirds of a chapter's elements
    if 'name="description"' not in context.get("metatags", ""):
        text = html.escape(description(doctree) or f"{app.config.html_title}, {SUBJECT}")
        context["metatags"] = context.get("metatags", "") + (
            f'<meta name="description" content="{text}" />\n'
        )


def description(doctree: nodes.document | None) -> str | None:
    """Return the beginning of the page's first paragraph, as its description, if it has one."""
    for paragraph in doctree.findall(nodes.paragraph) if doctree else ():
        return textwrap.shorten(paragraph.astext(), 160, placeholder=" …")
    return None


def name_in_navigation(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None
) -> None:
    """Name the landing page after the course, and name each arrow for screen readers.

    The theme takes the page's title, which is an error text, and its arrows are pictures.
    """
    context["root_title"] = app.config.html_title
    generate = context["generate_toctree_html"]

    def generate_named(*args: object, **kwargs: object) -> str:
        tree = BeautifulSoup(str(generate(*args, **kwargs)), "html.parser")
        for summary in tree.select("li.has-children > details > summary"):
            page = summary.find_parent("li").find("a").get_text(strip=True)
            summary["aria-label"] = f"Pages under {page}"
        return str(tree)

    context["generate_toctree_html"] = generate_named


def defer_scripts(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None
) -> None:
    """Defer the scripts, so that a browser shows a page before it has loaded them.

    The options stay where they are, since scripts in the page read them; so does all of the search
    page, whose template adds scripts of its own that need the others.
    """
    if pagename == "search":
        return
    context["script_files"][:] = [
        type(script)(
            script.filename, priority=script.priority, **{"defer": "defer", **script.attributes}
        )
        if script.filename and not script.filename.endswith("documentation_options.js")
        else script
        for script in context["script_files"]
    ]


def measure_what_is_laid_out(app: Sphinx, exception: Exception | None) -> None:
    script = Path(app.outdir, THEME)
    if exception or app.builder.format != "html":
        return
    text = script.read_text(encoding="utf-8")
    if MEASURED not in text:
        logger.warning("%s does not measure blocks of code as it did", THEME)
    elif LAID_OUT not in text:
        script.write_text(text.replace(MEASURED, LAID_OUT), encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.add_js_file(None, body=f"{{{MODE}}}")
    app.add_js_file(None, body=SUMMARY)
    app.add_js_file("tab_stops.js")
    app.connect("html-page-context", complete_page)
    app.connect("html-page-context", name_in_navigation, priority=900)  # after the theme
    app.connect("html-page-context", defer_scripts, priority=900)  # after all that add scripts
    app.connect("build-finished", measure_what_is_laid_out)
