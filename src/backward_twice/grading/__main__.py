"""``python -m backward_twice.grading``; see :mod:`backward_twice.grading.grade_command`.

Dask's workers import this module again, as multiprocessing's children do: so it imports nothing.
"""

import sys

if __name__ == "__main__":  # not where a worker imports it
    from backward_twice.grading.grade_command import main

    sys.exit(main())
