"""Every notebook on the GPU, against the outputs that are stored."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[2]
# Each process has a CUDA context of its own, some hundred megabytes.
PROCESSES = str(min(8, os.cpu_count() or 1))
NBVAL = (
    *("-m", "pytest", "--nbval", "--nbval-cell-timeout=120", "-q", "-rfE", "--tb=no"),
    *("-p", "no:cacheprovider", "-n", PROCESSES, "--dist", "loadscope"),
    "--nbval-sanitize-with=tests/device.cfg",
)
PROCESSOR = {"CUDA_VISIBLE_DEVICES": "", "GRADTRACE_DEVICE": "cpu"}
# A trace on a GPU also has the allocator's counters (test_trace_counters), which move the numbers
# by which its parts refer to each other; so no kernel here reads them.
WITHOUT_COUNTERS = """
from gradtrace.autograd import live_bytes
live_bytes.COUNTED.clear()
"""


# Cells that must differ on a GPU, by the reason.
DIFFERENT = {
    "nn.GRU is one node of cuDNN": (
        "notebooks/04_gru.ipynb#example-1-run",
        "notebooks/04_gru.ipynb#example-2-run",
        "notebooks/04_gru.ipynb#example-3-run",
        "notebooks/04_gru.ipynb#repair-run",
        "notebooks/04_gru.ipynb#claim-4-5",
    ),
    "backward records the second derivative's nodes on another thread, which numbers its own": (
        "notebooks/second_derivatives.ipynb#example-3-run",
        "notebooks/second_derivatives.ipynb#second-order-run",
    ),
}


def cell_ids(path):
    cells = nbformat.read(ROOT / path, as_version=4).cells
    return [cell.id for cell in cells if cell.cell_type == "code"]


def compared(paths, environment):
    """How many cells were compared, and those that differ, as ``notebook#cell``."""
    run = subprocess.run(
        [sys.executable, *NBVAL, *paths],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
    )
    different = set()
    for path, number in re.findall(r"^(?:FAILED|ERROR) (\S+?)::Cell (\d+)", run.stdout, re.M):
        different.add(f"{path}#{cell_ids(path)[int(number)]}")
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error)", run.stdout)}
    assert counts.get("passed"), run.stdout[-2000:] + run.stderr[-2000:]
    assert len(different) == counts.get("failed", 0) + counts.get("error", 0), run.stdout[-4000:]
    return sum(counts.values()), different


def test_notebooks(device, figures, tmp_path, monkeypatch):
    """Every notebook, what is called "cpu" run on the GPU, against the stored outputs"""
    startup = tmp_path / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "without_counters.py").write_text(WITHOUT_COUNTERS)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    paths = [
        str(path.relative_to(ROOT))
        for path in sorted([*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("solutions/*/*.ipynb")])
    ]
    number, different = compared(paths, {"GRADTRACE_DEVICE": device})
    figures["notebooks"] = len(paths)
    figures["cells compared"] = number
    again = sorted({name.partition("#")[0] for name in different})
    elsewhere = compared(again, PROCESSOR)[1] if again else set()
    figures["cells that this PyTorch changes on its CPU, too"] = (
        ", ".join(sorted(different & elsewhere)) or "none"
    )
    only_here = different - elsewhere
    for reason, cells in DIFFERENT.items():
        figures[f"cells that differ, because {reason}"] = ", ".join(
            cell for cell in cells if cell in only_here
        )
        only_here -= set(cells)
    figures["cells that differ for no such reason"] = ", ".join(sorted(only_here)) or "none"
    assert not only_here, f"{len(only_here)} cells differ: {', '.join(sorted(only_here))}"
