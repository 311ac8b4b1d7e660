# /// script
# dependencies = ["torch-geometric"]
# ///
"""PyTorch Geometric: node classification with GCN and GAT, graph classification in batches."""

import torch
import torch.nn.functional as F
import trial
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, GINConv, global_mean_pool


class Net(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.first = kind(16, 16)
        self.second = kind(16, 4)

    def forward(self, data):
        x = F.relu(self.first(data.x, data.edge_index))
        x = F.dropout(x, training=self.training)
        return F.log_softmax(self.second(x, data.edge_index), dim=1)


class OfGraphs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        layers = torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32)
        self.convolution = GINConv(torch.nn.Sequential(*layers))
        self.out = torch.nn.Linear(32, 2)

    def forward(self, data):
        x = self.convolution(data.x, data.edge_index).relu()
        return self.out(global_mean_pool(x, data.batch))


def graph(nodes: int, edges: int, label: torch.Tensor) -> Data:
    return Data(x=torch.randn(nodes, 16), edge_index=torch.randint(0, nodes, (2, edges)), y=label)


trial.begin()
data = graph(120, 600, torch.randint(0, 4, (120,)))
many = [graph(10, 40, torch.tensor([index % 2])) for index in range(64)]
models = []
with trial.training():
    for kind in (GCNConv, GATConv):
        model = Net(kind)
        models.append(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
        model.train()
        for epoch in range(60):
            optimizer.zero_grad()
            loss = F.nll_loss(model(data)[:80], data.y[:80])
            loss.backward()
            optimizer.step()
            if epoch % 20 == 0:
                print(epoch, loss.item())
    model = OfGraphs()
    models.append(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(6):
        for batch in DataLoader(many, batch_size=16, shuffle=True):
            loss = F.cross_entropy(model(batch), batch.y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(loss.item())
trial.end(*models)
