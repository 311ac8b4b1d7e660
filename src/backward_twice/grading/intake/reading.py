"""Read submissions and rebuild them from the master, in a process with limits."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from backward_twice.grading.intake.rebuild import answers
from backward_twice.grading.intake.submissions import Handed
from backward_twice.grading.judging.master import Answers, Master
from backward_twice.grading.limited import SECONDS, Limited

Json = dict[str, Any]


class Reader(Limited):
    """Reads submissions in another process, which has the masters; a context manager."""

    def __init__(self, masters: Mapping[str, Master], seconds: float = SECONDS) -> None:
        super().__init__(seconds)
        self._masters = masters

    def read(self, assignment: str, opened: Callable[[], Handed]) -> tuple[Answers, Json]:
        """Open a submission by ``opened()``; return its rebuilt answers, and its notes and time.

        Raises Rejected if it cannot be graded, or if reading it takes too much time or memory.
        """
        parts = self.call(partial(_rebuilt, opened, assignment, self._masters))
        sources = {name: tuple(cells) for name, cells in parts["sources"].items()}
        given = Answers(sources, parts["missing"], tuple(parts["notes"]))
        return given, {"notes": [*parts["said"], *given.notes], "timestamp": parts["timestamp"]}


def _rebuilt(opened: Callable[[], Handed], assignment: str, masters: Mapping[str, Master]) -> Json:
    handed = opened()
    rebuilt_answers = answers(handed.cells, masters[assignment], masters)
    return vars(rebuilt_answers) | {"said": handed.notes, "timestamp": handed.timestamp}
