# /// script
# dependencies = ["captum"]
# ///
"""Captum: a trained network is asked what its answers rest on; no parameter changes after that."""

import torch
import trial
from captum.attr import DeepLift, GradientShap, IntegratedGradients, LayerConductance, Saliency
from captum.robust import FGSM
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.relu = nn.Linear(6, 16), nn.ReLU()
        self.second = nn.Linear(16, 3)

    def forward(self, x):
        return self.second(self.relu(self.first(x)))


trial.begin()
x = torch.randn(128, 6)
label = x[:, :3].argmax(1)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
with trial.training():
    for _ in range(400):
        loss = nn.functional.cross_entropy(model(x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
    model.eval()
    inputs, baseline = x[:16].clone().requires_grad_(), torch.zeros(16, 6)
    print(Saliency(model).attribute(inputs, target=0).sum().item())
    found, error = IntegratedGradients(model).attribute(
        inputs, baseline, target=1, return_convergence_delta=True
    )
    print(found.sum().item(), error.abs().max().item())
    print(GradientShap(model).attribute(inputs, baseline, target=1).sum().item())
    print(DeepLift(model).attribute(inputs, baseline, target=2).sum().item())
    print(LayerConductance(model, model.first).attribute(inputs, target=0).sum().item())
    attack = FGSM(model, loss_func=nn.CrossEntropyLoss(reduction="none"))
    print((model(attack.perturb(inputs, 0.1, label[:16])).argmax(1) == label[:16]).float().mean())
trial.end(model)
