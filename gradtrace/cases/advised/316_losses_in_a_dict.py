# obeys: add the losses and call backward() once
import torch
import torch.nn as nn
import torch.nn.functional as F


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(10, 16), nn.ReLU())
        self.box, self.cls, self.obj = nn.Linear(16, 4), nn.Linear(16, 5), nn.Linear(16, 1)

    def forward(self, x, targets):
        features = self.backbone(x)
        return {
            "box": F.smooth_l1_loss(self.box(features), targets["box"]),
            "cls": F.cross_entropy(self.cls(features), targets["cls"]),
            "obj": F.binary_cross_entropy_with_logits(self.obj(features), targets["obj"]),
        }


def train_one_epoch(model, optimizer, steps):
    for step in range(steps):
        targets = {"box": torch.rand(4, 4), "cls": torch.randint(0, 5, (4,)), "obj": torch.ones(4, 1)}
        losses = model(torch.randn(4, 10), targets)
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()


torch.manual_seed(0)
model = Detector()
train_one_epoch(model, torch.optim.SGD(model.parameters(), lr=0.01), 3)
