"""The course's own code: the verdict on each claim, and the upkeep of the executed notebooks."""

from backward_twice.verdicts import Verdict, verdict

__all__ = ["Verdict", "verdict"]
