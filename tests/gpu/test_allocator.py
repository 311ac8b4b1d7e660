"""The allocator's side of the page on memory: its programs, run on the GPU."""

import gc
import pickle
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import torch
from torch.autograd.graph import save_on_cpu

from gradtrace import LiveBytes, trace

PAGE = Path(__file__).parents[2] / "notebooks" / "memory_on_a_gpu.ipynb"
PROGRAMS = ("step-program", "keeps-program", "keeps-run", "caught-program", "lower-program")
MIB = 2**20


@pytest.fixture
def page(device, capsys):
    """What the page's programs define."""
    cells = {cell.id: cell.source for cell in nbformat.read(PAGE, as_version=4).cells}
    names = {}
    for name in ("set-up", "step-program", "step-run", *PROGRAMS[1:]):
        exec(re.sub(r"^%.*$", "", cells[name], flags=re.M), names)
    names["cells"] = cells
    for _ in names["phases_of_two_steps"](device):  # cuBLAS allocates its workspace once
        pass
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return names


def mib(nbytes):
    return f"{nbytes / MIB:.1f} MiB"


def test_allocator_counters(page, device, figures):
    """Two training steps: allocated at the end of each phase, and the most within it"""
    start = torch.cuda.memory_allocated()
    with LiveBytes() as live:
        for phase in page["phases_of_two_steps"](device):
            allocated = torch.cuda.memory_allocated() - start
            peak = torch.cuda.max_memory_allocated() - start
            figures[phase] = f"{mib(allocated)}, peak {mib(peak)}"
            assert allocated == pytest.approx(live.alive, rel=0.02, abs=MIB)
            assert peak >= live.peak - MIB
            torch.cuda.reset_peak_memory_stats()
            live.reset_peak()


def test_empty_cache(device, figures):
    """empty_cache returns blocks without a tensor to the driver, and frees no tensor"""

    def report(moment):
        free, _ = torch.cuda.mem_get_info()
        seen = {
            "allocated": torch.cuda.memory_allocated() - allocated,
            "reserved": torch.cuda.memory_reserved() - reserved,
            "taken from the driver": before - free,
        }
        figures[moment] = ", ".join(f"{name} {mib(nbytes)}" for name, nbytes in seen.items())
        return seen

    before, _ = torch.cuda.mem_get_info()
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    tensors = [torch.empty(64 * MIB, dtype=torch.uint8, device=device) for _ in range(8)]
    full = report("eight tensors of 64 MiB")
    assert full["allocated"] == 512 * MIB
    del tensors[1:]
    cached = report("seven of them deleted")
    assert cached["allocated"] == 64 * MIB
    assert cached["reserved"] == full["reserved"]
    torch.cuda.empty_cache()
    emptied = report("after empty_cache()")
    assert emptied["allocated"] == cached["allocated"]
    assert emptied["reserved"] <= cached["reserved"] - 448 * MIB
    assert emptied["taken from the driver"] <= cached["taken from the driver"] - 448 * MIB


def test_cache_before_out_of_memory(device, figures):
    """Before it raises, the allocator itself returns the cache and tries again"""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(1024 * MIB / total)
    try:
        retries = torch.cuda.memory_stats()["num_alloc_retries"]
        tensors = [torch.empty(100 * MIB, dtype=torch.uint8, device=device) for _ in range(7)]
        del tensors
        assert torch.cuda.memory_reserved() > 600 * MIB
        torch.empty(800 * MIB, dtype=torch.uint8, device=device)  # fits only without the cache
        retried = torch.cuda.memory_stats()["num_alloc_retries"] - retries
        figures["retries for a tensor that fits only without the cache"] = retried
        assert retried == 1
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_growing_loops(page, device, figures):
    """Allocated after each of three steps, beyond model and input"""
    for loop in page["LOOPS"]:
        gc.collect()
        with LiveBytes() as live:
            expected = page["growth"](loop, "cpu", lambda: live.alive)
        grown = page["growth"](loop, device, torch.cuda.memory_allocated)
        figures[loop] = ", ".join(map(mib, grown))
        assert grown == pytest.approx(expected, rel=0.02, abs=MIB)


def test_caught_out_of_memory(page, device, figures):
    """What an out-of-memory error keeps while it is caught, and its message"""
    start = torch.cuda.memory_allocated()
    kept = []
    for moment in page["attempts"](device):
        kept.append(torch.cuda.memory_allocated() - start)
        figures[moment] = mib(kept[-1])
    before, caught, in_variable, deleted = kept
    assert before == deleted == 0
    assert caught == in_variable >= 8_000_000
    with pytest.raises(torch.OutOfMemoryError) as raised:
        page["too_large"](device)
    figures["message"] = re.sub(r"\d+(\.\d+)? [KMGT]iB", "… GiB", str(raised.value))


