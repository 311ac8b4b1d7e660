# /// script
# dependencies = ["torchmetrics"]
# ///
"""TorchMetrics: metrics kept in step with a loop, and one that is differentiated as a loss."""

import torch
import torchmetrics
import trial
from torch import nn

trial.begin()
x = torch.randn(512, 12)
label = (x[:, :4].sum(1) > 0).long()
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
metrics = torchmetrics.MetricCollection(
    [
        torchmetrics.Accuracy(task="multiclass", num_classes=2),
        torchmetrics.F1Score(task="multiclass", num_classes=2, average="macro"),
    ]
)
average = torchmetrics.MeanMetric()
differentiable = torchmetrics.MeanSquaredError()
with trial.training():
    for _ in range(20):
        for inputs, targets in zip(x.split(64), label.split(64), strict=True):
            logits = model(inputs)
            loss = nn.functional.cross_entropy(logits, targets)
            loss = loss + 0.1 * differentiable(logits.softmax(1)[:, 1], targets.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            metrics.update(logits, targets)
            average.update(loss)
        values = {name: value.item() for name, value in metrics.compute().items()}
        print(average.compute().item(), values)
        for one in (metrics, average, differentiable):
            one.reset()
trial.end(model)
