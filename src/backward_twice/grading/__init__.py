"""Grade submissions of the exercises: ``python -m backward_twice.grading SUBMISSIONS --out OUT``.

A submission passes through these packages, and nothing in it is trusted on the way.  Each depends
on those above it and on none below:

====================  ==============================================================================
:mod:`.sandbox`       run a notebook where it can reach nothing; what comes out is plain data
:mod:`.judging`       draw hidden inputs, run the answers in sandboxes, judge what comes out
:mod:`.intake`        read what was handed in, and take its answers, where limits hold
:mod:`.platforms`     the formats of learning platforms: downloads, class lists, uploads
:mod:`.feedback`      tables for the teacher, a page for each student
:mod:`.grade_command` the command line; the other modules beside it are commands too
====================  ==============================================================================

Every file is written atomically (:mod:`.atomic`).  Two commands besides: :mod:`.collect` sorts a
platform's download into folders of submissions, before grading; :mod:`.class_report` writes a page
on a class, after grading.  ``book/promises.md`` names the code and the tests that keep each promise
made to teachers.
"""


class GradingError(Exception):
    """Something that the teacher has to put right; its message says what and how."""
