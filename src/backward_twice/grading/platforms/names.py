"""Names of persons as platforms write them, which differ in order, case and script."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection
from functools import lru_cache

_DROPPED = re.compile(r"[&<>\"`|'’‘ʼ:\\/]")
"""What Moodle leaves out of a name that becomes a file's (``PARAM_FILE`` in
``lib/classes/param.php`` of github.com/moodle/moodle), and other ways to write an apostrophe."""


@lru_cache(100_000)
def folded(text: str) -> str:
    """Normalise a text for comparison: one form of Unicode, without differences of case."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).strip()


@lru_cache(100_000)
def words(name: str) -> frozenset[str]:
    """Return the set of a name's words, so that ``Lovelace, Ada`` equals ``Ada Lovelace``."""
    return frozenset(re.findall(r"[^\W_]+", _DROPPED.sub("", folded(name))))


@lru_cache(100_000)
def squashed(name: str) -> str:
    """Return a name as Canvas writes it in file names: ``lovelaceada``."""
    return re.sub(r"[\W_]+", "", folded(name))


def unique_names(names: Collection[str]) -> set[str]:
    """Return the names that share neither their set of words nor their letters with another.

    The letters count in any order, because Canvas joins the words in an unknown one.
    """
    by_words, by_letters = Counter(map(words, names)), Counter(map(_letters, names))
    return {name for name in names if by_words[words(name)] == by_letters[_letters(name)] == 1}


def _letters(name: str) -> tuple[str, ...]:
    return tuple(sorted(squashed(name)))
