# /// script
# dependencies = ["pytorch-ignite"]
# ///
"""Ignite: a supervised trainer with an evaluator, a running average and early stopping."""

import torch
import trial
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import EarlyStopping
from ignite.metrics import Accuracy, Loss, RunningAverage
from torch import nn

trial.begin()
x = torch.randn(512, 1, 8, 8)
rows = torch.utils.data.TensorDataset(x, (x.mean((1, 2, 3)) > 0).long())
loader = torch.utils.data.DataLoader(rows, batch_size=32, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2)
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
trainer = create_supervised_trainer(model, optimizer, criterion)
metrics = {"accuracy": Accuracy(), "loss": Loss(criterion)}
evaluator = create_supervised_evaluator(model, metrics=metrics)
RunningAverage(output_transform=lambda loss: loss).attach(trainer, "running")


@trainer.on(Events.EPOCH_COMPLETED)
def evaluate(engine):
    evaluator.run(loader)
    found = evaluator.state.metrics
    print(engine.state.epoch, engine.state.metrics["running"], found["accuracy"], found["loss"])


evaluator.add_event_handler(
    Events.COMPLETED, EarlyStopping(3, lambda engine: -engine.state.metrics["loss"], trainer)
)
with trial.training():
    trainer.run(loader, max_epochs=15)
trial.end(model)
