# /// script
# dependencies = ["accelerate"]
# ///
"""accelerate: what `accumulate` divides, and two losses on one output."""

import accelerate
import torch
from torch import nn

PIECES = 4


def loop(divide_by_hand=False, both="added"):
    """Gradient of two losses over a batch in four pieces, or how the loop ends."""
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=PIECES)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    batch = torch.randn(8, 3)
    losses = net(batch).square().mean(), net(batch).abs().mean()
    right = torch.autograd.grad(sum(losses), net[0].weight)[0]

    net, optimizer = accelerator.prepare(net, optimizer)
    gradient = None
    for piece in batch.chunk(PIECES):
        with accelerator.accumulate(net):
            output = net(piece)
            first, second = output.square().mean(), output.abs().mean()
            if divide_by_hand:
                first, second = first / PIECES, second / PIECES
            try:
                if both == "added":
                    accelerator.backward(first + second)
                else:
                    accelerator.backward(first)
                    accelerator.backward(second)
            except RuntimeError as error:
                return str(error).partition(" (")[0]
            gradient = net[0].weight.grad.clone()
            optimizer.step()
            optimizer.zero_grad()
    return f"gradient off by {((gradient - right).norm() / right.norm()).item():.0%}"


print("two losses on one output, accelerator.backward for each:", loop(both="each"))
print("    the losses added:                                   ", loop())
print("    the losses added, and divided by 4 by hand:         ", loop(divide_by_hand=True))
print(f"\naccelerate {accelerate.__version__}, torch {torch.__version__.partition('+')[0]}")
