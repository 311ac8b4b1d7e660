"""Execute the notebooks and store their outputs: ``python -m backward_twice.execute [FILE ...]``.

nbclient runs them.  Output that is useful only while a kernel runs (widget views, timings) is not
stored, so that executing twice changes nothing.  Then the verdicts are written into the ledger.
"""

import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from backward_twice.verdicts import write_ledger

NOTEBOOKS = Path("notebooks")
SOLUTIONS = Path("solutions")

_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def execute_notebook(path: Path) -> None:
    """Run all cells of the notebook at ``path`` and store their outputs in it.

    Raises:
        CellExecutionError: a cell not tagged ``raises-exception`` raised; the file is unchanged.
    """
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
    ).execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(_WIDGET_VIEW, None)
    nbformat.write(notebook, path)


def main(arguments: list[str]) -> None:
    paths = [Path(argument) for argument in arguments] or [
        *sorted(NOTEBOOKS.glob("*.ipynb")),
        *sorted(SOLUTIONS.glob("*/*.ipynb")),
    ]
    for number, path in enumerate(paths, 1):
        print(f"[{number}/{len(paths)}] {path}", end=" ", flush=True)
        began = time.perf_counter()
        execute_notebook(path)
        print(f"{time.perf_counter() - began:.0f} s")
    write_ledger(sorted(NOTEBOOKS.glob("*.ipynb")))
    print("book/claims.yml is up to date")


if __name__ == "__main__":
    main(sys.argv[1:])
