# obeys: make model.ItemGraph.w_item an nn.ModuleDict
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class ItemConv(nn.Module):
    def __init__(self, layers, emb_size):
        super().__init__()
        self.layers = layers
        self.w_item = nn.ModuleDict()
        for i in range(layers):
            self.w_item["weight_item%d" % i] = nn.Linear(emb_size, emb_size, bias=False)

    def forward(self, adjacency, embedding):
        item, final = embedding, [embedding]
        for i in range(self.layers):
            item = self.w_item["weight_item%d" % i](item)
            item = adjacency @ item
            final.append(F.normalize(item, dim=-1))
        return sum(final) / (self.layers + 1)


class COTREC(nn.Module):
    def __init__(self, adjacency, n_node, emb_size=16, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(n_node, emb_size)
        self.pos_embedding = nn.Embedding(20, emb_size)
        self.ItemGraph = ItemConv(layers, emb_size)
        self.w_1 = nn.Linear(2 * emb_size, emb_size)
        self.register_buffer("adjacency", adjacency)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)

    def generate_sess_emb(self, item_embedding, session):
        seq = item_embedding[session]
        pos = self.pos_embedding.weight[: seq.shape[1]].expand(len(seq), -1, -1)
        return torch.tanh(self.w_1(torch.cat([pos, seq], -1))).mean(1)

    def forward(self, session):
        items = self.ItemGraph(self.adjacency, self.embedding.weight)
        return self.generate_sess_emb(items, session) @ items.T


def train_test(model, loader, epochs):
    for epoch in range(epochs):
        total = 0.0
        for session, target in loader:
            model.optimizer.zero_grad()
            loss = F.cross_entropy(model(session), target)
            loss.backward()
            model.optimizer.step()
            total += loss.item()
        print("\tLoss:\t%.3f" % total)


if __name__ == "__main__":
    torch.manual_seed(0)
    adj = torch.softmax(torch.randn(12, 12), -1)
    data = TensorDataset(torch.randint(0, 12, (32, 5)), torch.randint(0, 12, (32,)))
    train_test(COTREC(adj, 12), DataLoader(data, batch_size=8), 2)
