"""``gradtrace fix script.py``: repairs of a failing program, each proved by running it.

1. The program runs once as it is, under a strict watch (:mod:`~gradtrace.repair.run.processes`);
   again, to see whether it repeats; and once as a reference, with every graph retained and every
   saved tensor copied, which gives the gradient of each loss as its statements define it.
2. :mod:`~gradtrace.repair.rules` edits its source in every way that could apply at the lines
   involved, the usual wrong advice included (:mod:`~gradtrace.repair.edits` keeps comments and
   layout).
3. Each candidate runs in its own process, in which a :mod:`~gradtrace.repair.run.recorder` records
   the effect of each backward call on each parameter.
4. :mod:`~gradtrace.repair.judge` compares the records: a candidate is proven, rejected for a
   reason, or unproven.  :mod:`~gradtrace.repair.proof` runs all this, and
   :mod:`~gradtrace.repair.proof_text` renders the result.

Nothing is written into the user's folder: the edited text is compiled in place of the file's.
"""
