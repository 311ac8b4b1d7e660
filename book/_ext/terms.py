"""Link the first use of each term on a chapter's page to the glossary.

A term is a word, also in the plural, or code, also with a call's brackets.  The hint of the link is
the entry's first sentence.  Headings, links, error messages and programs are left as they are.
"""

import re
from collections.abc import Iterator

from docutils import nodes
from sphinx.application import Sphinx

GLOSSARY = "book/glossary"
# Where a word is not the author's own, or is a link already.
ELSEWHERE = (nodes.title, nodes.reference, nodes.literal_block, nodes.block_quote, nodes.table)


def links(app: Sphinx, docname: str) -> dict[str, nodes.reference]:
    """Return a link without text to each of the glossary's terms, by the term."""
    page = app.builder.get_relative_uri(docname, GLOSSARY)
    by_term = {}
    for item in app.env.get_doctree(GLOSSARY).findall(nodes.definition_list_item):
        term, definition = item.next_node(nodes.term), item.next_node(nodes.definition)
        text = " ".join(definition.astext().split())
        first_sentence = re.split(r"(?<=\.) ", text)[0]
        about = {"refuri": f"{page}#{term['ids'][0]}", "reftitle": first_sentence}
        by_term[term.astext()] = nodes.reference("", "", internal=True, classes=["term"], **about)
    return by_term


def link_terms(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    if not docname.startswith("notebooks/") or app.builder.name != "html":
        return
    entries = links(app, docname)
    for text in _prose(doctree):
        element = text.parent
        if not isinstance(element, nodes.literal):
            _link_words(text, entries)
        elif (term := text.astext().removesuffix("()")) in entries:
            link = entries.pop(term)
            link += element.deepcopy()
            element.replace_self(link)


def _prose(doctree: nodes.document) -> Iterator[nodes.Text]:
    elsewhere = {id(text) for kind in ELSEWHERE for text in _texts(doctree, kind)}
    for text in list(_texts(doctree, nodes.paragraph)):
        # A message is quoted in italics; a term stands there alone.
        is_message = isinstance(text.parent, nodes.emphasis) and len(text.astext().split()) > 2
        if id(text) not in elsewhere and not is_message:
            yield text


def _texts(doctree: nodes.document, kind: type[nodes.Node]) -> Iterator[nodes.Text]:
    for node in doctree.findall(kind):
        yield from node.findall(nodes.Text)


def _link_words(text: nodes.Text, entries: dict[str, nodes.reference]) -> None:
    """Link the first use of each term in ``text``, and remove the linked terms from ``entries``."""
    parts, rest = [], text.astext()
    while entries and (match := _pattern(entries).search(rest)):
        terms = {term.lower(): term for term in entries}
        words = match[0].lower()
        term = terms.get(words) or terms[words.removesuffix("s")]
        link = entries.pop(term)
        link += nodes.inline("", match[0])
        parts += [nodes.Text(rest[: match.start()]), link]
        rest = rest[match.end() :]
    if parts:
        text.parent.replace(text, [*parts, nodes.Text(rest)])


def _pattern(entries: dict[str, nodes.reference]) -> re.Pattern[str]:
    longest_first = sorted(map(re.escape, entries), key=len, reverse=True)
    return re.compile(rf"(?<![\w.-])(?:{'|'.join(longest_first)})s?(?![\w-])", re.I)


def setup(app: Sphinx) -> None:
    app.connect("doctree-resolved", link_terms)
