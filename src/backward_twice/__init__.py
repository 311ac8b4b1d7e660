"""The course's own code: quizzes, verdicts, checks of exercises, grading, upkeep of notebooks."""

from backward_twice.quizzes import Quiz, quiz
from backward_twice.verdicts import Verdict, verdict

__all__ = ["Quiz", "Verdict", "quiz", "verdict"]
