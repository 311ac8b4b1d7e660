"""The large models that pictures are measured on: programs of a few lines that go backward."""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    """Three convolutions and a shortcut around them."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.shortcut = nn.Identity()
        if inputs != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        return torch.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class ResidualNetwork(nn.Module):
    """Fifty layers: a stem, 16 blocks of three in four stages, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        inputs = 8
        for number, (depth, width) in enumerate(((3, 8), (4, 16), (6, 32), (3, 64)), 1):
            blocks = []
            for _ in range(depth):
                blocks.append(Block(inputs, width))
                inputs = 4 * width
            setattr(self, f"layer{number}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inputs, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def transformer() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = nn.TransformerEncoder(layer, 12)
    out = model(torch.randn(2, 16, 64))
    loss = out.pow(2).mean()
    loss.backward()


def residual_network() -> None:
    torch.manual_seed(0)
    model = ResidualNetwork()
    scores = model(torch.randn(2, 3, 8, 8))
    loss = nn.functional.cross_entropy(scores, torch.tensor([1, 2]))
    loss.backward()


def recurrent_loop(steps: int = 200) -> None:
    torch.manual_seed(0)
    cell = nn.GRUCell(8, 8)
    h = torch.zeros(1, 8)
    for x in torch.randn(steps, 1, 8):
        h = cell(x, h)
    loss = h.pow(2).mean()
    loss.backward()


def recurrent_module() -> None:
    torch.manual_seed(0)
    model = nn.GRU(8, 8)
    out, _ = model(torch.randn(200, 1, 8))
    loss = out.pow(2).mean()
    loss.backward()


MODELS = (transformer, residual_network, recurrent_loop, recurrent_module)
