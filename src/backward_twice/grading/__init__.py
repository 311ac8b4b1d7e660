"""Grade submissions of the exercises: ``python -m backward_twice.grading SUBMISSIONS --out OUT``.

A submission passes through the packages ``intake``, ``judging``, ``sandbox`` and ``feedback``, none
of which trusts its content.  Every file is written atomically (:mod:`.atomic`).
``book/promises.md`` lists the code and the tests that keep each promise made to teachers.
"""


class GradingError(Exception):
    """An error that the teacher has to correct; the message says how."""


class Rejected(Exception):
    """A submission that cannot be graded; the message says why, to student and teacher."""
