"""Grade an exercise on Gradescope: ``make gradescope`` writes ``_build/gradescope/<exercise>.zip``.

The zip has the form that Gradescope documents: ``setup.sh``, which it runs once to build an image,
and ``run_autograder``, which it runs as root for each submission, in a fresh container.  With them
go this package, the exercise's master notebook and the pinned versions.  :mod:`.archive` writes
it; :mod:`.autograder` is what runs there, with the modules that :mod:`backward_twice.grading` has
for every other platform.

Gradescope's container keeps a submission from everybody else's.  Inside it the student's code is
another user's, without privileges, network sockets and sight of ``/autograder``, and the judge is a
process that it cannot touch; where bubblewrap works in that container, it is used.

Why not otter, which writes such zips too: its tests run in the student's interpreter, where a
submission can rewrite them (one patched function of otter's gave wrong answers full marks), its
checks would have to be written a second time, and it installs 500 MB of its own.
"""
