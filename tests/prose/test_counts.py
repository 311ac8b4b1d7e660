"""Habits of the built site's prose stay within limits that other projects' guides keep.

Counted is the text of articles without code, tables, figures and formulas.  The API page, the
promises and the verdicts are left out: signatures, a table of code, and quoted claims.
"""

import re

import pytest
from bs4 import BeautifulSoup

from prose.documents import ROOT

SITE = ROOT / "_build" / "html"
PAGES = ("index.html", "notebooks/*.html", "book/*.html", "exercises/*/*.html")
LEFT_OUT = ("api.html", "promises.html", "verdicts.html", "versions.html")
NOT_PROSE = "script, style, template, pre, .highlight, svg, table, math"
CONNECTIVE = (
    r"\b(because|so that|however|therefore|since|although|while|which means|for example|instead"
    r"|otherwise|unless)\b"
)
# The largest counts on the whole site.  A word that PyTorch uses, such as "string", keeps a few.
LIMITS = [
    pytest.param(r"\b(go|goes|going|went|gone) backward", 2, id="go backward"),
    pytest.param(r"\banew\b", 0, id="anew"),
    pytest.param(r"\blets? go\b", 2, id="let go"),
    pytest.param(r"[.:;] What [a-z]", 20, id="What … as a subject"),
    pytest.param(
        r"\b(a|the|each|one|second|first|every|plain|retained|late|later|earlier) backward\b"
        r"(?! (pass|call|calls|passes|function|hook|graph|run|runs))",
        25,
        id="backward as a bare noun",
    ),
    pytest.param(r"\b(nobody|no one|whoever)\b|[.;:] Who ", 0, id="who as a subject"),
    pytest.param(r"\bstrings?\b", 1, id="string"),
    pytest.param(r"\bwalk(s|ed)?\b", 0, id="walk"),
    pytest.param(r"\bbehind (it|them|that|which|a|the|x|w|h)\b", 0, id="behind it"),
]


@pytest.fixture(scope="module")
def prose() -> str:
    pages = sorted(
        page
        for pattern in PAGES
        for page in SITE.glob(pattern)
        if not (page.parent.name == "book" and page.name in LEFT_OUT)
    )
    assert len(pages) > 40, "run `make book` first"
    return " ".join(map(text_of, pages))


def text_of(page) -> str:
    article = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser").select_one("article")
    for element in article.select(NOT_PROSE):
        element.decompose()
    return re.sub(r"\s+", " ", article.get_text(" "))


@pytest.mark.parametrize(("habit", "limit"), LIMITS)
def test_a_habit_is_rare(prose, habit, limit):
    found = [prose[max(0, m.start() - 40) : m.end() + 40] for m in re.finditer(habit, prose)]
    assert len(found) <= limit, "\n".join(found)


def test_sentences_say_why(prose):
    sentences = [s for s in re.split(r"(?<=[.!?])\s+(?=[A-Z`])", prose) if len(s.split()) > 1]
    assert len(re.findall(CONNECTIVE, prose, re.I)) >= 0.07 * len(sentences)
