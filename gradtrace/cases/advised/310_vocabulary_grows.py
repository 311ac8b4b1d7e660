# obeys: create the optimizer after model.embedding.weight has been replaced
import torch
import torch.nn as nn
import torch.nn.functional as F


class Tagger(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.embedding = nn.Embedding(words, 6)
        self.out = nn.Linear(6, 3)

    def forward(self, ids):
        return self.out(self.embedding(ids).mean(1))

    def grow(self, words):
        old = self.embedding.weight.data
        self.embedding = nn.Embedding(words, 6)
        self.embedding.weight.data[: len(old)] = old


torch.manual_seed(0)
model = Tagger(10)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
words = 10
for epoch in range(3):
    for _ in range(4):
        ids, labels = torch.randint(0, words, (8, 5)), torch.randint(0, 3, (8,))
        loss = F.cross_entropy(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    words += 2
    model.grow(words)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    print(epoch, loss.item())
