"""Run students' code in a sandbox, from which it can reach nothing.

Each submission has its own bubblewrap namespaces, which a fork of a warm process enters, so that it
starts within milliseconds.  Nothing is imported here, so that a submission's interpreter does not
have the grader's modules.
"""
