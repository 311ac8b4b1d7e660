"""Run students' code in a sandbox where it can reach nothing, and nowhere else.

Each submission has namespaces of bubblewrap of its own, which a fork of a warm process enters, so
that it costs milliseconds.  ``forkserver``, ``confine``, ``forget`` and ``runner`` are modules of
the interpreters where a student's code will run, and of the one that they are forked from; all
others belong to the grader, where nothing that comes out of a submission is believed.  Nothing is
imported here, so that a submission's interpreter does not have the grader's modules.
"""
