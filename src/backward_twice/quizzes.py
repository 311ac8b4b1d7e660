"""Questions of a chapter, whose right answers are computed in the notebook.

A quiz is displayed as a form that replies in the page, with or without a kernel; its script and
styles are part of the output.  A single question is a prediction about a program that no player can
trace; several questions end a page.

The package jupyterquiz (2.9.6) is not used: its right answers are typed, its replies are not
announced to screen readers, its elements get random names, and formulas load a script from a CDN.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backward_twice.markdown import inline

Choices = Mapping[str, tuple[bool, str]]


@dataclass(frozen=True)
class Quiz:
    """Questions with their choices.  Display it as the value of a cell."""

    questions: dict[str, Choices]

    def __repr__(self) -> str:
        lines = []
        for number, (question, choices) in enumerate(self.questions.items(), 1):
            lines.append(f"{self._number(number)}{question}")
            lines += [f"   {'✓' if right else ' '} {text}" for text, (right, _) in choices.items()]
        return "\n".join(lines)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        fieldsets = "".join(
            self._question(number, *item) for number, item in enumerate(self.questions.items(), 1)
        )
        button = "Check my answers" if len(self.questions) > 1 else "Check my answer"
        answers = "".join(
            f"<li>{inline(text)}: {inline(reply)}</li>"
            for choices in self.questions.values()
            for text, (right, reply) in choices.items()
            if right
        )
        assets = (Path(__file__).with_suffix(suffix) for suffix in (".css", ".js"))
        style, script = (path.read_text(encoding="utf-8") for path in assets)
        return {
            "text/plain": repr(self),
            "text/html": (
                f'<form class="quiz"><style>{style}</style>{fieldsets}'
                f'<p class="actions" hidden><button type="submit">{button}</button> '
                '<button type="reset">Begin again</button></p><p role="status"></p>'
                f"<details><summary>Answers</summary><ol>{answers}</ol></details>"
                f"<script>{script}</script></form>"
            ),
        }

    def _question(self, number: int, question: str, choices: Choices) -> str:
        rows = "".join(
            f'<label><input type="radio" name="question-{number}" value="{value}">'
            f"<span>{inline(text)}</span></label>"
            for value, text in enumerate(choices)
        )
        replies = "".join(
            f'<p data-reply="{value}"{" data-right" if right else ""} hidden>'
            f"<strong>{'✓ Right.' if right else '✗ Not right.'}</strong> {inline(reply)}</p>"
            for value, (right, reply) in enumerate(choices.values())
        )
        return (
            f"<fieldset><legend>{self._number(number)}{inline(question)}</legend>{rows}"
            f'<div aria-live="polite">{replies}</div></fieldset>'
        )

    def _number(self, number: int) -> str:
        return f"{number}. " if len(self.questions) > 1 else ""


def quiz(questions: Mapping[str, Choices]) -> Quiz:
    """Ask questions with one right choice each.

    Args:
        questions: for each question its choices, and for each choice whether it is right and the
            reply to it.  Pass the result that a cell computed, as a bool, never a typed truth
            value.  In all texts, backticks mark code.

    Raises:
        TypeError: an observation is not a bool.
        ValueError: not exactly one choice of a question is right, or a reply is empty.

    >>> import torch
    >>> w = torch.ones(1, requires_grad=True)
    >>> loss = w.exp().sum()
    >>> loss.backward()
    >>> quiz({"Is `w.grad` written?": {
    ...     "yes": (w.grad is not None, "Backward adds to it."),
    ...     "no": (w.grad is None, "Look at `w.grad`."),
    ... }})
    Is `w.grad` written?
       ✓ yes
         no
    """
    for question, choices in questions.items():
        for text, (right, reply) in choices.items():
            if not isinstance(right, bool):
                raise TypeError(
                    f"{text!r}, a choice of {question!r}, is {right!r}, which is no bool: pass "
                    "the observation"
                )
            if not reply:
                raise ValueError(f"{text!r}, a choice of {question!r}, has no reply")
        so = [text for text, (right, _) in choices.items() if right]
        if len(so) != 1:
            raise ValueError(
                f"{question!r} has {len(so)} right choices ({'; '.join(so) or 'none'}), but one is "
                "to be chosen"
            )
    return Quiz({question: dict(choices) for question, choices in questions.items()})
