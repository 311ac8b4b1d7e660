"""Grade submissions of the exercises: ``python -m backward_twice.grading SUBMISSIONS --out OUT``.

A submission passes through these modules, and nothing in it is trusted on the way:

====================  ==============================================================================
:mod:`.command`       the command line; what follows is done in its turn
:mod:`.platforms`     what a learning platform exports is found and read
:mod:`.roster`        who belongs to the class, from the platform's own list
:mod:`.submissions`   look at what was handed in before opening it, read it
:mod:`.rebuild`       take the answer cells' sources into the master notebook, and nothing else
:mod:`.reading`       do both where time and memory have limits: :mod:`.limited`
:mod:`.draws`         draw the hidden inputs, after the submission was read
:mod:`.batch`         hand submissions to Dask workers, a few at a time; try again where one dies
:mod:`.sandbox`       run the notebook where it can reach nothing; out comes plain data
:mod:`.judge`         compare that with the truth, outside the student's interpreter
:mod:`.played`        of what is wrong play the smallest case, line by line
:mod:`.journal`       keep each result at once, so that an interrupted grading goes on
:mod:`.platforms`     what the platform takes is given back: nbgrader's own tables
:mod:`.feedback`      the tables, and a page of feedback for each submission
====================  ==============================================================================

Each file is written as a whole or not at all (:mod:`.whole`).  Three commands besides:
:mod:`.collect` sorts a platform's download into folders of submissions, before, and
:mod:`.unpacking` opens its files; :mod:`.report` writes a page on a class, after;
:mod:`.gradescope` writes what the platform Gradescope needs, which grades by itself.
``book/promises.md`` names for each promise made to teachers the code and the tests that keep it.
"""


class GradingError(Exception):
    """Something that the teacher has to put right; its message says what and how."""
