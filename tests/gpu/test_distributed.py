"""DistributedDataParallel over NCCL, two processes with a device each."""

import subprocess
import sys

import pytest
import torch

PROGRAM = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
x = torch.full((1, 2), rank + 1.0, device="cuda")


def ddp():
    torch.manual_seed(0)
    return DistributedDataParallel(nn.Linear(2, 1, bias=False).cuda(), device_ids=[rank])


def report(what, gradient):
    both = [torch.zeros_like(gradient) for _ in range(2)]
    dist.all_gather(both, gradient.contiguous())
    if rank == 0:
        print(what, *(f"{each.flatten()[0].item():.3f}" for each in both), sep="|", flush=True)


net = ddp()
output = net(x)
(output.sum() + output.square().sum()).backward()
report("losses added", net.module.weight.grad)

net = ddp()
output = net(x)
output.sum().backward(retain_graph=True)
output.square().sum().backward()
report("retained, a second backward", net.module.weight.grad)

net = ddp()
net(x).sum().backward()
net(x).square().sum().backward()
report("forward, backward, forward, backward", net.module.weight.grad)
dist.destroy_process_group()
"""


def test_ddp_nccl(device, figures, tmp_path):
    """DDP over NCCL averages the first backward pass after a forward pass, and not the second"""
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device: two are needed")
    (tmp_path / "train.py").write_text(PROGRAM)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, "--nproc-per-node", "2", "train.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    for line in run.stdout.splitlines():
        what, *gradients = line.split("|")
        figures[f"{what}: in process 0, 1"] = ", ".join(gradients)
        assert (gradients[0] == gradients[1]) == (what != "retained, a second backward")
    assert len(figures) == 3
