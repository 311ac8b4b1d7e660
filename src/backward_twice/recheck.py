"""Judge the claims again on the PyTorch that is installed: ``python -m backward_twice.recheck``.

The command prints each claim whose verdict or conditions differ from the ledger's, and then its
exit code is 1.  With ``--record`` the result is also written into ``book/versions.csv``.
"""

import csv
import platform
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch

from backward_twice.execute import NOTEBOOKS, execute_notebook
from backward_twice.verdicts import read_ledger, stored_verdicts

VERSIONS = Path(__file__).parents[2] / "book/versions.csv"
BESIDE = ("numpy", "ipython", "ipywidgets", "anywidget", "matplotlib", "networkx")  # beside PyTorch


def differences() -> list[str]:
    """Judge all claims; return a line for each whose verdict or conditions are not the ledger's."""
    with tempfile.TemporaryDirectory() as folder:
        copies = Path(shutil.copytree(NOTEBOOKS, Path(folder, "notebooks")))
        paths = [path for path in sorted(copies.glob("*.ipynb")) if stored_verdicts([path])]
        for number, path in enumerate(paths, 1):
            print(f"[{number}/{len(paths)}] {path.name}", file=sys.stderr)
            execute_notebook(path)
        verdicts = stored_verdicts(paths)
    lines = []
    for row in read_ledger():
        verdict = verdicts.get(row["id"], {"verdict": None, "on": None})
        if (verdict["verdict"], verdict["on"]) != (row["verdict"], row["on"]):
            expected, actual = (f"{v['verdict']} ({v['on']})" for v in (row, verdict))
            lines.append(f"{row['id']}: {expected} in the ledger, {actual} here")
    return lines


def record(changes: list[str], path: Path = VERSIONS) -> None:
    """Add or replace the row of the installed PyTorch in the table, which is sorted by version."""
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    torch_version = torch.__version__.partition("+")[0]
    versions = [
        f"Python {platform.python_version()}",
        *(f"{name} {version(name)}" for name in BESIDE),
    ]
    same = f"the same {len(read_ledger())} verdicts, on the same conditions"
    rows = [row for row in rows if row[0] != torch_version]
    rows.append([torch_version, ", ".join(versions), "; ".join(changes) or same])
    rows.sort(key=lambda row: [int(number) for number in row[0].split(".")])
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def main(arguments: list[str]) -> int:
    changes = differences()
    if "--record" in arguments:
        record(changes)
    print(
        "\n".join(changes) or "every verdict is that of the ledger", f"[torch {torch.__version__}]"
    )
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
