"""Read submissions and rebuild them from the master, in a process with limits (:class:`.Limited`).

A submission that takes too much time or memory to be read is rejected, and the next one is read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from backward_twice.grading.intake.rebuild import answers
from backward_twice.grading.intake.submissions import Handed
from backward_twice.grading.judging.master import Answers, Master
from backward_twice.grading.limited import SECONDS, Limited

Json = dict[str, Any]


@dataclass(frozen=True)
class Submission:
    """A submission's answers, remarks on it, and its time (:class:`.Handed`)."""

    answers: Answers
    notes: tuple[str, ...]
    timestamp: str | None


class Reader(Limited):
    """Reads submissions in another process, which has the masters; a context manager."""

    def __init__(self, masters: Mapping[str, Master], seconds: float = SECONDS) -> None:
        super().__init__(seconds)
        self._masters = masters

    def read(self, assignment: str, opened: Callable[[], Handed]) -> Submission:
        """Open a submission by ``opened()``, as :meth:`.Limited.call` does; rebuild its answers.

        Raises Rejected if it cannot be graded, or if reading it takes too much time or memory.
        """
        parts = self.call(partial(_rebuilt, opened, assignment, self._masters))
        sources = {name: tuple(cells) for name, cells in parts["sources"].items()}
        read_answers = Answers(sources, parts["missing"], tuple(parts["notes"]))
        notes = (*parts["said"], *read_answers.notes)
        return Submission(read_answers, notes, parts["timestamp"])


def _rebuilt(opened: Callable[[], Handed], assignment: str, masters: Mapping[str, Master]) -> Json:
    handed = opened()
    rebuilt_answers = answers(handed.cells, masters[assignment], masters)
    return vars(rebuilt_answers) | {"said": handed.notes, "timestamp": handed.timestamp}
