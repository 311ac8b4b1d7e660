"""Write one style sheet for the book, with only the rules that some page can use.

The theme and the extensions bring nine sheets of 550 kB, of which the pages use a fifth, and a
browser shows nothing until it has parsed all of them.  So they are joined when all pages are
written, without the rules that name an element, class or id that occurs in no page and no script.
"""

import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from pathlib import Path

import tinycss2
from sphinx.application import Sphinx
from tinycss2.ast import Node

JOINED = "_static/styles.css"
# The sheets that the theme's templates link; ours do not (webpack-macros.html).
THEME = ["_static/basic.css", "_static/styles/pydata-sphinx-theme.css"]

WORD = re.compile(r"[A-Za-z_][\w-]*")
SCRIPT = re.compile(r'"(?:\.\./)*_static/([^"?]+\.js)')
URL = re.compile(r"""url\((["']?)(?!data:|#)([^"')]+)\1\)""")
LINK = re.compile(rf'({re.escape(JOINED)})(?:\?v=\w+)?"')


def one_sheet(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object
) -> None:
    """Replace the links to all style sheets by a link to the joined one."""
    sheets = context["css_files"]
    app.sheets = THEME + [sheet.filename for sheet in sheets]
    sheets[:] = [type(sheets[0])(JOINED)]


def join(app: Sphinx, exception: Exception | None) -> None:
    if exception or not app.sheets:  # no page was written
        return
    folder = Path(app.outdir)
    pages = [path for path in folder.rglob("*.html") if "_static" not in path.parts]
    texts = {path: path.read_text("utf-8") for path in pages}
    words = vocabulary(texts.values(), folder / "_static")
    sheets = [rebase((folder / name).read_text("utf-8"), name) for name in app.sheets]
    text = "".join(usable(sheet, words) for sheet in sheets)
    (folder / JOINED).write_text(text, "utf-8")
    version = hashlib.sha256(text.encode()).hexdigest()[:8]
    for path, page in texts.items():
        linked = LINK.sub(rf'\1?v={version}"', page)
        if linked != page:
            path.write_text(linked, "utf-8")


def vocabulary(pages: Iterable[str], static: Path) -> set[str]:
    """Return all words in the pages and their scripts, and so every name that a rule may match."""
    words, scripts = set(), set()
    for page in pages:
        words.update(WORD.findall(page))
        scripts.update(SCRIPT.findall(page))
    for name in scripts:
        words.update(WORD.findall((static / name).read_text("utf-8")))
    return words


def rebase(text: str, name: str) -> str:
    """Return the sheet with its addresses relative to the joined sheet."""
    base = posixpath.dirname(JOINED)
    folder = posixpath.relpath(posixpath.dirname(name), base)
    return URL.sub(lambda url: f'url("{posixpath.normpath(posixpath.join(folder, url[2]))}")', text)


def usable(text: str, words: set[str]) -> str:
    """Return the rules of a sheet that may match an element described by these words.

    >>> usable("a.known, .other {color: red} .other b {top: 0} @media print {.other {}}",
    ...        {"a", "b", "known"})
    'a.known{color: red}'
    >>> usable("a:not(.other)::after {top: 0}", {"a"})
    'a:not(.other)::after{top: 0}'
    """
    rules = tinycss2.parse_stylesheet(text, skip_comments=True, skip_whitespace=True)
    return "".join(possible_rules(rules, words))


def possible_rules(rules: Iterable[Node], words: set[str]) -> Iterator[str]:
    for rule in rules:
        if rule.type == "qualified-rule":
            commas = groupby(rule.prelude, lambda token: token == ",")
            parts = [[*part] for is_comma, part in commas if not is_comma]
            if selectors := [part for part in parts if possible(part, words)]:
                prelude = ",".join(tinycss2.serialize(part).strip() for part in selectors)
                yield f"{prelude}{{{tinycss2.serialize(rule.content)}}}"
        elif rule.type == "at-rule" and rule.lower_at_keyword in ("media", "supports", "layer"):
            inner = tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True)
            if inner_rules := "".join(possible_rules(inner, words)):
                yield f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{inner_rules}}}"
        elif rule.type == "at-rule" and rule.lower_at_keyword != "charset":
            yield rule.serialize()


def possible(selector: list[Node], words: set[str]) -> bool:
    """Whether ``words`` has each element, class and id that a selector names outside brackets."""
    return all(
        token.value in words
        for previous, token in pairwise([None, *selector])
        if token.type == "hash" or (token.type == "ident" and previous != ":")
    )


def setup(app: Sphinx) -> None:
    app.sheets = []
    app.connect("html-page-context", one_sheet, priority=950)  # after all that add sheets
    app.connect("build-finished", join, priority=900)  # after the theme has written its own
