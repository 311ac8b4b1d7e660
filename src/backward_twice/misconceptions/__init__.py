"""What learners believe and what it computes: a wrong answer for each, and the words that say it.

``<exercise>/<question>/<belief>.py`` is an answer cell as somebody with this belief writes it; its
first line says the belief, quoted where it is a saying, and what becomes of it.  No check may give
it a point (``tests/test_exercises.py``), and an answer from which the same comes out is told so.
``<exercise>/given.py`` has what the exercise's own cells give its answers.
"""
