"""``python -m backward_twice.grading``; see :mod:`backward_twice.grading.grade_command`."""

import sys

from backward_twice.grading.grade_command import main

sys.exit(main())
