# obeys: make a new tensor and use it from there on
import torch
import torch.nn.functional as F
from torch import nn

class GatedUnit(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(width, 2 * width)

    def forward(self, x):
        value, gate = self.project(x).chunk(2, dim=-1)
        gate = gate.sigmoid()
        return value * gate


torch.manual_seed(0)
unit = GatedUnit(4)
unit(torch.randn(3, 4)).pow(2).mean().backward()
