"""The formats of learning platforms: their exports, and the files that they import.

Another platform's download needs a reader in :mod:`.downloads`; then
:mod:`backward_twice.grading.collect` sorts it into folders as nbgrader has them.  In the files for
a platform, a student's text contains nothing that the platform would execute.
"""
