"""``gradtrace fix script.py``: repairs of a failing program, each proved by running it.

1. The program runs once as it is, under a strict watch (:mod:`~gradtrace.repair.run.worker`), and
once
   more, to see whether it does the same again.
2. :mod:`~gradtrace.repair.rules` edits its source in every way that could apply at the lines
   involved, the usual wrong advice among them (:mod:`~gradtrace.repair.edits`: comments and layout
   stay).
3. Each candidate runs in a process of its own, and a witness (:mod:`~gradtrace.repair.run.witness`)
   writes down what each backward call did to each parameter
   (:mod:`~gradtrace.repair.run.observations`).
4. :mod:`~gradtrace.repair.judge` compares, and says proven, rejected and why, or unproven; what
   holds alike is put together in :mod:`~gradtrace.repair.proof`, and told by
   :mod:`~gradtrace.repair.report`.

Nothing is written into the user's folder: the edited text is compiled in place of the file's.
"""
