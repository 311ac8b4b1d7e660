"""Generate ``exercises/`` from ``solutions/``: ``python -m backward_twice.exercises``.

nbgrader does it, with the settings of ``nbgrader_config.py`` and without a gradebook.
"""

from contextlib import chdir
from pathlib import Path

from nbgrader.apps import GenerateAssignmentApp

SOLUTIONS = Path("solutions")
EXERCISES = Path("exercises")


def generate(root: Path, into: Path) -> list[Path]:
    """Write a checkout's exercises to ``into/<name>/<name>.ipynb``, and return their sorted paths.

    Raises:
        SystemExit: nbgrader refused a solution; its log says why.
    """
    into = into.resolve()
    names = sorted(path.parent.name for path in (root / SOLUTIONS).glob("*/*.ipynb"))
    with chdir(root):  # nbgrader reads its settings in the current folder
        for name in names:
            app = GenerateAssignmentApp(log_level="WARN")
            app.initialize(
                [name, "--force", "--no-db", f"--CourseDirectory.release_directory={into}"]
            )
            app.start()
    return [into / name / f"{name}.ipynb" for name in names]


if __name__ == "__main__":
    for path in generate(Path(), EXERCISES):
        print(path.relative_to(Path.cwd()))
