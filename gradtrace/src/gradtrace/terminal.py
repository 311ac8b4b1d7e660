"""Colour for the line that names the fix, on terminals that show it."""

from __future__ import annotations

import os
import re
from typing import TextIO

_GREEN, _PLAIN = "\x1b[1;32m", "\x1b[0m"
_FIX = re.compile(r"^(  fix: |Proven: ).*$", re.MULTILINE)


def has_colour(stream: TextIO | None) -> bool:
    """Whether ``stream`` is a terminal whose user wants colour (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream is not None and stream.isatty()


def highlight_fix(text: str, stream: TextIO | None) -> str:
    """Colour the lines that name the fix, if ``stream`` has colour."""
    return _FIX.sub(rf"{_GREEN}\g<0>{_PLAIN}", text) if has_colour(stream) else text
