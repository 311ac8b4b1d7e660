"""Every text uses the vocabulary of STYLE.md."""

import os

import pytest

from prose.documents import Passage, documents
from prose.lint import TEXTLINT, Exceptions, complaints


@pytest.fixture(autouse=True)
def textlint():
    if not TEXTLINT.exists():
        reason = "textlint is not installed: `make test` does it where npm and its registry are"
        (pytest.fail if os.environ.get("BROWSER") == "required" else pytest.skip)(reason)


def test_every_text_uses_the_vocabulary():
    exceptions = Exceptions()
    assert complaints(documents(), exceptions) == []
    assert exceptions.stale() == [], "these exceptions are no longer needed"


def test_a_word_outside_the_vocabulary_is_reported_and_code_is_not():
    text = "The second backward raises.\n\nCompute `anew` again.\n\nCompute it anew."
    found = complaints({"page.md": [Passage("page.md", 1, text)]}, Exceptions(entries=[]))
    assert [line.partition(" ")[0] for line in found] == ["page.md:1:", "page.md:5:"]


def test_an_exception_covers_its_phrase_in_its_file_only():
    exceptions = Exceptions(entries=[{"file": "^page", "phrase": "start anew", "reason": "a test"}])
    texts = {
        name: [Passage(name, 1, "They start anew. Compute it anew.")] for name in ("page", "other")
    }
    found = complaints(texts, exceptions)
    assert len(found) == 3
    assert exceptions.stale() == []


def test_every_exception_has_a_reason():
    for entry in Exceptions().entries:
        assert entry.keys() == {"file", "phrase", "reason"}
        assert len(entry["reason"].split()) > 2
