"""Run students' code in a sandbox where it can reach nothing, and nowhere else.

Each submission has namespaces of bubblewrap of its own, which a fork of a warm process enters, so
that it costs milliseconds.  ``forkserver``, ``confine``, ``forget`` and ``runner`` are modules of
the interpreters where a student's code will run, and of the one that they are forked from; all
others belong to the grader, where nothing that comes out of a submission is believed.
"""

from backward_twice.grading.sandbox.forks import Sandbox, shared
from backward_twice.grading.sandbox.limits import SandboxError, SubmissionLimits
from backward_twice.grading.sandbox.protocol import StepResult, check_sandbox, run_steps

__all__ = [
    "Sandbox",
    "SandboxError",
    "StepResult",
    "SubmissionLimits",
    "check_sandbox",
    "run_steps",
    "shared",
]
