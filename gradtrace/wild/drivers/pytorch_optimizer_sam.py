# /// script
# dependencies = ["pytorch_optimizer"]
# ///
"""pytorch_optimizer: two backwards a step (SAM), a gradient with a graph (AdaHessian), and more."""

import torch
import trial
from pytorch_optimizer import SAM, AdaHessian, Lookahead, ScheduleFreeAdamW, load_optimizer
from torch import nn

trial.begin()
x = torch.randn(128, 8)
y = x.prod(1, keepdim=True)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))


def loss_of(model: nn.Module) -> torch.Tensor:
    return nn.functional.mse_loss(model(x), y)


models = []
with trial.training():
    model = network()
    models.append(model)
    sam = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    for _ in range(40):
        loss = loss_of(model)
        loss.backward()
        sam.first_step(zero_grad=True)
        loss_of(model).backward()
        sam.second_step(zero_grad=True)
    print(loss.item())

    model = network()
    models.append(model)
    second_order = AdaHessian(model.parameters(), lr=0.05)
    for _ in range(40):
        loss = loss_of(model)
        second_order.zero_grad()
        loss.backward(create_graph=True)
        second_order.step()
    print(loss.item())

    for make in (
        lambda parameters: Lookahead(torch.optim.Adam(parameters, lr=1e-2)),
        lambda parameters: ScheduleFreeAdamW(parameters, lr=1e-2),
        lambda parameters: load_optimizer("lion")(parameters, lr=1e-3),
    ):
        model = network()
        models.append(model)
        optimizer = make(model.parameters())
        if hasattr(optimizer, "train"):
            optimizer.train()
        for _ in range(40):
            loss = loss_of(model)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(loss.item())
trial.end(*models)
