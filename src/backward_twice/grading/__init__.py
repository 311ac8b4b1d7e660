"""Grade submissions of the exercises: ``python -m backward_twice.grading SUBMISSIONS --out OUT``.

A submission passes through these modules, and nothing in it is trusted on the way:

====================  ==============================================================================
:mod:`.command`       the command line; what follows is done in its turn
:mod:`.platforms`     what a learning platform exports is found and read
:mod:`.submissions`   look at what was handed in before opening it, read it
:mod:`.rebuild`       take the answer cells' sources into the master notebook, and nothing else
:mod:`.reading`       do both in a process of its own, with limits on its time and memory
:mod:`.draws`         draw the hidden inputs, after the submission was read
:mod:`.batch`         hand submissions to Dask workers, a few at a time; try again where one dies
:mod:`.sandbox`       run the notebook where it can reach nothing; out comes plain data
:mod:`.judge`         compare that with the truth, outside the student's interpreter
:mod:`.journal`       keep each result at once, so that an interrupted grading goes on
:mod:`.platforms`     what the platform takes is given back: nbgrader's own tables
:mod:`.feedback`      ``grades.csv`` and a page of feedback for each submission
====================  ==============================================================================

The platform Gradescope grades by itself: :mod:`.gradescope` is the command that writes what it
needs.
"""


class GradingError(Exception):
    """Something that the teacher has to put right; its message says what and how."""
