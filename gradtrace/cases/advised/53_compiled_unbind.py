# obeys: if both losses are to train all that they reach, add them and call backward() once
import torch
from torch import nn


class Splitter(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3, 4))

    def forward(self, x):
        return torch.unbind(x * self.scale.exp(), 0)


def main():
    torch.manual_seed(0)
    model = torch.compile(Splitter(), backend="aot_eager")
    x = torch.randn(3, 4)
    rows = model(x)
    total = 0
    for i, row in enumerate(rows):
        total = total + row.pow(2).sum()
        print(i)
    total.backward()


main()
