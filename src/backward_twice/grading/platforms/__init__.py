"""Learning platforms: what each of them exports is read here, and what it takes is given back.

Only here are the formats of a platform known.  Another platform's download is a reader more in
:mod:`.downloads`, and :mod:`backward_twice.grading.collect` sorts it into the folders that nbgrader
has.  What it takes back is written with no word of a student's that the platform would run.
"""
