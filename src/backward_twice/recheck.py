"""Judge the claims again on the PyTorch that is installed: ``python -m backward_twice.recheck``.

The notebooks that judge claims run in a temporary folder, so nothing stored changes.  Prints each
claim whose verdict differs from the ledger's, and ends with exit code 1 if there is one.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import torch

from backward_twice.execute import NOTEBOOKS, execute
from backward_twice.verdicts import read_ledger, stored_verdicts


def differences(notebooks: Path = NOTEBOOKS) -> list[str]:
    """One line for each claim that this PyTorch judges otherwise than the ledger does."""
    with tempfile.TemporaryDirectory() as folder:
        copies = Path(shutil.copytree(notebooks, Path(folder, "notebooks")))
        paths = [path for path in sorted(copies.glob("*.ipynb")) if stored_verdicts([path])]
        for number, path in enumerate(paths, 1):
            print(f"[{number}/{len(paths)}] {path.name}", file=sys.stderr)
            execute(path)
        found = stored_verdicts(paths)
    lines = []
    for row in read_ledger():
        now = found.get(row["id"], {"verdict": None, "on": None})
        if (now["verdict"], now["on"]) != (row["verdict"], row["on"]):
            stored, seen = (f"{v['verdict']} ({v['on']})" for v in (row, now))
            lines.append(f"{row['id']}: {stored} in the ledger, {seen} here")
    return lines


def main() -> int:
    found = differences()
    print("\n".join(found) or "every verdict is that of the ledger", f"[torch {torch.__version__}]")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
