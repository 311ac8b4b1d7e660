"""What `make test DEVICE=cuda` rests on, as far as it shows without a GPU."""

import re
from functools import partial
from pathlib import Path

import pytest
import torch
from nbval.plugin import get_sanitize_patterns

from gradtrace import DeviceDropdown, explore, trace, tracer

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
        ('"device":{"allocated":512,"peak":1024},"var', '"device":null,"var'),
        ("no CUDA device", "no CUDA device"),
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


def test_a_gpus_counters_are_told_of_programs_that_use_it(monkeypatch):
    monkeypatch.setattr(tracer, "device_counters", lambda: {"allocated": 1, "peak": 2})

    def program(device):
        y = torch.ones(2, requires_grad=True, device=device).exp()
        y.sum().backward()

    on_cpu, elsewhere = (trace(partial(program, device), peaks=True) for device in ("cpu", "meta"))
    assert {step.device for step in on_cpu.steps} == {None}
    assert elsewhere.steps[-1].device == {"allocated": 1, "peak": 2}
