# obeys: if each iteration starts afresh
# differs: the state begins anew, where in the twin it goes on
import torch
import torch.nn.functional as F
from torch import nn

class Stack(nn.Module):
    def __init__(self, width=4, layers=3):
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(layers))
        self.states = [None] * layers

    def forward(self, x):
        for i, cell in enumerate(self.cells):
            self.states[i] = cell(x, self.states[i])
            x = self.states[i][0]
        return x


torch.manual_seed(0)
model = Stack()
optimizer = torch.optim.Adam(model.parameters())
for chunk in torch.randn(4, 5, 2, 4):
    loss = sum(model(x).pow(2).mean() for x in chunk)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.states = [None] * 3
