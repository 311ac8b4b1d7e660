"""Players on the book's pages: one front end for all, links into them, the sum of the answers.

A notebook stores the front end with its first player.  On the site it is a file of its own, which
the browser's cache keeps for all pages.  It is a classic script, since a browser loads no module
from a page that was opened as a file.

``[words](#play:FUNCTION:after=9)`` links into a player of the page.  The front end unfolds content
below a question once there is an answer, and ``_static/folds.js`` that below a quiz.
"""

import html
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

from backward_twice.markdown import inline

logger = logging.getLogger(__name__)

PLAYER = '<div class="gradtrace"'
QUIZ = '<form class="quiz">'
FRONT_END = re.compile(r'<script type="module">(.*?)</script>', re.S)
JOIN = "<script>document.gradtracePlayers?.()</script>"
DATA = re.compile(r'(<script type="application/json">)(.*?)(</script>)', re.S)
# What a classic script cannot have: "export default {…};", "export {…};", "export " before a name.
EXPORTS = re.compile(r"^export (?:default\b[^;]*;|\{[^}]*\};?|)", re.M)
PLAY = "play:"
SCRIPT = "player.js"


def players(document: nodes.document) -> Iterator[nodes.raw]:
    for node in document.findall(nodes.raw):
        if node.get("format") == "html" and PLAYER in node.astext():
            yield node


def data_of(text: str) -> dict[str, Any]:
    return json.loads(DATA.search(text)[2])


def with_data(text: str, data: dict[str, Any]) -> str:
    """Return the player's HTML with other data, written as gradtrace writes it."""
    stored = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return DATA.sub(lambda found: f"{found[1]}{stored}{found[3]}", text, count=1)


class PlayLinks(SphinxTransform):
    """Marks and checks links into the page's players, before MyST takes them for headings."""

    default_priority = 800

    def apply(self, **kwargs: Any) -> None:
        sources = {}
        for node in players(self.document):
            data = data_of(node.astext())
            sources[data["function"]] = data["source"]
        for link in self.document.findall(nodes.reference):
            target = link.get("refuri", "").removeprefix("#")
            if target.startswith(PLAY):
                if complaint := unknown(target.removeprefix(PLAY), sources):
                    logger.warning("%s: %s", target, complaint, location=link)
                link["internal"] = True
                link["classes"].append("play")
                del link["id_link"]


def unknown(target: str, sources: dict[str, dict[str, str]]) -> str | None:
    """Return the mistake in a link such as ``FUNCTION:line=9``, if there is one."""
    function, *wishes = target.split(":")
    if function not in sources:
        return f"no player on this page plays {function}; it has {', '.join(sources) or 'none'}"
    for wish in wishes:
        name, _, value = wish.partition("=")
        if name in ("line", "after") and value not in sources[function]:
            return f"{function} has no line {value}"
    return None


def one_front_end(app: Sphinx, document: nodes.document, docname: str) -> None:
    """Leave the front end out of the players, and append a summary of the questions."""
    if app.builder.format != "html":
        return
    questions = []
    for node in players(document):
        document["plays"] = True
        text = FRONT_END.sub("", node.astext(), count=1).replace(JOIN, "")
        node.children = [nodes.Text(text)]
        node.rawsource = text
        if question := data_of(text).get("question"):
            questions.append(question)
    if questions:
        (document.children[-1] if document.children else document).append(summary(questions))


def write_front_end(app: Sphinx) -> None:
    """Write the front end that the notebooks store as a script file."""
    script = f"(() => {{\n{EXPORTS.sub('', stored_front_end(Path(app.srcdir)))}\n}})();\n"
    path = Path(app.outdir, "_static", SCRIPT)
    path.parent.mkdir(exist_ok=True)
    path.write_text(script, encoding="utf-8")


def stored_front_end(source: Path) -> str:
    """Return the front end that the first notebook with a player stores; all store the same."""
    for path in sorted(source.glob("notebooks/*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", ()):
                text = "".join(output.get("data", {}).get("text/html", ""))
                if PLAYER in text and (module := FRONT_END.search(text)):
                    return module[1]
    raise FileNotFoundError(f"no notebook in {source / 'notebooks'} stores a player")


def fold_answers(app: Sphinx, document: nodes.document, docname: str) -> None:
    """Fold the content below a question that reveals its answer.

    This content consists of outputs of code, and of text that begins with "Observe.", up to the
    first other text, the next player or quiz, or the end of the section.
    """
    if app.builder.format != "html":
        return
    quizzes = 0
    for node in list(document.findall(nodes.raw)):
        text = node.astext() if node.get("format") == "html" else ""
        if PLAYER in text and (data := data_of(text)).get("question"):
            name = data["function"]
        elif QUIZ in text:
            name = f"quiz {quizzes}"
            quizzes += 1
        else:
            continue
        cell = node
        while not isinstance(cell.parent, (nodes.section, nodes.document)):
            cell = cell.parent
        section = cell.parent
        first = section.index(cell) + 1
        outputs = list(revealing(section[first:]))
        begin = f'<details class="observe" data-observe="{html.escape(name)}">'
        begin += "<summary>Observe: after your answer</summary>"
        if outputs:
            section[first : first + len(outputs)] = [
                nodes.raw("", begin, format="html"),
                *outputs,
                nodes.raw("", "</details>", format="html"),
            ]


def revealing(after: Iterable[nodes.Node]) -> Iterator[nodes.Node]:
    """Yield the nodes below a question that reveal its answer."""
    observing = None  # the cell of text that began so
    for node in after:
        if node.get("nb_element") == "cell_code":
            asks = any(
                PLAYER in raw.astext() or QUIZ in raw.astext() for raw in node.findall(nodes.raw)
            )
            if asks:
                return
        elif isinstance(node, nodes.paragraph) and node.astext().startswith("Observe."):
            observing = cell_of(node)
        elif isinstance(node, nodes.section) or observing is None or cell_of(node) != observing:
            return
        yield node


def cell_of(node: nodes.Node) -> int | None:
    """Return the number of the notebook's cell that a node is from, as MyST-NB counts cells."""
    return None if node.line is None else node.line // 10_000


def summary(questions: list[dict[str, Any]]) -> nodes.raw:
    """Return HTML with room for the reader's results, and with the answers for a printed page."""
    answers = "".join(
        f"<li>{inline(question['prompt'])} <em>{inline(question['explanation'])}</em></li>"
        for question in questions
    )
    page = (
        '<section class="your-answers pst-js-only"><h2 id="your-answers">Your answers</h2>'
        '<div class="gradtrace-answers"></div>'
        "<p>Your answers are kept in this browser only.</p></section>"
        '<section class="answers-on-paper"><h2>Questions of the players</h2>'
        f"<ol>{answers}</ol></section>"
    )
    return nodes.raw("", page, format="html")


def add_scripts(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None
) -> None:
    if doctree and doctree.get("plays"):
        app.add_js_file(SCRIPT, loading_method="defer")


def setup(app: Sphinx) -> None:
    app.add_transform(PlayLinks)
    app.connect("builder-inited", write_front_end)
    app.connect("doctree-resolved", fold_answers)
    app.connect("doctree-resolved", one_front_end)
    app.connect("html-page-context", add_scripts)
    app.add_js_file("folds.js")
