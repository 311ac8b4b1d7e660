"""Learning platforms: what each of them exports is read here, and what it takes is given back.

Only here are the formats of a platform known:

==========================  =============================  =====================================
platform                    what it offers is read by      what it takes is written by
==========================  =============================  =====================================
:mod:`.nbgrader`            :mod:`.nbgrader.collected`     :mod:`.gradebook`, :mod:`.autograded`
Moodle, Canvas              :mod:`.downloads`              :mod:`.upload`, ``class.csv``
GitHub Classroom, a folder  :mod:`.downloads`              pages of feedback, ``class.csv``
==========================  =============================  =====================================

Downloads are sorted by :mod:`backward_twice.grading.collect` into the folders that nbgrader has.
A further one provides two things, and :mod:`backward_twice.grading.grade_command` calls them:

* **Reading**: ``find(folder, assignments)`` returns a :class:`.SubmissionFolder` for every visible
  entry of an export, with the reason in words where nothing can be graded, so that nobody is left
  out in silence; ``read(folder, submission_folder)`` returns its notebook as :class:`.Handed`, or
  raises :class:`.Rejected`.  It opens nothing of a student's itself: only :func:`.read_folder`
  does, which has the limits.
* **Giving back**: results (as :func:`.grader.judged` makes them, plain JSON) in the form that the
  platform takes, with no word of a student's that the platform would run or render.
"""
