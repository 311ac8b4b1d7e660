"""The subset of Markdown in which claims and questions are written, as HTML."""

import html
import re


def inline(text: str) -> str:
    """Return text as HTML, with ``code`` for text in backticks.

    >>> inline("`x < 1` & more")
    '<code>x &lt; 1</code> &amp; more'
    """
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
