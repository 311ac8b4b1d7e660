"""Which modules an exercise's questions consist of: no other exercise's is among them."""

from __future__ import annotations

import re
from pathlib import Path

from backward_twice import checks

_FOLDER = Path(checks.__file__).parent
_IMPORTED = re.compile(rf"\b{re.escape(checks.__name__)}\.(\w+)")


def modules_of(exercise: str) -> dict[str, Path]:
    """Return the modules of checks that an exercise's questions need, by name, sorted.

    They are found in the text: nothing is imported.
    """
    names, modules = ["__init__", exercise], {}
    while names:
        name = names.pop()
        path = _FOLDER / f"{name}.py"
        if name not in modules and path.is_file():
            modules[name] = path
            names += _IMPORTED.findall(path.read_text(encoding="utf-8"))
    return dict(sorted(modules.items()))
