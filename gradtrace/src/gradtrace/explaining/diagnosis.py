"""The explanation of an error or a silent failure, as text and as JSON."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from gradtrace.autograd.frames import Location, running_ipython
from gradtrace.explaining.causes import CAUSES, FACTS, KEYS, SCHEMA
from gradtrace.explaining.causes.table import CERTAIN, Fix, filled

_CALLS = 3  # calls shown that led to the line that created the tensor


@dataclass(frozen=True)
class Diagnosis:
    """The explanation of an error; :mod:`gradtrace.explaining.causes` lists families and causes.

    ``raised_at`` is the user's line that raised, or in which a silent failure was found.
    ``began_at`` is the line where it began: the call that freed the graph, the change, or the cut;
    ``began_through`` are the calls that led to it, if other losses share that line.
    ``made_at`` is the line that created the tensor involved, ``made_through`` the calls that led
    to it, and ``carried_by`` the variables that hold it, to one of which the line ``stored_at``
    gave a value. If unknown, ``made_through`` is empty, and each of the others is None.
    ``confidence`` is ``"certain"``, ``"likely"`` or ``"unknown"``; ``facts`` are the names of those
    that decided. ``advice`` is the fix, and ``names`` are the variables for its text. A ``proven``
    fix removes the failure from this loss, and no parameter loses its gradient.
    """

    family: str
    cause: str
    confidence: str
    raised_at: Location | None
    began_at: Location | None = None
    began_through: tuple[Location, ...] = ()
    made_at: Location | None = None
    made_through: tuple[Location, ...] = ()
    stored_at: Location | None = None
    error: str | None = None
    detail: str | None = None
    facts: tuple[str, ...] = ()
    advice: Fix = CAUSES["unknown"].fixes[-1]
    proven: bool = True
    names: Mapping[str, str | None] = field(default_factory=dict)
    strict: bool = True

    @property
    def carried_by(self) -> str | None:
        return self.names.get("it")

    @property
    def reasons(self) -> tuple[str, ...]:
        """The facts that decided, as sentences."""
        return tuple(dict.fromkeys(map(FACTS.__getitem__, self.facts)))

    @property
    def explanation(self) -> str:
        """One sentence that says what went wrong."""
        text = filled(CAUSES[self.cause].meaning, self._names)
        return text if self.detail is None else f"{text}; {self.detail}"

    @property
    def fix(self) -> str:
        """What to change in the program."""
        return filled(self.advice.text, self._names)

    @property
    def otherwise(self) -> str | None:
        """The alternative to try next if the fix is not proven, else None."""
        text = None if self.proven else self.advice.otherwise
        return text and filled(text, self._names)

    @property
    def _names(self) -> Mapping[str, str | None]:
        return {**_ways_to_watch(), **self.names}

    def text(self) -> str:
        """Render the explanation as a few lines of text that begin with ``gradtrace:``."""
        unsure = self.confidence != CERTAIN and self.cause != "unknown"
        hedge = f" ({self.confidence})" if unsure else ""
        calls = self.made_through[:_CALLS] if self.made_at is not None else ()
        hint = f"{self._names.get('strict', _STRICT)} {_MORE}"
        rows = [
            ("began:", _line(self.began_at)),
            *(("", f"called from {_line(call)}") for call in self.began_through),
            ("made:", _line(self.made_at)),
            *(("", f"called from {call}") for call in calls),
            ("stored:", _line(self.stored_at)),
            ("carried:", self.carried_by),
            ("seen:", "; ".join(self.reasons)),
            ("fix:", self.fix),
            ("or:", self.otherwise),
            ("more:", None if self.strict or self.confidence == CERTAIN else hint),
        ]
        lines = [f"  {name:<9}{text}" for name, text in rows if text]
        return "\n".join([f"gradtrace: {self.explanation}.{hedge}", *lines])

    def to_dict(self) -> dict[str, Any]:
        """Return the data of ``--json``; :data:`gradtrace.explaining.causes.KEYS` explains it."""
        # A plain str can be unpickled without torch.
        data = {"schema": SCHEMA, "torch": str(torch.__version__), "seen": self.reasons}
        keys = [key for key in KEYS if key != "warnings"]  # those of a finding
        return {key: _plain(data[key] if key in data else getattr(self, key)) for key in keys}


_STRICT = "gradtrace.watch(strict=True), or python -m gradtrace --strict,"
_MORE = "also reports the lines and variables that are missing here"


def _ways_to_watch() -> dict[str, str]:
    """Return how to start a strict watch under pytest or in a notebook; else an empty dict."""
    # A program or kernel that a test starts inherits the variable, but does not run under pytest.
    if "PYTEST_CURRENT_TEST" in os.environ and "pytest" in sys.modules:
        return {"strict": "pytest --gradtrace=strict"}
    if running_ipython() is not None:
        return {"strict": "gradtrace.watch(strict=True) around the lines of these cells"}
    return {}


def _line(place: Location | None) -> str | None:
    return None if place is None else f"{place}  {place.text}".rstrip()


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: a line as a dict, several values as a list."""
    if isinstance(value, Location):
        return {"file": value.file, "line": value.line}
    return [*map(_plain, value)] if isinstance(value, tuple) else value
