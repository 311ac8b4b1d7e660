import torch
import torch.nn as nn
import torch.nn.functional as F


class DecoderState:
    def __init__(self, hidden, input_feed):
        self.hidden, self.input_feed = hidden, input_feed

    def all(self):
        return self.hidden + (self.input_feed,)

    def update(self, hidden, input_feed):
        self.hidden, self.input_feed = hidden, input_feed

    def detach(self):
        for h in self.all():
            h = h.detach()


class Decoder(nn.Module):
    def __init__(self, vocabulary, size):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        self.cell = nn.LSTMCell(2 * size, size)
        self.attention = nn.Linear(size, size)
        self.generator = nn.Linear(size, vocabulary)

    def forward(self, words, state):
        scores = []
        for word in words:
            hidden = self.cell(torch.cat([self.embedding(word), state.input_feed], -1), state.hidden)
            feed = torch.tanh(self.attention(hidden[0]))
            state.update(hidden, feed)
            scores.append(self.generator(feed))
        return torch.stack(scores)


torch.manual_seed(0)
decoder = Decoder(12, 6)
optim = torch.optim.SGD(decoder.parameters(), lr=0.1)
target = torch.randint(0, 12, (9, 4))
dec_state = DecoderState((torch.zeros(4, 6), torch.zeros(4, 6)), torch.zeros(4, 6))
for j in range(0, 8, 4):
    decoder.zero_grad()
    scores = decoder(target[j : j + 4], dec_state)
    loss = F.cross_entropy(scores.flatten(0, 1), target[j + 1 : j + 5].flatten())
    loss.backward()
    optim.step()
    dec_state.detach()
