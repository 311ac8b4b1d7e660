"""nbgrader's settings: exercises/ is generated from solutions/ (`make exercises`)."""

from nbgrader.converters import GenerateAssignment
from nbgrader.preprocessors import ClearSolutions

from backward_twice.starters import ClearSolutionsKeepStarters

c = get_config()  # noqa: F821 (nbgrader brings it)

c.CourseDirectory.course_id = "backward_twice"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "exercises"

c.GenerateAssignment.preprocessors = [
    ClearSolutionsKeepStarters if step is ClearSolutions else step
    for step in GenerateAssignment.preprocessors.default()
]

# For those who grade with nbgrader itself.  A right answer that warns would lose its points (0 for
# a test cell that wrote to standard error), and so would one whose test cell was deleted.
c.IgnorePattern.enabled = True
c.IgnorePattern.pattern = r"(?s).*"
c.OverwriteCells.add_missing_cells = True
