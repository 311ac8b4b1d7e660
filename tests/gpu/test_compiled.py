"""CUDA graphs: results that the next run of a compiled function overwrites."""

import pytest
import torch
from torch import nn

OVERWRITTEN = "accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run"


def summed_losses(device, keep, mark=False, clear=True, compiled=True):
    """The sum of four steps' losses, each kept until the end by ``keep``."""
    torch.compiler.reset()
    torch.manual_seed(0)
    model = nn.Linear(8, 1).to(device)

    def loss_of(x):
        return model(x).square().mean()

    if compiled:
        loss_of = torch.compile(loss_of, mode="reduce-overhead")
    losses = []
    for step in range(4):
        if mark:
            torch.compiler.cudagraph_mark_step_begin()
        loss = loss_of(torch.full((16, 8), step + 1.0, device=device))
        loss.backward()
        losses.append(keep(loss))
        if clear:
            model.zero_grad()
    return torch.stack(losses).sum().item()


def outcome(right, *arguments, **options):
    """What four steps end in: the right sum, a wrong one, or the error."""
    try:
        summed = summed_losses(*arguments, **options)
    except RuntimeError as error:
        assert OVERWRITTEN in str(error)
        return "the error"
    return "right" if summed == pytest.approx(right, rel=1e-4) else "wrong, and no error"


def test_cudagraphs_overwritten(device, figures):
    """What is kept over runs under mode="reduce-overhead" is overwritten, and what helps"""
    right = summed_losses(device, torch.Tensor.detach, compiled=False)
    with pytest.raises(RuntimeError, match=OVERWRITTEN) as refused:
        summed_losses(device, torch.Tensor.detach)
    figures["message"] = str(refused.value).partition(" Stack trace")[0]
    figures["losses kept"] = outcome(right, device, torch.Tensor.detach)
    figures["losses kept as clones made outside"] = outcome(
        right, device, lambda loss: loss.detach().clone()
    )
    figures["losses kept, cudagraph_mark_step_begin() before each run"] = outcome(
        right, device, torch.Tensor.detach, mark=True
    )
    figures["clones kept, gradients accumulated over the runs"] = outcome(
        right, device, lambda loss: loss.detach().clone(), clear=False
    )
    assert figures["losses kept as clones made outside"] == "right"
