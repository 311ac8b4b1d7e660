"""Recognise a wrong answer by the stored misconception with the same result."""

import warnings
from collections.abc import Sequence

from backward_twice.checks.comparison import alike
from backward_twice.checks.plain import Plain, loads
from backward_twice.checks.task import Task
from backward_twice.misconceptions import Misconception, misconceptions_of

_MOST_REPLIES = 3


def replies(name: str, task: Task, observed: Sequence[str], inputs: Sequence[str]) -> list[str]:
    """Return the replies of misconceptions that give the results ``observed`` for ``inputs``."""
    try:
        draws = [(loads(text), case) for text, case in zip(observed, inputs, strict=True)]
    except ValueError:
        return []
    with warnings.catch_warnings(action="ignore"):
        fitting = {  # two with the same result may have one reply
            misconception.reply: None
            for misconception in misconceptions_of(name)
            if all(_gives(misconception, task, *draw) for draw in draws)
        }
    return list(fitting) if len(fitting) <= _MOST_REPLIES else []


def _gives(misconception: Misconception, task: Task, observed: Plain, inputs: str) -> bool:
    """Whether the misconception's answer gives the observed result; False if it raises an error."""
    try:
        answer = misconception.answer(task.answer)
        return alike(loads(task.observe(answer, inputs)), observed)
    except Exception:  # most misconceptions end in an error, so there is nothing to compare
        return False
