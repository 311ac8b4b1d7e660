"""Run students' code in a sandbox, from which it can reach nothing.

Each submission has its own bubblewrap namespaces, which a fork of a warm process enters, so that it
starts within milliseconds.  ``forkserver``, ``confine``, ``forget`` and ``runner`` run in that
process and in its forks, ``seccomp`` and ``syscalls`` there and in the grader; all other modules
belong to the grader, which trusts no output of a submission.  Nothing is imported here, so that a
submission's interpreter does not have the grader's modules.
"""
