"""A question as the front end receives it."""

from dataclasses import dataclass
from typing import Any

Choice = int | str


@dataclass(frozen=True)
class Question:
    """A question for the front end, which receives it as a dict.

    ``kind`` says where the reader answers: at a ``"line"``, a ``"node"`` or a ``"tensor"`` of the
    drawing, by choosing one text (``"choice"``), or several (``"choices"``). ``setting`` holds the
    index of each control's option, ``at`` the last step that may be seen before the answer.
    ``choices`` are ``{"id", "label"}``; an id is a line number, a node's or tensor's index, or a
    word. ``right`` lists the right ids: any of them, or for ``"choices"`` all of them. ``replies``
    holds the reply to each choice, ``explanation`` the text of *Show me*. ``place`` counts the
    nodes that run in the next line's backward until the answer is seen; 0 if a line shows it.
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
