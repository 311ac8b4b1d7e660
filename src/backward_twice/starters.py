"""Insert broken code as the starter of an exercise, which nbgrader alone cannot do.

nbgrader replaces a solution by a stub that raises, but an exercise of the kind *repair this* begins
with code to repair.  In the solution notebook that code has its own cell, which is executed, so
that its error is shown; the answer cell's metadata names it (``"starter": "<cell id>"``).
``nbgrader_config.py`` installs the class below.
"""

from typing import Any

from nbformat import NotebookNode
from nbgrader.preprocessors import ClearSolutions
from nbgrader.utils import is_solution

SOLUTION_ONLY = "solution-only"


class ClearSolutionsKeepStarters(ClearSolutions):
    """Clear the solutions, insert the starters, and remove what only the solution shows."""

    def preprocess(
        self, nb: NotebookNode, resources: dict[str, Any]
    ) -> tuple[NotebookNode, dict[str, Any]]:
        """Turn a solution notebook into its exercise; nbconvert requires this signature."""
        source_of = {cell.id: cell.source for cell in nb.cells}
        nb, resources = super().preprocess(nb, resources)
        nb.cells = [cell for cell in nb.cells if SOLUTION_ONLY not in cell.metadata.get("tags", ())]
        nb.cells[0].source = nb.cells[0].source.replace("# Solution: ", "# ", 1)
        for cell in filter(is_solution, nb.cells):
            for folding in ("tags", "mystnb"):  # folded in the solution, open in the exercise
                cell.metadata.pop(folding, None)
            starter = cell.metadata.pop("starter", None)
            if starter is not None:
                if starter not in source_of:
                    raise ValueError(f"cell {cell.id}: there is no cell {starter!r} to start from")
                cell.source = source_of[starter]
        return nb, resources
