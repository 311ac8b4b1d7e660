"""The decision guide as a page, and "Paste your error" on the landing page.

``{decision-guide}`` prints the questions of ``book/decision_guide.yml``; ``{paste-your-error}`` is
the field that asks them about a pasted traceback.  Its scripts and search read
``_static/guide_data.js``, which holds the questions and the messages of the error atlas.
"""

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import yaml
from docutils import nodes
from ledger import LedgerDirective
from markdown_it import MarkdownIt
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)

GUIDE = "book/decision_guide.yml"
ATLAS = "notebooks/error_atlas"
DATA = "guide_data.js"
HEAD = "| Your case | Repair |\n| --- | --- |"
MARKDOWN = MarkdownIt()
RENDERED = {"answer", "question", "repair", "note", "meaning", "title"}

FIELD = """
<form class="paste" aria-label="Paste your error" hidden>
<p><strong>Paste your error</strong>: the traceback, or only its message. The text stays on this
page: nothing is sent anywhere.</p>
<label>Traceback or message <textarea name="trace" rows="3" spellcheck="false"></textarea></label>
<details><summary>Add your script, so that the answer names your own lines</summary>
<label>Script <textarea name="script" rows="8" spellcheck="false"></textarea></label></details>
<button type="submit">Find the repair</button>
<div class="diagnosis" role="region" aria-label="Diagnosis" aria-live="polite"></div>
</form>
<script>document.querySelector(".paste").hidden = false;</script>
"""


class DecisionGuide(LedgerDirective):
    """Renders each question of the guide as a section with a table of its answers."""

    def run(self) -> list[nodes.Node]:
        text = "\n\n".join(
            paragraph
            for number, family in enumerate(self.read(GUIDE), 1)
            for paragraph in sections(family, f"guide-{number}", 2)
        )
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def sections(question: dict[str, Any], name: str, level: int) -> Iterator[str]:
    """Return a question as Markdown: its heading, its table of answers, and further questions."""
    title = question.get("title") or question.get("message") or question["answer"]
    yield f"({name})=\n{'#' * level} {title}"
    if "meaning" in question:
        yield re.sub(r"\]\((?=\w+/)", "](../", question["meaning"])
    rows = [row(answer, f"{name}-{k}") for k, answer in enumerate(question["answers"], 1)]
    yield "\n".join([f"**{question['question']}**\n", HEAD, *rows])
    for k, answer in enumerate(question["answers"], 1):
        if "answers" in answer:
            yield from sections(answer, f"{name}-{k}", level + 1)


def row(answer: dict[str, Any], name: str) -> str:
    if "answers" in answer:
        return f"| {answer['answer']} | [{answer['question']}](#{name}) |"
    title, page = answer["example"]
    note = f" {answer['note']}" if "note" in answer else ""
    return f"| {answer['answer']} | **{answer['repair']}**.{note} Example: [{title}](../{page}) |"


class PasteYourError(SphinxDirective):
    """Renders the field for a pasted error, which stays hidden without JavaScript."""

    def run(self) -> list[nodes.Node]:
        return [nodes.raw("", FIELD, format="html")]


def read_atlas(path: Path) -> Iterator[dict[str, Any]]:
    """Return the messages of the atlas: heading, all wordings, cause and fix, as Markdown."""
    cells = [cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "markdown"]
    text = "\n\n".join(cells).partition("\n## No error")[0]
    for entry in re.split(r"^### ", text, flags=re.M)[1:]:
        heading, _, body = re.split(r"^## ", entry, flags=re.M)[0].partition("\n")
        message = re.sub(r" \([^)]*\)$", "", heading)
        quoted = re.findall(r"(`+)(.+?)\1", body.partition("**Cause.**")[0], re.S)
        parts = [part for _, quote in quoted for part in quote.replace("\n> ", " ").split("…")]
        yield {
            "heading": heading,
            "wordings": [message, *(part for part in parts if len(re.findall(r"\w+", part)) > 4)],
            "cause": paragraph_after("Cause", body),
            "fix": paragraph_after("Fix", body),
        }


def paragraph_after(word: str, body: str) -> str:
    """Return the rest of the paragraph that begins with this word in bold; empty if none does."""
    match = re.search(rf"\*\*{word}\b.*?\*\*[.,]?\s+(.+?)(?:\n\n|\Z)", body, re.S)
    return match[1] if match else ""


def address(env: BuildEnvironment, link: str, page: str) -> str:
    """Rewrite a link on ``page`` for the landing page; warn if it names a missing heading."""
    if re.match(r"https?:", link):
        return link
    file, _, slug = link.partition("#")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), file)) if file else page
    target = re.sub(r"\.(ipynb|md)$", "", target)
    slugs = env.metadata[target].get("myst_slugs", {})
    if slug and slug not in slugs and not slug.startswith("gpu-"):
        logger.warning("%s: %s has no heading %s", page, target, slug)
    identifier = slugs[slug][1] if slug in slugs else slug
    return f"{target}.html#{identifier}".removesuffix("#")


def guide_data(app: Sphinx) -> dict[str, Any]:
    """Return the guide and the atlas, with texts as HTML and links relative to the landing page."""

    def html(text: str, page: str) -> str:
        rendered = MARKDOWN.renderInline(" ".join(text.split()))
        return re.sub(
            r'href="([^"]*)"', lambda link: f'href="{address(app.env, link[1], page)}"', rendered
        )

    def converted(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {key: converted(part, key) for key, part in value.items()}
        if key == "answers":
            return [converted(part) for part in value]
        if key == "example":
            title, page = value
            return {"title": html(title, "index"), "url": address(app.env, page, "index")}
        if key == "entry":
            return address(app.env, value, "index")
        return html(value, "index") if key in RENDERED else value

    source = Path(app.srcdir)
    families = [converted(family) for family in yaml.safe_load((source / GUIDE).read_text("utf-8"))]
    entries = []
    for entry in read_atlas(source / f"{ATLAS}.ipynb"):
        slug = re.sub(r"[^\w\- ]", "", entry["heading"].lower()).strip().replace(" ", "-")
        texts = {key: html(entry[key], ATLAS) for key in ("heading", "cause", "fix")}
        entries.append(entry | texts | {"url": address(app.env, f"#{slug}", ATLAS)})
    return {"guide": families, "atlas": entries}


def add_scripts(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None
) -> None:
    """Add the scripts to the landing and the search page; with the latter, write their data."""
    landing = pagename == app.config.root_doc
    if not landing and pagename != "search":
        return
    if not landing:  # each build writes the search page, but only a changed landing page
        data = json.dumps(guide_data(app), ensure_ascii=False, separators=(",", ":"))
        text = f"const {{ guide: GUIDE, atlas: ATLAS }} = {data};\n"
        Path(app.outdir, "_static", DATA).write_text(text, "utf-8")
    further = ("script_facts.js", "paste.js") if landing else ("search_messages.js",)
    for script in (DATA, "messages.js", *further):
        app.add_js_file(script, **({"loading_method": "defer"} if landing else {}))


def setup(app: Sphinx) -> None:
    app.add_directive("decision-guide", DecisionGuide)
    app.add_directive("paste-your-error", PasteYourError)
    app.connect("html-page-context", add_scripts)
