"""A question as the front end gets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Choice = int | str


@dataclass(frozen=True)
class Question:
    """A question as the front end gets it: JSON-ready once :func:`dataclasses.asdict` has run.

    ``kind`` says where the answer is taken: at a ``"line"``, a ``"node"`` or a ``"tensor"`` of the
    picture, or as one of some words (``"choice"``), or several of them (``"choices"``).
    ``setting`` holds the index of each control's option, ``at`` the last step that may be seen
    before the answer.
    ``choices`` are ``{"id", "label"}``; an id is a line number, a node's or tensor's index, or a
    word.  ``right`` lists the ids that are right: any of them, or for ``"choices"`` all of them.
    ``replies`` holds the answer to each choice, ``explanation`` what *Show me* says.
    ``place`` is that of the node inside of the next line's backward pass at which the answer is
    seen, counted from 1; 0 where a line shows it.
    """

    kind: str
    prompt: str
    setting: tuple[int, ...]
    at: int
    choices: tuple[dict[str, Any], ...]
    right: tuple[Choice, ...]
    replies: dict[Choice, str]
    explanation: str
    place: int = 0
