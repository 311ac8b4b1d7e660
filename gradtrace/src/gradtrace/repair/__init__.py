"""``gradtrace fix script.py``: repairs of a failing program, each proved by running it.

1. :mod:`~gradtrace.repair.proof` runs the program under a strict watch; again, to see whether it
   repeats; and as a reference, with every graph retained and every saved tensor copied.
2. :mod:`~gradtrace.repair.rules` edits its source in every way that could apply at the lines
   involved, the usual wrong advice included.
3. Each candidate runs in its own process (:mod:`~gradtrace.repair.run.processes`), in which a
   :mod:`~gradtrace.repair.run.recorder` records what each backward call adds to each gradient.
4. :mod:`~gradtrace.repair.judge` compares the records.  If no candidate holds, one that leaves
   another error is completed by the candidates for that error.

Nothing is written into the user's folder: the edited text is compiled in place of the file's.
"""
