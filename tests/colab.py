"""Run notebooks and solutions as on Colab: ``python tests/colab.py WHEEL WHEEL``.

The weekly workflow does this in Colab's public image, which has neither of the two packages.  Each
notebook gets the bootstrap cell with the given wheels in place of the published ones, and runs top
to bottom in a folder of its own, with nothing left of the notebook before it.  What Colab brings
must keep its versions.
"""

import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
BROUGHT = ("torch", "numpy", "ipywidgets", "ipython", "matplotlib", "networkx")
OURS = ("gradtrace", "backward-twice")


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def main(wheels: list[str]) -> None:
    if any(map(installed, OURS)):
        sys.exit("the packages are installed here, so the bootstrap would have nothing to do")
    sys.path.insert(0, str(ROOT / "src"))  # here only: the notebooks' kernels do not see it
    from backward_twice.address import bootstrap

    before = {name: installed(name) for name in BROUGHT}
    print(sys.version.split()[0], before, flush=True)
    for path in sorted([*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("solutions/*/*.ipynb")]):
        print(path.name, end=" ", flush=True)
        notebook = nbformat.read(path, as_version=4)
        first = next(cell for cell in notebook.cells if cell.cell_type == "code")
        if first.id != "bootstrap":
            sys.exit("has no bootstrap cell: run `make address`")
        first.source = bootstrap(str(Path(wheel).resolve()) for wheel in wheels)
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(notebook, resources={"metadata": {"path": folder}}).execute()
        subprocess.run([sys.executable, "-m", "pip", "uninstall", "-qqy", *OURS], check=True)
        print("ran", flush=True)
    if (after := {name: installed(name) for name in BROUGHT}) != before:
        sys.exit(f"the bootstrap changed what Colab brings: {after}")


if __name__ == "__main__":
    main(sys.argv[1:])
