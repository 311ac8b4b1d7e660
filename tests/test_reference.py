"""The page of causes and the JSON report says what the tool says."""

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gradtrace import causes

PAGE = Path(__file__).parents[1] / "_build" / "html" / "book" / "causes.html"


@pytest.fixture(scope="module")
def page():
    if not PAGE.exists():
        pytest.fail("the book is not built: run `make book` first")
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def text(page):
    return html.unescape(re.sub(r"<[^>]+>", "", page))


@pytest.mark.parametrize("name", causes.CAUSES)
def test_each_cause_is_there_word_for_word(page, text, name):
    cause = causes.CAUSES[name]
    assert f'id="cause-{name}"' in page
    assert f"{cause.meaning_for({})}." in text
    for fix in cause.fixes:
        assert f": {fix.text_for({})}." in text


@pytest.mark.parametrize("family", causes.FAMILIES)
def test_each_family_has_its_causes(page, family):
    section = re.search(rf'<section id="{family.replace("_", "-")}">.*?</section>', page, re.S)[0]
    found = re.findall(r'id="cause-(\w+)"', section)
    assert found == [cause.name for cause in causes.CAUSES.values() if cause.family == family]
    assert html.escape(causes.FAMILIES[family], quote=False) in section


@pytest.mark.parametrize("key", causes.KEYS)
def test_each_key_of_the_report_is_there(text, key):
    assert re.search(rf"^{key}\n+{re.escape(causes.KEYS[key])}$", text, re.M)


def test_the_table_needs_no_torch():
    program = "import sys; sys.modules['torch'] = None; import gradtrace.causes"
    subprocess.run([sys.executable, "-c", program], check=True)
