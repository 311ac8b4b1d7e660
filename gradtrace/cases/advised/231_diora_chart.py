# obeys: collect the new parts in a list
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Chart:
    def __init__(self, batch, length, size):
        ncells = length * (length + 1) // 2
        self.inside_h = [None] * ncells
        self.inside_s = [torch.zeros(batch, 1)] * ncells


class ComposeMLP(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.W = nn.Linear(2 * size, size)
        self.out = nn.Linear(size, size)

    def forward(self, hs):
        return torch.tanh(self.out(F.relu(self.W(hs))))


class Diora(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.compose = ComposeMLP(size)
        self.score = nn.Bilinear(size, size, 1)

    def offsets(self, length):
        offset, total = {}, 0
        for level in range(length):
            offset[level] = total
            total += length - level
        return offset

    def inside_fill_chart(self, chart, index, h, s):
        chart.inside_h[index] = h
        chart.inside_s[index] = s

    def forward(self, leaves):
        batch, length, _ = leaves.shape
        chart, offset = Chart(batch, length, self.size), self.offsets(length)
        chart.inside_h[:length] = leaves.unbind(1)
        for level in range(1, length):
            for pos in range(length - level):
                hs, ss = [], []
                for split in range(level):
                    l = offset[split] + pos
                    r = offset[level - split - 1] + pos + split + 1
                    lh, rh = chart.inside_h[l], chart.inside_h[r]
                    hs.append(self.compose(torch.cat([lh, rh], -1)))
                    ss.append(self.score(lh, rh) + chart.inside_s[l] + chart.inside_s[r])
                p = F.softmax(torch.stack(ss, 1), dim=1)
                h, s = (p * torch.stack(hs, 1)).sum(1), (p * torch.stack(ss, 1)).sum(1)
                self.inside_fill_chart(chart, offset[level] + pos, h, s)
        return chart.inside_h[-1], chart.inside_s[-1]


class Net(nn.Module):
    def __init__(self, vocab=20, size=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, size)
        self.diora = Diora(size)
        self.recon = nn.Linear(size, vocab)

    def forward(self, ids):
        root, score = self.diora(self.embed(ids))
        logp = F.log_softmax(self.recon(root), -1)
        return -logp.gather(1, ids).mean() + 0.01 * score.pow(2).mean()


if __name__ == "__main__":
    torch.manual_seed(0)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for (ids,) in DataLoader(TensorDataset(torch.randint(0, 20, (8, 4))), batch_size=4):
        opt.zero_grad()
        loss = net(ids)
        loss.backward()
        opt.step()
        print(loss.item())
