# /// script
# dependencies = ["einops"]
# [tool.wild]
# alone = ["unfoldNd", "backpack-for-pytorch"]  # they ask for torchvision, and do not import it
# ///
"""BackPACK: per-sample gradients, their variance and a curvature, in the pass of a backward."""

import torch
import trial
from backpack import backpack, extend
from backpack.extensions import BatchGrad, DiagGGNExact, Variance
from torch import nn

trial.begin()
x = torch.randn(256, 1, 8, 8)
label = (x.mean((1, 2, 3)) > 0).long()
model = extend(
    nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)),
    use_converter=False,
)
criterion = extend(nn.CrossEntropyLoss())
with trial.training():
    for _ in range(5):
        for inputs, targets in zip(x.split(32), label.split(32), strict=True):
            model.zero_grad()
            loss = criterion(model(inputs), targets)
            with backpack(BatchGrad(), Variance(), DiagGGNExact()):
                loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad / (parameter.diag_ggn_exact + 1e-1)
        norms = [parameter.grad_batch.flatten(1).norm(dim=1) for parameter in model.parameters()]
        print(loss.item(), [norm.mean().item() for norm in norms], parameter.variance.tolist())
trial.end(model)
