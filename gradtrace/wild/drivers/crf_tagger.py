# /// script
# dependencies = ["pytorch-crf"]
# ///
"""pytorch-crf: an LSTM tagger, its likelihood by the forward algorithm."""

import torch
import trial
from torch import nn
from torchcrf import CRF


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True, bidirectional=True)
        self.scores, self.crf = nn.Linear(16, 3), CRF(3, batch_first=True)

    def emissions(self, words):
        return self.scores(self.lstm(self.embedding(words))[0])

    def forward(self, words, tags, mask):
        return -self.crf(self.emissions(words), tags, mask, reduction="mean")


trial.begin()
words = torch.randint(12, (32, 9))
tags = words % 3
mask = torch.arange(9) < torch.randint(3, 10, (32, 1))
model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
with trial.training():
    for step in range(40):
        loss = model(words, tags, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(loss.item())
print(model.crf.decode(model.emissions(words), mask)[0])
trial.end(model)
