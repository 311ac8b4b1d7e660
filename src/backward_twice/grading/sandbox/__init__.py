"""Run a submission where it can reach nothing: nothing of a student's runs anywhere else.

Each submission has namespaces of bubblewrap of its own, which a fork of a warm process enters, so
that it costs milliseconds.  Each module keeps one promise.

In the grader's processes, where nothing that comes out of a submission is believed:

======================  ============================================================================
:mod:`.limits`          what a submission may use
:mod:`.protocol`        every step has a result, nobody looks ahead, and no process is left
:mod:`.events`          a stranger's bytes become plain events, bounded in number and in time
:mod:`.policy`          what a submission may see
:mod:`.bubblewrap`      namespaces with that policy, and the end of all that is in them
:mod:`.forks`           the warm process is there, and its fork ends when it is to
:mod:`.process`         what these share: a process's environment, memory and time
======================

In the interpreters where a student's code will run, and in the one that they are forked from:

===================  ===============================================================================
:mod:`.forkserver`   the warm process: it imports once, then forks into each sandbox
:mod:`.confine`      what a process gives up, for good, before it reads a line of a student's
:mod:`.syscalls`     of the kernel's calls those that are allowed
:mod:`.seccomp`      libseccomp, which compiles them into a filter
:mod:`.forget`       one exercise's questions, and nothing of what they expect
:mod:`.runner`       the steps are run one after another, and what came of them is reported
===================  ===============================================================================
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
