# obeys: reset model.recurrent.weight in each iteration
import torch
import torch.nn.functional as F
from torch import nn

from h43_evolvegcno import EvolveGCNO


class RecurrentGCN(nn.Module):
    def __init__(self, node_features):
        super().__init__()
        self.recurrent = EvolveGCNO(node_features)
        self.linear = nn.Linear(node_features, 1)

    def forward(self, x, adjacency):
        return self.linear(F.relu(self.recurrent(x, adjacency)))


torch.manual_seed(0)
snapshots = [(torch.randn(7, 4), torch.softmax(torch.randn(7, 7), 1), torch.randn(7, 1)) for _ in range(3)]
model = RecurrentGCN(node_features=4)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
model.train()
for epoch in range(3):
    cost = 0
    model.recurrent.weight = None
    for time, (x, adjacency, y) in enumerate(snapshots):
        y_hat = model(x, adjacency)
        cost = cost + torch.mean((y_hat - y) ** 2)
    cost = cost / (time + 1)
    cost.backward()
    optimizer.step()
    optimizer.zero_grad()
