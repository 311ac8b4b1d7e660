"""The answers of one submission, as source code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Answers:
    """The sources of a submission's answer cells, in order, by the answer's id.

    ``missing`` says why an answer is not there; ``notes`` are for teacher and student.
    """

    sources: Mapping[str, tuple[str, ...]]
    missing: Mapping[str, str]
    notes: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Equal for two submissions that would be graded alike."""
        parts = [sorted(self.sources.items()), sorted(self.missing.items()), self.notes]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
