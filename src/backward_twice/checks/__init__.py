"""The checks of the exercises: a module for each exercise, a :class:`Task` for each question.

A learner's notebook asks with :func:`check`; :mod:`backward_twice.grading` asks the same questions.
"""

from backward_twice.checks.asking import calls, check
from backward_twice.checks.comparison import Finding, compare, merged
from backward_twice.checks.task import Task, question

__all__ = ["Finding", "Task", "calls", "check", "compare", "merged", "question"]
