"""The course's own code: verdicts on claims, quizzes, and the upkeep of the executed notebooks."""

from backward_twice.quizzes import Quiz, quiz
from backward_twice.verdicts import Verdict, verdict

__all__ = ["Quiz", "Verdict", "quiz", "verdict"]
