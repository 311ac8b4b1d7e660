"""What `make gpu-check` rests on, as far as it shows without a GPU."""

import re
from functools import partial
from pathlib import Path

import pytest
import torch
from nbval.plugin import get_sanitize_patterns

from gradtrace import DeviceDropdown, LiveBytes, explore, trace
from gradtrace.autograd import live_bytes

PATTERNS = get_sanitize_patterns((Path(__file__).parent / "device.cfg").read_text())


@pytest.mark.parametrize(
    ("seen", "stored"),
    [
        (
            "[torch.cuda.FloatTensor [3]], which is output",
            "[torch.FloatTensor [3]], which is output",
        ),
        ("tensor([1., 2.], device='cuda:0')", "tensor([1., 2.])"),
        ("tensor(1., device='cuda:0', grad_fn=<X>)", "tensor(1., grad_fn=<X>)"),
        ('["device","\'cuda\'"]', '["device","\'cpu\'"]'),
        ("[14],0,40,null,[22]", "[14],0,peak,null,[22]"),
        ('<div data-key="04e3d8" style="--high: 938px">', "<div data-key style>"),
        ("cpu eval mode: runs\ncuda eval mode: raises\n", "cpu eval mode: runs\n"),
    ],
)
def test_outputs_do_not_name_the_gpu(seen, stored):
    for pattern, replacement in PATTERNS:
        seen = re.sub(pattern, replacement, seen)
    assert seen == stored


def test_what_is_called_cpu_runs_on_the_device_that_is_asked_for(monkeypatch):
    monkeypatch.setenv("GRADTRACE_DEVICE", "meta")
    ran_on = []

    def note(device):
        ran_on.append(torch.ones(2, device=device).device.type)

    explored = explore(note, device=DeviceDropdown())
    assert ran_on == ["meta"]
    assert repr(explored).splitlines()[1] == "  device=cpu: Ends without an error."
    assert explored.setting == {"device": "meta"}


class StandIn(LiveBytes):
    """An accelerator's counters, of tensors on ``meta``.  Whoever would reset its peak fails."""

    def is_initialized(self):
        return True

    def device_count(self):
        return 0

    def memory_allocated(self, device):
        assert device.type == "meta"
        return self.alive

    def max_memory_allocated(self, device):
        return self.peak


def test_a_gpus_counters_are_told_of_programs_that_use_it(monkeypatch):
    def program(device):
        y = torch.ones(1_000, requires_grad=True, device=device).exp()
        z = y.sin().sum()
        del y, z
        return torch.ones(10, device=device).exp()

    with StandIn() as counters:
        kept = torch.ones(500, device="meta")  # from before: the counters know it
        monkeypatch.setitem(live_bytes.COUNTED, "meta", counters)
        on_cpu = trace(partial(program, "cpu"), peaks=True)
        assert {step.device for step in on_cpu.steps} == {None}
        counters.reset_peak()
        seen = [step.device for step in trace(partial(program, "meta"), peaks=True).steps]
        assert counters.peak >= kept.nbytes + 12_000  # the process's own is as it was
    before, made, used, deleted, last = seen
    assert before is None
    assert made == {"allocated": 2_000 + 8_000, "peak": 2_000 + 8_000}
    assert used == {"allocated": 2_000 + 8_000 + 4, "peak": 2_000 + 12_000 + 4}
    assert deleted == {"allocated": 2_000, "peak": 2_000 + 8_000 + 4}
    assert last == {"allocated": 2_000 + 40, "peak": 2_000 + 80}


def test_what_a_kernel_took_for_itself_is_seen_where_it_raised_the_peak(monkeypatch):
    def program():
        x = torch.ones(100, device="meta")
        taken.append(1_400)
        y = x.exp()
        return y.exp()

    taken = [0]
    with StandIn() as counters:
        counters.max_memory_allocated = lambda device: max(counters.peak, *taken)
        monkeypatch.setitem(live_bytes.COUNTED, "meta", counters)
        seen = trace(program, peaks=True)
    peaks = {seen.source[step.ran].strip(): step.device["peak"] for step in seen.steps[2:]}
    assert peaks == {"taken.append(1_400)": 1_400, "y = x.exp()": 800, "return y.exp()": 1_200}


def test_devices_are_added_up(monkeypatch):
    with StandIn() as counters:
        for kind in ("cpu", "meta"):
            counters.memory_allocated = lambda device: {"cpu": 10, "meta": 5}[device.type]
            counters.max_memory_allocated = lambda device: 100
            monkeypatch.setitem(live_bytes.COUNTED, kind, counters)
        counts = live_bytes.DeviceCounters()
        assert counts.take() is None
        counts.look(torch.device("cpu"))
        assert counts.take() == {"allocated": 10, "peak": 100}
        counts.look(torch.device("meta"))
        assert counts.take() == {"allocated": 15, "peak": 110}
        assert counts.take() == {"allocated": 15, "peak": 15}
