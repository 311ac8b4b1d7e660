import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(1)


class NoisyGRU(nn.Module):
    def __init__(self, n_in=6, n_hid=10, layers=2, n_cls=4):
        super().__init__()
        self.layers, self.n_hid = layers, n_hid
        self.rnn = nn.GRU(n_in, n_hid, layers)
        self.out = nn.Linear(n_hid, n_cls)

    def init_hidden(self, batch):
        return torch.zeros(self.layers, batch, self.n_hid)

    def forward(self, x, hidden):
        y, hidden = self.rnn(x, hidden)
        return self.out(y), hidden


def repackage(hidden):
    # keep the numbers, forget the history
    return hidden.detach()


def flip_labels(labels, p):
    mask = torch.rand(labels.shape) < p
    return torch.where(mask, torch.randint_like(labels, 0, 4), labels)


def train(model, stream, labels, opt, chunk=5, epochs=2):
    for epoch in range(epochs):
        hidden = model.init_hidden(stream.size(1))
        total = 0.0
        for start in range(0, stream.size(0), chunk):
            hidden = repackage(hidden)
            x = stream[start:start + chunk]
            y = flip_labels(labels[start:start + chunk], 0.1)
            logits, hidden = model(x, hidden)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            total += loss.item()
        print(f"epoch {epoch}: {total:.3f}")


if __name__ == "__main__":
    net = NoisyGRU()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    data = torch.randn(20, 8, 6)
    target = (data.sum(-1) > 0).long() + 2 * (data[..., 0] > 0).long()
    train(net, data, target, optimizer)
