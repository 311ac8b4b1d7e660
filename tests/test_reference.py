"""The reference says what the tool says, and chapters lead to it."""

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from gradtrace.explaining import causes
from gradtrace.explaining.causes.table import filled

PAGE = Path(__file__).parents[1] / "_build" / "html" / "book" / "causes.html"


@pytest.fixture(scope="module")
def page():
    if not PAGE.exists():
        pytest.fail("the book is not built: run `make book` first")
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def text(page):
    return html.unescape(re.sub(r"<[^>]+>", "", page))


def test_each_cause_is_there_word_for_word(page, text, subtests):
    for name, cause in causes.CAUSES.items():
        with subtests.test(cause=name):
            assert f'id="cause-{name}"' in page
            assert f"{filled(cause.meaning, {})}." in text
            for fix in cause.fixes:
                assert f": {filled(fix.text, {})}." in text


def test_each_family_has_its_causes(page, subtests):
    for family, meaning in causes.FAMILIES.items():
        with subtests.test(family=family):
            anchor = family.replace("_", "-")
            section = re.search(rf'<section id="{anchor}">.*?</section>', page, re.S)[0]
            members = [name for name, cause in causes.CAUSES.items() if cause.family == family]
            assert re.findall(r'id="cause-(\w+)"', section) == members
            assert html.escape(meaning, quote=False) in section


def test_each_key_of_the_report_is_there(text, subtests):
    for key, meaning in causes.KEYS.items():
        with subtests.test(key=key):
            assert re.search(rf"^{key}\n+{re.escape(meaning)}$", text, re.M)


def test_the_table_needs_no_torch():
    program = "import sys; sys.modules['torch'] = None; import gradtrace.explaining.causes"
    subprocess.run([sys.executable, "-c", program], check=True)


CHAPTERS = sorted((PAGE.parents[1] / "notebooks").glob("0*.html"))


@pytest.fixture(params=CHAPTERS, ids=lambda path: path.stem)
def terms(request):
    """The links of a chapter to entries of the glossary."""
    chapter = BeautifulSoup(request.param.read_text(encoding="utf-8"), "html.parser")
    return chapter.select("a.term")


def test_a_term_leads_to_its_entry_once_and_says_how_that_begins(terms):
    page = PAGE.with_name("glossary.html").read_text(encoding="utf-8")
    glossary = BeautifulSoup(page, "html.parser")
    anchors = [link["href"].partition("#")[2] for link in terms]
    assert {"term-node", "term-graph", "term-backward"} <= set(anchors)
    assert len(anchors) == len(set(anchors))
    for link, anchor in zip(terms, anchors, strict=True):
        entry = glossary.find(id=anchor).find_next("dd").get_text()
        assert " ".join(entry.split()).startswith(link["title"].rstrip("."))


def test_no_heading_link_or_message_is_cut_up_by_terms(terms):
    for link in terms:
        assert not link.find_parent(["h1", "h2", "h3", "h4", "a", "pre", "table"])
        message = link.find_parent("em")
        assert message is None or len(message.get_text().split()) <= 2
