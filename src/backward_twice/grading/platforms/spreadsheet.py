"""Cells of tables that teachers open in a spreadsheet: text, whatever a student wrote."""

import re

from backward_twice.grading.intake.submissions import shown

# What begins a cell, for a program that separates cells by comma, semicolon, tab or bar, with what
# does not show or is stripped before it, and then makes the cell a formula, in whatever width.
_SIGNS = r"=+\-@＝＋－＠﹦﹢﹣﹫⁼⁺⁻₌₊₋−"
_BEFORE = r"""(^|[,;|\t]){}([\s"'\u200c\u200d]*)(?=[{}])"""
_FORMULA = re.compile(_BEFORE.format("", _SIGNS))
_QUOTED = re.compile(_BEFORE.format("'", _SIGNS))


def safe(cell: str) -> str:
    """Return ``cell`` as one line of text that no spreadsheet executes.

    >>> safe("=HYPERLINK(1)"), safe("a\\tb"), safe("Zoë"), safe("x;=1+1")
    ("'=HYPERLINK(1)", 'a\\\\tb', 'Zoë', "x;'=1+1")
    """
    return _FORMULA.sub(r"\1'\2", shown(cell))


def unquoted(cell: str) -> str:
    """Return the argument of :func:`safe` from its result, for text on one line.

    >>> unquoted(safe("=1")), unquoted(safe("'=1")), unquoted("O'-Neil;' -x")
    ('=1', "'=1", "O'-Neil; -x")
    """
    return _QUOTED.sub(r"\1\2", cell)