def test_lower_peaks(page, device, figures):
    """The peak of one step: whole, in pieces, with checkpoints"""
    peaks, gradients = {}, {}
    for way in page["WAYS"]:
        step = page["one_step"](device, way)
        next(step)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        gradients[way] = next(step)
        peaks[way] = torch.cuda.max_memory_allocated() - before
        del step
        figures[way] = mib(peaks[way])
    whole, *others = page["WAYS"]
    for way in others:
        assert peaks[way] < 0.9 * peaks[whole]
        assert torch.allclose(gradients[way], gradients[whole], rtol=1e-3, atol=1e-7)


def test_memory_snapshot(page, device, figures, tmp_path, monkeypatch):
    """The page's lines record a snapshot that names the lines of a program"""
    monkeypatch.chdir(tmp_path)
    (lines,) = re.findall(r"```python\n(.*?)```", page["cells"]["snapshot"], re.S)

    def train_one_step():
        for _ in page["phases_of_two_steps"](device):
            pass

    exec(lines, {"torch": torch, "train_one_step": train_one_step})
    (command,) = re.findall(
        r"`python (-m torch\.cuda\._memory_viz [^`]+)`", page["cells"]["snapshot"]
    )
    subprocess.run([sys.executable, *command.split()], check=True, capture_output=True, timeout=100)
    recorded = pickle.loads(Path("snapshot.pickle").read_bytes())
    events = [event for events in recorded["device_traces"] for event in events]
    allocations = [event for event in events if event["action"] == "alloc"]
    names = {frame["name"] for event in allocations for frame in event["frames"]}
    figures["events"] = len(events)
    figures["allocations"] = len(allocations)
    figures["bytes of snapshot.pickle"] = Path("snapshot.pickle").stat().st_size
    figures["bytes of snapshot.html"] = Path("snapshot.html").stat().st_size
    assert {"train_one_step", "phases_of_two_steps"} <= names
    assert "snapshot" in Path("snapshot.html").read_text(encoding="utf-8")


def test_save_on_cpu(device, figures):
    """save_on_cpu() moves what is saved off the GPU, and copies it"""

    def saved(context):
        x = torch.ones(4 * MIB, requires_grad=True, device=device)
        before = torch.cuda.memory_allocated()
        with context:
            y = x.sigmoid().sigmoid().sigmoid().sum()
        held = torch.cuda.memory_allocated() - before
        y.backward()
        return held, x.grad

    held, right = saved(torch.enable_grad())
    for pinned in (False, True):
        offloaded, gradient = saved(save_on_cpu(pin_memory=pinned))
        assert torch.equal(gradient, right)
        assert offloaded < MIB < 40 * MIB < held
    figures["allocated after the forward pass"] = mib(held)
    figures["allocated after the forward pass, with save_on_cpu()"] = mib(offloaded)
    x = torch.ones(3, requires_grad=True, device=device)
    with save_on_cpu():
        y = x.exp()
    y += 1
    y.sum().backward()
    assert torch.allclose(x.grad, x.detach().exp())
    figures["gradient after a write in place"] = "right: the copy was not written"


def test_trace_counters(device, figures):
    """A trace with peaks=True reads the allocator's counters line by line, and resets none"""

    def program(device):
        y = torch.ones(MIB, requires_grad=True, device=device).exp()
        z = y.sin().sum()
        del y, z
        return torch.ones(10, device=device).exp()

    program(device)
    start = torch.cuda.memory_allocated()
    outside = torch.empty(64 * MIB, device=device)
    del outside
    highest = torch.cuda.max_memory_allocated()
    seen = [step.device for step in trace(program, device, peaks=True).steps]
    assert torch.cuda.max_memory_allocated() == highest
    figures["allocated, peak"] = "; ".join(
        "none" if step is None else f"{mib(step['allocated'] - start)}, {mib(step['peak'] - start)}"
        for step in seen
    )
    before, exp, sin, deleted, last = seen
    assert before is None
    assert exp["allocated"] - start == 8 * MIB
    assert sin["peak"] - start == pytest.approx(12 * MIB, abs=4096)
    assert deleted["allocated"] == start
    assert last["allocated"] - start <= 1024
