"""A question as the front end receives it."""

from dataclasses import dataclass
from typing import Any

Choice = int | str


@dataclass(frozen=True)
class Question:
    """A question as the front end receives it, through :func:`dataclasses.asdict`."""

    kind: str  # "line", "node" or "tensor" to pick, "choice" of one text or "choices" of several
    prompt: str
    setting: tuple[int, ...]  # the index of each control's option
    at: int  # the last step that may be seen before the answer
    choices: tuple[dict[str, Any], ...]  # {"id", "label"}; the id is a line, an index or a word
    right: tuple[Choice, ...]  # any of them is right, or for "choices" all of them together
    replies: dict[Choice, str]  # to each choice
    explanation: str  # the text of *Show me*
    place: int = 0  # how many nodes of the next line's backward show the answer; 0 if a line does
